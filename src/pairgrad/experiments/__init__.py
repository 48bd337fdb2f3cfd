"""The paper's studies as programs. Nothing in the library imports them.

Data goes one way: recipe -> run -> record -> table or figure -> page. A table or figure is rebuilt from records without training.

- what is trained: `recipes` and their `settings` and `values`; `data`, `augment`, `models`, `training`, `runs` (directories that survive);
- what is measured of it: `evaluation`, `forks`, `frozen`, `timing`; `records` keeps it;
- tables that are computed: `fidelity`, `constants`, `parity`, `defect`, `two_class`, `class_count`, `complexity`, `counterfactual`, with `exact`
  (ball arithmetic) and `frozen_state`; from records: `captured`, `local_costs`, `task_tables`, `study`;
- `figures`, one module each; `table` and `writers` (what a table is, and its files); `catalogue` (all of them by name), `not_run`;
- beside the paper: `published` (its numbers), `paper_items` (its labels); `report` (all on one page).
"""

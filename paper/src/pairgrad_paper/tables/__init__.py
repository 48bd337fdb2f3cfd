"""The paper's tables, and ours beside them.

- what a table is: `table`, its files `writers`; all tables and figures by name: `catalogue`; what was not run: `not_run`;
- the paper: its numbers `published`, its labels `paper_items`;
- computed: `fidelity`, `constants`, `parity`, `defect`, `two_class`, `class_count`, with `exact` (ball arithmetic);
- from records: `complexity`, `local_costs`, `task_tables`, `study`; of states that training visited, `captured_source` finds the record for `captured_audit`,
  `backward`, `fork_summary`, `one_step_replay` and `proco_states`.
"""

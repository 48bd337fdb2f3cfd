"""The paper's tables, and ours beside them.

- what a table is: `table`, its files `writers`; what was not run: `not_run`; all tables and figures by name: `pairgrad_paper.catalogue`;
- the paper: its numbers `published`, its labels `paper_items`;
- the published numbers beside ours, counted: `numbers`;
- over seeds: `seeds` has means, deviations and intervals, of one version of the code;
- computed: `fidelity`, `constants`, `parity`, `defect`, `two_class`, `class_count`, with `exact` (ball arithmetic);
- from records: `complexity`, `local_costs`, `task_tables`, `study`; of states that training visited, `captured_source` finds the record for `captured_audit`,
  `backward`, `fork_summary`, `one_step_replay` and `proco_states`.
"""

from pairgrad_paper.tables.not_run import NotRun
from pairgrad_paper.tables.paper_items import PAPER, SECTIONS, item_of, named, section_of
from pairgrad_paper.tables.published import Printed
from pairgrad_paper.tables.table import Check, Column, Row, Table, Tick, compared, compared_columns, number, same_digits
from pairgrad_paper.tables.writers import PLACE, is_words, to_caption, to_csv, to_markdown, with_shown, write, write_not_run

__all__ = [
    "PAPER",
    "PLACE",
    "SECTIONS",
    "Check",
    "Column",
    "NotRun",
    "Printed",
    "Row",
    "Table",
    "Tick",
    "compared",
    "compared_columns",
    "is_words",
    "item_of",
    "named",
    "number",
    "same_digits",
    "section_of",
    "to_caption",
    "to_csv",
    "to_markdown",
    "with_shown",
    "write",
    "write_not_run",
]

"""What was measured, as small text files: tables and figures that cannot be computed on the spot are made from these, and from nothing else.

A record is a file `<name>.jsonl`. Its first line says what was run:

    {"kind": "record", "format": 1, "record": "fork", "title": "...", "facts": {...}, "environment": {...}}

and every other line is something that was measured, with its own `kind`. Which lines a record has is said by the module that writes it:

| record | written by | module |
|---|---|---|
| `run` | `pairgrad collect` | `pairgrad_paper.records.runs` |
| `fork` | `pairgrad fork` | `pairgrad_paper.forks` |
| `frozen` | `pairgrad frozen` | `pairgrad_paper.captured` |
| `states` | `pairgrad states` | `pairgrad_paper.captured` |
| `cost` | `pairgrad collect` | `pairgrad_paper.records.costs` |
| `times` | `pairgrad times` | `pairgrad_paper.tables.complexity` |

The records behind the documentation come with the package.

`files` reads and writes one, `store` a directory of them, `origin` says where one comes from, `versions` which of them may stand in one mean;
`runs` and `costs` make two of the kinds.
"""

from pairgrad_paper.records.costs import records_of_costs
from pairgrad_paper.records.files import Line, Record, RecordError, read, to_lines, write
from pairgrad_paper.records.origin import origin
from pairgrad_paper.records.runs import record_of_run
from pairgrad_paper.records.store import Records

__all__ = ["Line", "Record", "RecordError", "Records", "origin", "read", "record_of_run", "records_of_costs", "to_lines", "write"]

"""What was measured, as small text files: tables and figures that cannot be computed on the spot are made from these, and from nothing else.

A record is a file `<name>.jsonl`. Its first line says what was run:

    {"kind": "record", "format": 1, "record": "fork", "title": "...", "facts": {...}, "environment": {...}}

and every other line is something that was measured, with its own `kind`. Which lines a record has is said by the module that writes it:

| record | written by | module |
|---|---|---|
| `run` | `pairgrad collect` | `pairgrad.experiments.records.runs` |
| `fork` | `pairgrad fork` | `pairgrad.experiments.forks` |
| `frozen` | `pairgrad frozen` | `pairgrad.experiments.frozen` |
| `states` | `pairgrad states` | `pairgrad.experiments.frozen` |
| `cost` | `pairgrad collect` | `pairgrad.experiments.records.costs` |
| `times` | `pairgrad times` | `pairgrad.experiments.complexity` |

The records behind the documentation come with the package.

`files` reads and writes one, `store` a directory of them, `origin` says where one comes from; `runs` and `costs` make two of the kinds.
"""

from pairgrad.experiments.records.files import Line, Record, RecordError, read, write
from pairgrad.experiments.records.origin import origin
from pairgrad.experiments.records.store import Records

__all__ = ["Line", "Record", "RecordError", "Records", "origin", "read", "write"]

"""The commands that this distribution adds to `pairgrad`, through the entry-point group `pairgrad.commands`.

`listed` has them all, `run_commands` and `evidence_commands` their options. A module of the name of each command has what it runs, with `evaluation_tables`,
`show` (tables on a terminal), `progress` (of training), `output`, `completion` and `mistakes`. `demo` is the demonstration.
"""

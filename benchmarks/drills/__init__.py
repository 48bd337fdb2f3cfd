"""What breaks a run, done on purpose and counted: `python -m benchmarks.drills` writes docs/reliability.md.

`row` is what a drill yields: what was done, how often, what came of it, and how often it was wrong. The drills: `disk` (crashes and full disks at every
system call), `runs` (kills, stops, memory; `starved` is a process without any), `numbers` (against ball arithmetic) and `files` (mutated;
`kinds` has the files and their readers, `mutations` the changes). `page` makes the page of the rows.
"""

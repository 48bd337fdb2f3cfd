"""What breaks a run, done on purpose and counted: `python -m benchmarks.drills` writes docs/reliability.md.

`row` is what a drill yields: what was done, how often, what came of it, and how often it was wrong. `report` makes the page of the rows.
"""

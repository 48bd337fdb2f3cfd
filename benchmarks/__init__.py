"""Timings of pairgrad and of its peers; `python -m benchmarks.run` measures all of them and writes docs/benchmarks.md.

- `run` times `contestants` by `timing` and `import_time`; `report` writes the page, CSV files in `results`.
- `accuracy`, `coverage` and `mixture` are commands of their own, and so are the folders: `auditor`, `distributed`, `distribution`, `drills`, `learning` and
  `matter`.
- For all: `markdown` (tables), `progress` (on a terminal).

They import `pairgrad` and, for the zoo and the training loop of the auditor, `tests`.
"""

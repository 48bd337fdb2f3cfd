"""Losses on several ranks: time, bytes on the wire and memory.

`run` is the command; `cases` and `measure` with `job`, `ranks` and `network` make the `record` in benchmarks/results; `report` and `figure` make
docs/distributed-benchmarks.md from it.
"""

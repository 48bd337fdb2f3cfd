"""Tests of the studies.

`records_fakes` and `run_fakes` are small records, `made` makes every table once, `finite` and `printed` know the recurrence and the digits of the paper.
"""

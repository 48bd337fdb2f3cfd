"""VonMisesFisher beside scipy, TensorFlow Probability and two cheaper distributions: `python -m benchmarks.distribution`.

`run` is the command; `rows` times the calls of `contestants` on the inputs of `places` and judges their results by `judges`; `report` makes
docs/distribution-benchmarks.md from the record in benchmarks/results.
"""

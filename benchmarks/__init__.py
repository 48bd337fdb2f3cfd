"""Timings of pairgrad and of its peers; `python -m benchmarks.run` measures all of them and writes docs/benchmarks.md."""

"""Devices that this machine does not have: what the library does to them, found without one.

`fake_cuda` makes a CPU build of torch accept tensors that say "cuda", `recording` writes down what happens to them, `cases` and `counts` are what is run,
by `run_cases` in a process of its own.
"""

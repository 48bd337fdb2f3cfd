"""Tests of pairgrad.compat.

`criterion` is a small model of ProCo's public code, `checkpoints` the files it saves.
"""

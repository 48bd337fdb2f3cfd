"""Tests of the figures that are drawn from records. Those that are computed: tests/experiments/test_figures.py."""

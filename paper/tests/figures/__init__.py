"""Tests of the figures that are drawn from records. Those that are computed: paper/tests/test_figures.py."""

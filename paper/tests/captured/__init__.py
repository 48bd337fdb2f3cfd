"""Tests of pairgrad_paper.captured, on runs that take a second (`small`)."""

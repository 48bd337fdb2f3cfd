"""Tests of pairgrad_paper.training, on runs that take a second (`small`)."""

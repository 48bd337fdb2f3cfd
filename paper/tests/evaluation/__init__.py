"""Tests of pairgrad_paper.evaluation, on a run that takes a second (`small`)."""

"""Tests of pairgrad.experiments.evaluation, on a run that takes a second (`small`)."""

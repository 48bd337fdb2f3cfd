"""Tests of pairgrad.experiments.training, on runs that take a second (`small`)."""

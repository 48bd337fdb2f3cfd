"""Tests of pairgrad.experiments.frozen, on runs that take a second (`small`)."""

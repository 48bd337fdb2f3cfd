"""Tests of pairgrad.experiments.augment."""

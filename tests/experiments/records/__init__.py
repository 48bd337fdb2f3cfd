"""Tests of pairgrad.experiments.records."""

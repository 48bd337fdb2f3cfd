"""Tests of pairgrad.experiments.forks."""

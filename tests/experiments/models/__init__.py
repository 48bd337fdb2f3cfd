"""Tests of pairgrad.experiments.models."""

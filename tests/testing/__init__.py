"""Tests of pairgrad.testing and of the pytest plugin, on functions that are `broken` in one way each."""

"""Tests of pairgrad.sphere; `banks` has the public estimator in rational arithmetic."""

"""Theorems about the realizations, as functions that can be evaluated and checked."""

"""Tests of pairgrad.ground. Its arithmetics are tested through the formulas in tests/potentials."""

"""Tests of pairgrad.integrations; those of an adapter are skipped where its library is not installed."""

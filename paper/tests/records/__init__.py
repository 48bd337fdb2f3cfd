"""Tests of pairgrad_paper.records."""

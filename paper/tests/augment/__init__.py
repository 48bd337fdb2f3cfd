"""Tests of pairgrad_paper.augment."""

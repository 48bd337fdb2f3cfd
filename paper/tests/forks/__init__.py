"""Tests of pairgrad_paper.forks."""

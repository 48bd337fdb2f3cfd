"""Tests of pairgrad_paper.models."""

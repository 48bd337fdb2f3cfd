"""Tests of pairgrad.ood."""

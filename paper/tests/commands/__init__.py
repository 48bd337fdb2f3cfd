"""Tests of the commands that pairgrad-paper adds to `pairgrad`."""

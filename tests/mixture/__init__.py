"""Tests of pairgrad.mixture, on generated and real `data`."""

"""Tests of pairgrad.distributions; `angle_truth` knows the law of the angle without the library."""

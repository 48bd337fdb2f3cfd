"""Tests of recorded training steps: the loss of one step is computed again, as a function of its parameters."""

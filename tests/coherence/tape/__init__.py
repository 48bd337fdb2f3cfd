"""Tests of the tape, which computes a step of training again: `pairgrad.coherence.tape` and `step`."""

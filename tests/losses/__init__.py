"""Tests of pairgrad.losses.

`sequence` does step by step what the losses do at once; `problem` and `bank_losses` are evaluations to compare; `largest` watches what is allocated.
"""

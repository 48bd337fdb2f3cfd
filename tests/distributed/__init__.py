"""Tests of pairgrad.distributed, on processes of this machine that `ranks` starts."""

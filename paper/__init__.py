"""The laboratory of the paper: the distribution `pairgrad-paper` in `src`, and its tests."""

"""Tests of pairgrad.experiments.report, with a catalogue of `fakes`."""

"""Tests of pairgrad_paper.report, with a catalogue of `fakes`."""

"""Tests of the page of a report: `pairgrad.coherence.report.page`."""

"""Pairs of right and broken functions, written from a list of kinds alone, without knowing how the auditor works (kinds 1 to 15)."""

from tests.coherence.zoo.independent import kinds_1_to_4, kinds_5_to_8, kinds_9_to_15

SPECIMENS = (*kinds_1_to_4.SPECIMENS, *kinds_5_to_8.SPECIMENS, *kinds_9_to_15.SPECIMENS)

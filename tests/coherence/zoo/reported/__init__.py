"""Pairs of right and broken functions after public bug reports: each note names the reports. The functions are our own, small ones with the same mistake."""

from tests.coherence.zoo.reported import layouts_and_precision, losses, matrices_and_second_order, sequences, transforms

SPECIMENS = (
    *layouts_and_precision.SPECIMENS,
    *losses.SPECIMENS,
    *sequences.SPECIMENS,
    *matrices_and_second_order.SPECIMENS,
    *transforms.SPECIMENS,
)

"""Causes and consequences of a defect: `consequences`, by `nodes` (single Functions), `consistent` (the gradient that belongs to the forward), `field`, `fork`
and `picture`.
"""

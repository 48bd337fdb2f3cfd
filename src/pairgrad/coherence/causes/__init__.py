"""Causes and consequences of a defect: `consequences`, by `nodes` (single Functions) and `recorder` (which visits of them are kept), `consistent` (the gradient
that belongs to the forward), `field`, `fork` and `picture`.
"""

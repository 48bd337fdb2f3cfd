"""Pairs of right and broken functions of kinds that the independent half has less of, written by those who know how the auditor works.

Some of the right ones are declared with `intended`; the broken ones next to them make the same mistake undeclared, or declare something else than they do.
"""

from tests.coherence.zoo.ours import (
    cotangents,
    factors_and_declarations,
    intents_operators_modules,
    near_the_input,
    numbers_and_layouts,
    places_and_state,
    transforms_and_precision,
)

SPECIMENS = (
    *intents_operators_modules.SPECIMENS,
    *places_and_state.SPECIMENS,
    *numbers_and_layouts.SPECIMENS,
    *cotangents.SPECIMENS,
    *near_the_input.SPECIMENS,
    *factors_and_declarations.SPECIMENS,
    *transforms_and_precision.SPECIMENS,
)
HALF_SPECIMENS = (*numbers_and_layouts.HALF_SPECIMENS, *transforms_and_precision.HALF_SPECIMENS)

"""Potentials."""

from __future__ import annotations

import torch

import pairgrad as pg
from tests.hostile.calls.given import (
    ANY_SHAPE,
    ANYWHERE,
    DIM,
    ENTRIES,
    LENGTHS,
    ON_META,
    add,
    arg,
)
from tests.hostile.engine import Entry
from tests.hostile.values import (
    CHOICE,
    DTYPE,
    NONNEGATIVE,
    integer,
    number,
    reals,
)

POTENTIAL = pg.potential(dim=8)
X = torch.tensor([[0.0, 0.3, 2.0], [9.0, 40.0, 1e4]], dtype=torch.float64)


def _elementwise(method: str) -> Entry:
    # any shape and any real number is an argument here; NaN in, NaN out
    return Entry(
        f"Potential.{method}", getattr(POTENTIAL, method), {"x": arg(X, ANYWHERE)}, nonfinite=True, takes={"x": ANY_SHAPE | ON_META}
    )


_METHODS = ("value", "slope", "pair", "curvature", "derivative", "defect", "complement", "deficit", "legendre")
ENTRIES.extend(_elementwise(method) for method in _METHODS)
for _method, _second in (("bregman", "b"), ("difference", "b"), ("secant", "b"), ("increment", "squared")):
    add(
        f"Potential.{_method}",
        getattr(POTENTIAL, _method),
        {"a": arg(X, ANYWHERE, _second), _second: arg(X + 1, ANYWHERE, "a")},
        nonfinite=True,
        takes={"a": ANY_SHAPE, _second: ANY_SHAPE},
    )
_CONCENTRATION = reals(ranks=False, rows=False, nan=True, wide=False)
add(
    "Potential.concentration",
    POTENTIAL.concentration,
    {"resultant_length": arg(LENGTHS, _CONCENTRATION), "method": arg("newton", CHOICE)},
    nonfinite=True,
    takes={"resultant_length": ANY_SHAPE | ON_META},
)
add(
    "Potential.concentration(complement)",
    POTENTIAL.concentration,
    {"resultant_length": arg(LENGTHS, _CONCENTRATION), "complement": arg(1 - LENGTHS, ANYWHERE.or_none(), "resultant_length")},
    nonfinite=True,
    takes={"resultant_length": ANY_SHAPE, "complement": ANY_SHAPE},
)
for _method in ("ratio_bound", "formulas", "ratio_certificate", "compute_dtype"):
    add(f"Potential.{_method}", getattr(POTENTIAL, _method), {"dtype": arg(torch.float64, DTYPE)}, nonfinite=True)
add("potential", pg.potential, {"dim": arg(8, DIM, "nu"), "realization": arg("paired", CHOICE), "order": arg("auto", CHOICE)})
# orders with a thousand digits behind the point are taken, and take their time
add(
    "potential(nu)",
    lambda nu: (isinstance(nu, float) and nu == 5e-324) or pg.potential(nu=nu).offset,
    {"nu": arg(2.5, number(lambda v: 0 <= v <= 1e9), "dim")},
)
add("potential(arfr)", lambda order: pg.potential(8, "arfr", order).offset, {"order": arg(2, integer(0, 64))})
for _realization in ("original", "log-miller", "consistent"):
    _options = {"start": arg(6, integer(4, 10**6).or_none()), "clip": arg(0.5, NONNEGATIVE.or_none()), "epsilon": arg(1e-6, NONNEGATIVE)}
    _takes = {r.name: r.options for r in pg.realizations()}[_realization]
    add(
        f"potential({_realization})",
        lambda _realization=_realization, **options: pg.potential(8, _realization, **options).value(X.abs()),
        {name: value for name, value in _options.items() if name in _takes},
        nonfinite=True,
        takes={"clip": ("True", "False")},
    )

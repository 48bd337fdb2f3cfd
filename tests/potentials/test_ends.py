"""The ends of the range: every function of `"paired"` as accurate as documented, from the smallest subnormal number to infinity.

`fuzz` draws arguments from the whole range (`tests.potentials.ends`) and compares with ball arithmetic, element by element.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import pairgrad as pg
from tests.potentials.ends import ONE_POINT, TWO_POINT, WAYS, draw, draw_dim, failures

DTYPES = (torch.float64, torch.float32)
QUANTITIES = ONE_POINT + TWO_POINT
BATCH = 61  # neither all in vector registers nor all out of them


def fuzz(quantity: str, dtype: torch.dtype, calls: int, seed: int) -> None:
    rng = np.random.default_rng((seed, QUANTITIES.index(quantity), DTYPES.index(dtype)))
    found = []
    for i in range(-(-calls // BATCH)):
        dim = draw_dim(rng)
        found += failures(quantity, dtype, dim, *draw(rng, quantity, dim, dtype, BATCH), way=WAYS[i % len(WAYS)])
    rows = "\n".join(
        f"  dim {f.dim} at {f.points}: got {f.got!r}, expected {f.expected!r}, {f.error:.3g} times the error allowed"
        for f in sorted(found, key=lambda f: -f.error)[:8]
    )
    assert not found, f"{quantity} in {dtype}: {len(found)} of {calls} calls are not as accurate as documented\n{rows}"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("quantity", QUANTITIES)
def test_some_calls(quantity: str, dtype: torch.dtype) -> None:
    fuzz(quantity, dtype, 400, seed=0)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("quantity", QUANTITIES)
def test_a_million_calls_of_all_functions_together(quantity: str, dtype: torch.dtype) -> None:
    fuzz(quantity, dtype, 40_000, seed=1)


# quantity, dtype, dim, arguments: each was wrong once
STATES = [
    ("value", torch.float32, 3615, (3.316e-17,)),
    ("value", torch.float64, 39156, (5.094e-154,)),
    ("secant", torch.float32, 35, (1.18549e-19, 1.18554e-19)),
    ("secant", torch.float64, 48, (1.1719118320487495e-160, 1.9748560550867902e-163)),
    ("secant", torch.float32, 6, (-1.1383e37, math.inf)),
    ("difference", torch.float32, 15005, (-3.9221e-19, 6e-43)),
    ("difference", torch.float64, 6730, (1.9033570537674644e-149, 1.9033570537674646e-149)),
    ("deficit", torch.float32, 39156, (5.7916e-42,)),
    ("deficit", torch.float64, 10029, (-2.2250738585072014e-308,)),
    ("legendre", torch.float32, 2743, (8.4072e-20,)),
    ("legendre", torch.float64, 52, (math.inf,)),
    ("legendre", torch.float32, 2, (-math.inf,)),
    ("bregman", torch.float64, 64, (1e168, 1.01e168)),
    ("bregman", torch.float64, 52, (3.525939910894767e159, 3.525939910894768e159)),
    ("bregman", torch.float32, 213, (1.7906e36, 1.7906003e36)),
    ("bregman", torch.float64, 2743, (1.1177849944732429e254, 4.1855642096804715e253)),
    ("increment", torch.float64, 8, (1.0, math.inf)),
    ("increment", torch.float64, 8, (math.inf, 5.0)),
    ("increment", torch.float64, 33, (5.215268548218273e232, -1.180755764356003e300)),
    ("increment", torch.float32, 25, (3.94e16, torch.finfo(torch.float32).max)),
    ("increment", torch.float32, 39156, (1.0, 1e-33)),
    ("concentration", torch.float32, 16, (1e-30,)),
    ("concentration", torch.float64, 64, (-1e-320,)),
    ("concentration from complement", torch.float64, 64, (1e-300,)),
]


@pytest.mark.parametrize(("quantity", "dtype", "dim", "arguments"), STATES, ids=str)
def test_states_that_were_wrong(quantity: str, dtype: torch.dtype, dim: int, arguments: tuple[float, ...]) -> None:
    points = [torch.full((16,), x, dtype=dtype) for x in arguments]
    for way in WAYS:
        assert not failures(quantity, dtype, dim, *points, way=way), way


def test_gradients_at_infinity() -> None:
    x = torch.tensor([math.inf, -math.inf], dtype=torch.float64, requires_grad=True)
    for dim in (2, 64):
        (slope,) = torch.autograd.grad(pg.potential(dim).legendre(x).sum(), x)
        assert slope.tolist() == [0.0, 0.0]  # of x R'(x), which falls like 1 / x


@pytest.mark.parametrize("name", ["paired", "arfr"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_near_zero_a_value_is_that_of_its_own_slope(name: str, dtype: torch.dtype) -> None:
    """x slope(x) / 2, for every expansion, whatever its order: the first term of the series is that of the formula, not of the exact function."""
    info = torch.finfo(dtype)
    x = info.smallest_normal**0.5 * torch.logspace(0.5, 3, 60, dtype=dtype)
    for options in ({"order": 2}, {"order": 3}, {"order": 3, "shift": 2}):
        if name == "arfr" and "shift" in options:
            continue
        pot = pg.potential(9, name, **options)
        want = x / 2 * pot.slope(x)
        torch.testing.assert_close(pot.difference(torch.zeros_like(x), x), want, rtol=16 * info.eps, atol=0)
        torch.testing.assert_close(pot.increment(torch.zeros_like(x), x * x), want, rtol=16 * info.eps, atol=0)

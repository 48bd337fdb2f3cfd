"""VonMisesFisher beside scipy and TensorFlow Probability: `python -m benchmarks.distribution [--quick] [--output PAGE]`.

Draws, densities, entropies and fits, float64, on one thread. Per cell the time, its ratio to pairgrad's, and what the result is worth: a peer that is
fast and returns infinity is not fast. All contestants of a cell take turns in one process; times are medians.
"""

from __future__ import annotations

import argparse
import importlib
import math
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import torch

import pairgrad as pg
from benchmarks.contestants import restrict_jax
from benchmarks.timing import Call, Measurement, Samples, interleaved, once
from pairgrad.ground.balls import flint, working_precision
from pairgrad.ground.files import write_atomically
from pairgrad.ground.timing import machine_line
from pairgrad.potentials.reference import Balls

PAGE = Path(__file__).resolve().parent.parent / "docs" / "distribution-benchmarks.md"
PAIRGRAD, SCIPY, TFP = "pairgrad", "scipy", "TFP"
CONTESTANTS = (PAIRGRAD, SCIPY, TFP)
SAMPLE, LOG_PROB, ENTROPY, FIT = "sample", "log_prob", "entropy", "fit"
# (dimension, concentration, number of directions); at p = 512 and 4096, concentrations for which the cosine is small and classic formulas lose it
PLACES = ((3, 10.0, 10_000), (64, 32.0, 10_000), (512, 11.0, 1000), (4096, 64.0, 1000))
FIT_PLACES = ((8, 4.0, 2000), (256, 128.0, 2000), (4096, 2048.0, 400))
ENTROPIES = 1000  # distributions of which the entropy is taken at once
_LONGEST = 5.0  # seconds; a call that takes longer is timed once and marked
_BITS = 300


@dataclass
class Cell:
    """What one contestant does in one row: times, what its result is worth, or why there is nothing."""

    samples: Samples = field(default_factory=Samples)
    verdict: str = ""
    note: str = ""


@dataclass
class Row:
    quantity: str
    dim: int
    kappa: float
    count: int
    cells: dict[str, Cell]


def _balls(dim: int) -> Balls:
    return Balls(Fraction(dim, 2) - 1, 40)


def _log_area(dim: int) -> Any:
    half = flint().arb(dim) / 2
    return flint().arb(2).log() + half * flint().arb.pi().log() - half.lgamma()


def roundings(got: float, wanted: Any, terms: Any) -> str:
    """The error in eps of the sum of the absolute values of the terms of the definition; or the kind of number it is."""
    if not math.isfinite(got):
        return f"**{got:g}**"
    with working_precision(_BITS):
        return f"{float(abs(flint().arb(got) - wanted) / terms) / np.finfo(np.float64).eps:.1f} eps"


def judge_log_prob(dim: int, kappa: float, mu: np.ndarray, x: np.ndarray, got: np.ndarray) -> str:
    """Of the first vector; the others differ by the product with it."""
    if not np.isfinite(got).all():
        return f"**{got[~np.isfinite(got)][0]:g}** in {np.mean(~np.isfinite(got)):.0%}"
    with working_precision(_BITS):
        arb = flint().arb
        k, value = arb(kappa), _balls(dim).difference_ball(arb(0), arb(kappa))
        cosine = arb(math.fsum(a * b for a, b in zip(mu.tolist(), x[0].tolist(), strict=True)))
        area = _log_area(dim)
        return roundings(float(got[0]), k * cosine - value - area, k * abs(cosine) + value + abs(area))


def judge_entropy(dim: int, kappa: float, got: float) -> str:
    with working_precision(_BITS):
        arb = flint().arb
        k, value, area = arb(kappa), _balls(dim).difference_ball(arb(0), arb(kappa)), _log_area(dim)
        product = k * _balls(dim).slope_ball(k)
        return roundings(got, area + value - product, abs(area) + value + product)


def judge_sample(dim: int, kappa: float, mu: np.ndarray, x: np.ndarray) -> str:
    """How many standard errors the mean cosine is away from R."""
    w = x @ mu
    if not np.isfinite(w).all():
        return f"**{np.mean(~np.isfinite(w)):.0%} not finite**"
    k = flint().arb(kappa)
    deviation = math.sqrt(float(_balls(dim).curvature_ball(k)) / len(w))
    return f"{(w.mean() - float(_balls(dim).slope_ball(k))) / deviation:+.1f} s.e."


def judge_fit(dim: int, x: np.ndarray, got: float) -> str:
    """The relative distance to the root of R(kappa) = |S| / n, by Newton's method in ball arithmetic."""
    if not math.isfinite(got):
        return f"**{got:g}**"
    total = torch.from_numpy(x).sum(0)
    r = math.sqrt(math.fsum(v * v for v in total.tolist())) / len(x)
    root = dim * r / (1 - r * r)
    for _ in range(30):
        k = flint().arb(root)
        root -= (float(_balls(dim).slope_ball(k)) - r) / float(_balls(dim).curvature_ball(k))
    error = abs(got / root - 1)
    return f"{got:.3g}, off by {error:.0e}" if error < 0.01 else f"**{got:.3g}** for {root:.3g}"


def _imported(name: str) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module(name)
    except (ImportError, AttributeError):
        return None


def calls(quantity: str, dim: int, kappa: float, mu: np.ndarray, x: np.ndarray) -> dict[str, Call | str]:
    """Per contestant a call that returns an array or number, or the reason why there is none."""
    found: dict[str, Call | str] = {PAIRGRAD: _pairgrad(quantity, kappa, mu, x)}
    stats = _imported("scipy.stats")
    found[SCIPY] = "not installed" if stats is None else _scipy(stats, quantity, kappa, mu, x)
    if quantity == FIT:
        found[TFP] = "has no fit"
    else:
        jax, tfp = _imported("jax"), _imported("tensorflow_probability.substrates.jax")
        found[TFP] = "not installed" if jax is None or tfp is None else _tfp(jax, tfp, quantity, kappa, mu, x)
    return found


def _pairgrad(quantity: str, kappa: float, mu: np.ndarray, x: np.ndarray) -> Call:
    directions, generator = torch.from_numpy(x), torch.Generator().manual_seed(0)
    vmf = pg.VonMisesFisher(torch.from_numpy(mu), kappa, validate_args=False)
    ways: dict[str, Call] = {
        SAMPLE: lambda: vmf.sample((len(x),), generator).numpy(),
        LOG_PROB: lambda: vmf.log_prob(directions).numpy(),
        ENTROPY: lambda: pg.VonMisesFisher(torch.from_numpy(mu), torch.from_numpy(spread(kappa)), validate_args=False).entropy().numpy(),
        FIT: lambda: pg.VonMisesFisher.fit(directions).concentration.item(),
    }
    return ways[quantity]


def _scipy(stats: Any, quantity: str, kappa: float, mu: np.ndarray, x: np.ndarray) -> Call:
    generator = np.random.default_rng(0)
    vmf = stats.vonmises_fisher(mu, kappa)
    ways: dict[str, Call] = {
        SAMPLE: lambda: vmf.rvs(len(x), random_state=generator),
        LOG_PROB: lambda: vmf.logpdf(x),
        ENTROPY: lambda: np.array([stats.vonmises_fisher(mu, k).entropy() for k in spread(kappa)]),  # it takes one concentration at a time
        FIT: lambda: float(stats.vonmises_fisher.fit(x)[1]),
    }
    return _quiet(ways[quantity])


def _tfp(jax: Any, tfp: Any, quantity: str, kappa: float, mu: np.ndarray, x: np.ndarray) -> Call:
    jax.config.update("jax_enable_x64", True)
    vmf = tfp.distributions.VonMisesFisher(jax.numpy.asarray(mu), np.float64(kappa))
    directions, keys = jax.numpy.asarray(x), iter(range(10**9))
    drawn = jax.jit(lambda key: vmf.sample(len(x), seed=key))
    density, entropy = jax.jit(vmf.log_prob), jax.jit(lambda k: tfp.distributions.VonMisesFisher(jax.numpy.asarray(mu), k).entropy())
    ways: dict[str, Call] = {
        SAMPLE: lambda: np.asarray(drawn(jax.random.PRNGKey(next(keys)))),
        LOG_PROB: lambda: np.asarray(density(directions)),
        ENTROPY: lambda: np.asarray(entropy(spread(kappa))),
    }
    return _quiet(ways[quantity])


def _quiet(call: Call) -> Call:
    """Without the warnings of a peer about its own overflow: the table has them."""

    def silenced() -> object:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return call()

    return silenced


def spread(kappa: float) -> np.ndarray:
    """The concentrations whose entropies are taken: from kappa to twice that."""
    return kappa * np.linspace(1, 2, ENTROPIES)


def data(dim: int, kappa: float, count: int) -> tuple[np.ndarray, np.ndarray]:
    """A mean direction, and directions around it that every contestant gets."""
    generator = torch.Generator().manual_seed(dim)
    mu = torch.nn.functional.normalize(torch.randn(dim, dtype=torch.float64, generator=generator), dim=-1)
    return mu.numpy(), pg.VonMisesFisher(mu, kappa).sample((count,), generator).numpy()


def measure(quantity: str, dim: int, kappa: float, count: int, repeats: int, *, patient: bool) -> Row:
    """One row: every contestant's result is judged, then all are timed in turns. Without patience, known minutes are left out."""
    mu, x = data(dim, kappa, count)
    judges: dict[str, Callable[[Any], str]] = {
        SAMPLE: lambda got: judge_sample(dim, kappa, mu, got),
        LOG_PROB: lambda got: judge_log_prob(dim, kappa, mu, x, np.asarray(got)),
        ENTROPY: lambda got: judge_entropy(dim, kappa, float(got[0])),
        FIT: lambda got: judge_fit(dim, x, got),
    }
    row = Row(quantity, dim, kappa, count, {name: Cell() for name in CONTESTANTS})
    measurements: dict[str, Measurement] = {}
    for name, call in calls(quantity, dim, kappa, mu, x).items():
        cell = row.cells[name]
        if isinstance(call, str):
            cell.note = call
        elif not patient and (quantity, name) == (SAMPLE, SCIPY) and dim > 1000:
            cell.note = "takes 20 s and more"  # it rotates by a dense matrix, in time proportional to p^3
        else:
            first = []
            seconds = once(lambda c=call, r=first: r.append(c()))
            cell.verdict = judges[quantity](first[0])
            if seconds > _LONGEST and name == SCIPY:
                cell.samples.seconds.append(seconds)
                cell.note = "one call"
            else:
                measurements[name] = Measurement(call, repeats, warmups=1)
    interleaved(measurements, {name: cell.samples for name, cell in row.cells.items()})
    return row


def _time(cell: Cell, base: float) -> str:
    if not cell.samples.seconds:
        return cell.note
    median = cell.samples.median
    note = f" ({cell.note})" if cell.note else ""
    return f"{1000 * median:.3g} ms, {median / base:.2g}×{note}"


def table(rows: list[Row]) -> str:
    lines = [
        "| | p | κ | n | pairgrad | scipy | TFP | result: pairgrad | scipy | TFP |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        own = row.cells[PAIRGRAD].samples.median
        times = [f"{1000 * own:.3g} ms", *(_time(row.cells[name], own) for name in CONTESTANTS[1:])]
        verdicts = [row.cells[name].verdict or "–" for name in CONTESTANTS]
        lines.append(
            "| "
            + " | ".join(
                (row.quantity, str(row.dim), f"{row.kappa:g}", str(ENTROPIES if row.quantity == ENTROPY else row.count), *times, *verdicts)
            )
            + " |"
        )
    return "\n".join(lines)


def page(rows: list[Row], repeats: int, command: str) -> str:
    versions = [f"{name} {getattr(_imported(module), '__version__', 'missing')}" for name, module in _PACKAGES.items()]
    return f"""# VonMisesFisher beside scipy and TensorFlow Probability

Times of [`VonMisesFisher`][pairgrad.VonMisesFisher], `scipy.stats.vonmises_fisher` and the `VonMisesFisher` of TensorFlow Probability on JAX (compiled
ahead), for n directions (entropies: n concentrations from κ to 2 κ) in p dimensions in float64, with the ratio to pairgrad's time (above 1: pairgrad is
faster); and what the results are worth. Medians of {repeats} interleaved repetitions.

{table(rows)}

How results are judged: a **sample** by how many standard errors its mean cosine is away from the exact one, where a right sampler has
more than 4 once in 16,000 runs; **log_prob** (of the first direction) and **entropy** (of the first concentration) by their error against ball
arithmetic, in eps of the sum of the absolute values of the terms in their definition; a **fit** by its relative distance to the maximum of the
likelihood. Infinities, NaN and fits that are elsewhere stand in bold. TFP has no fit.

Where pairgrad is slower, that is mostly a fixed cost: its formulas are some hundred to a thousand small tensor operations in eager mode, more in few
dimensions, a millisecond or several per call whatever the number of elements. `torch.compile` removes most of it; in a loop over single numbers it
stays. A fit goes over the vectors twice, and log_prob forms x - μ, where its peers take one product: that is what keeps concentrated data right.

{machine_line()}; {", ".join(versions)}. Written by `{command}`.
"""


_PACKAGES = {"scipy": "scipy", "JAX": "jax", "TFP": "tensorflow_probability.substrates.jax"}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.distribution", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="three repetitions, without what takes scipy minutes")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--output", type=Path, default=PAGE, help="the page (%(default)s)")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    restrict_jax(1)
    repeats = 3 if options.quick else options.repeats
    rows = []
    places = [(quantity, *place) for quantity in (SAMPLE, LOG_PROB, ENTROPY) for place in PLACES] + [(FIT, *place) for place in FIT_PLACES]
    for quantity, dim, kappa, count in places:
        rows.append(measure(quantity, dim, kappa, count, repeats, patient=not options.quick))
        print(table(rows[-1:]).splitlines()[-1], file=sys.stderr, flush=True)
    command = f"python -m benchmarks.distribution{' --quick' if options.quick else ''}"
    write_atomically(options.output, page(rows, repeats, command))
    return 0


if __name__ == "__main__":
    sys.exit(main())

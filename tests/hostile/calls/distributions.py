"""Distributions and the mixture."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import torch
from sklearn.exceptions import ConvergenceWarning
from torch.nn.functional import normalize

import pairgrad as pg
from tests.hostile.calls.given import (
    DIM,
    UNIT,
    VALIDATE,
    B,
    P,
    add,
    arg,
    draw,
)
from tests.hostile.values import (
    CHOICE,
    DEVICE,
    DTYPE,
    FLAG,
    GENERATOR,
    NONNEGATIVE,
    SHAPE,
    STRANGE,
    integer,
    number,
    reals,
)

KAPPA = torch.tensor([0.0, 1.0, 3.0, 10.0, 1e3])


def _of_distribution(distribution: Any) -> list[Any]:
    generator = torch.Generator().manual_seed(0)
    moments = [distribution.mean, distribution.variance, distribution.covariance, distribution.entropy()]
    drawn = distribution.sample((3,), generator=generator)  # in another dtype other numbers are drawn
    return [*moments, drawn.shape, distribution.log_prob(distribution.mean_direction)]


def vmf() -> pg.VonMisesFisher:
    return pg.VonMisesFisher(UNIT, KAPPA)


add(
    "VonMisesFisher",
    lambda **arguments: _of_distribution(pg.VonMisesFisher(**arguments)),
    {
        "mean_direction": arg(UNIT, reals(rows=False), "concentration"),
        "concentration": arg(KAPPA, reals(low=0, scalars=True), "mean_direction"),
        "validate_args": arg(None, VALIDATE),
    },
    takes={
        "mean_direction": ("one more dimension in front", "one row"),
        "concentration": ("one row", "no dimension", "one more dimension in front", "one more dimension at the end"),
    },
)
add(
    "VonMisesFisher.log_prob",
    lambda value: vmf().log_prob(value),
    {"value": arg(normalize(draw(B, P, seed=9), dim=-1), reals(), "mean_direction")},
    takes={"value": ("one more dimension in front", "one row", "no dimension")},
)
for _name in ("sample", "rsample"):
    add(
        f"VonMisesFisher.{_name}",
        lambda _name=_name, **arguments: getattr(vmf(), _name)(**arguments),
        {"sample_shape": arg((2,), SHAPE), "generator": arg(None, GENERATOR.or_none())},
    )
    add(
        f"HypersphericalUniform.{_name}",
        lambda _name=_name, **arguments: getattr(pg.HypersphericalUniform(4), _name)(**arguments),
        {"sample_shape": arg((2,), SHAPE), "generator": arg(None, GENERATOR.or_none())},
    )
add("VonMisesFisher.expand", lambda batch_shape: vmf().expand(batch_shape).mean, {"batch_shape": arg((2, B), SHAPE)})
add(
    "HypersphericalUniform.expand",
    lambda batch_shape: pg.HypersphericalUniform(4).expand(batch_shape).mean,
    {"batch_shape": arg((2, B), SHAPE)},
)
add("VonMisesFisher.cross_entropy", lambda other: vmf().cross_entropy(other), {"other": arg(pg.HypersphericalUniform(P), STRANGE)})
add(
    "VonMisesFisher.fit",
    lambda **arguments: _of_fit(pg.VonMisesFisher.fit(**arguments)),
    {
        "x": arg(UNIT, reals(rows=False), "weights"),
        "weights": arg(torch.tensor([1.0, 2.0, 3.0, 1.0, 2.0]), reals(low=0, ints=True).or_none(), "x"),
        "estimator": arg("mle", CHOICE),
    },
    takes={"x": ("one more dimension in front",), "weights": ("one more dimension in front", "booleans", "float8")},
    rounding=True,  # few plain numbers go through NumPy, a subclass through torch: they differ by a rounding or two
)


def _of_fit(fitted: Any) -> list[Any]:
    return [fitted.mean_direction, fitted.concentration, *fitted.estimate]


add(
    "HypersphericalUniform",
    lambda **arguments: _uniform(**arguments),
    {
        "dim": arg(P, DIM),
        "dtype": arg(torch.float32, DTYPE.or_none()),
        "device": arg(None, DEVICE.or_none()),
        "validate_args": arg(None, VALIDATE),
    },
)


def _uniform(**arguments: Any) -> list[Any]:
    made = pg.HypersphericalUniform(**arguments)
    return [made.entropy(), made.mean if made.dim < 100 else None]


add(
    "HypersphericalUniform.log_prob",
    lambda value: pg.HypersphericalUniform(P).log_prob(value),
    {"value": arg(UNIT, reals(rows=False))},
    takes={"value": ("one more dimension in front", "no dimension")},
)


ROWS = draw(12, P, seed=10).double()
_WEIGHTS = torch.ones(12, dtype=torch.float64)


def mixture(**options: Any) -> Any:
    return pg.VMFMixture(**{"n_components": 2, "random_state": 0, "max_iter": 5, "tol": math.inf, **options})


def quiet(call: Callable[..., Any]) -> Callable[..., Any]:
    """Without the warnings of an EM that is stopped early."""

    def called(**arguments: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return call(**arguments)

    return called


def _of_mixture(model: Any) -> list[Any]:
    return [model.weights_, model.mean_directions_, model.concentrations_, model.log_likelihood_]


_MIXTURE = {
    "n_components": arg(2, integer(1, 12)),
    "e_step": arg("soft", CHOICE),
    "tied": arg(False, FLAG),
    "init": arg("k-means++", CHOICE),
    "n_init": arg(1, integer(1, 8)),
    "max_iter": arg(5, integer(1)),
    "tol": arg(1.0, number(lambda v: v >= 0)),
    "min_weight": arg(0.01, number(lambda v: 0 <= v < 0.5)),
    "max_concentration": arg(1e5, number(lambda v: 0 < v <= 1e30).or_none()),
    "normalize": arg(True, FLAG),
    "warm_start": arg(False, FLAG),
    "learning_decay": arg(0.7, number(lambda v: 0.5 < v <= 1)),
    "learning_offset": arg(10.0, NONNEGATIVE),
    "chunk_size": arg(4, integer(1).or_none()),
    "verbose": arg(0, integer(0)),
    "verbose_interval": arg(10, integer(1)),
}
add(
    "VMFMixture",
    quiet(lambda **options: _of_mixture(mixture(**options).fit(ROWS))),
    _MIXTURE,
    elsewhere=("sklearn",),
    takes={"verbose": ("True", "False")},
    unasked=("an integer tensor",),
)
_ROWS = reals(arrays=True, lists=True, ints=True, rows=False)
_TAKES = ("sparse", "sparse by rows", "transposed", "one column less", "booleans")
for _name in ("fit", "partial_fit", "fit_predict"):
    add(
        f"VMFMixture.{_name}",
        quiet(lambda _name=_name, **arguments: _fitted(_name, **arguments)),
        {
            "X": arg(ROWS, _ROWS, "x", "features", "feature", "sample", "n_samples", "Input"),
            "sample_weight": arg(_WEIGHTS, reals(low=0, arrays=True, lists=True, ints=True).or_none(), "Sample weights"),
        },
        elsewhere=("sklearn",),
        rounding=True,
        takes={"X": _TAKES, "sample_weight": ("booleans",)},
    )


def _fitted(name: str, **arguments: Any) -> list[Any]:
    model = mixture()
    getattr(model, name)(**arguments)
    return _of_mixture(model)


FITTED = mixture().fit(ROWS)
for _name in ("predict", "predict_proba", "score_samples", "score", "aic", "bic"):
    add(
        f"VMFMixture.{_name}",
        getattr(FITTED, _name),
        {"X": arg(ROWS, _ROWS, "x", "features", "feature", "sample", "n_samples", "Input")},
        elsewhere=("sklearn",),
        rounding=True,
        takes={"X": ("sparse", "sparse by rows", "booleans", "one row", "one row less")},
    )
add("VMFMixture.sample", FITTED.sample, {"n_samples": arg(2, integer(1, 10**6))})

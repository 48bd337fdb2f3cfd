"""Who is timed: per place a call of pairgrad and of each peer, or the reason why there is none."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch

import pairgrad as pg
from benchmarks.distribution.places import (
    BATCH,
    CONSTRUCTION,
    ENTROPY,
    ENTROPY_GRADIENT,
    FIT,
    KL,
    LOG_PROB,
    LOG_PROB_GRADIENT,
    SAMPLE,
    Given,
    Place,
)
from benchmarks.timing import Call

PAIRGRAD, SCIPY, TFP = "pairgrad", "scipy", "TFP"
POWER, VON_MISES = "power_spherical", "torch VonMises"
PEERS = (SCIPY, TFP)
CHEAPER = (POWER, VON_MISES)  # other distributions, whose formulas are simpler
MODULES = {
    SCIPY: ("scipy.stats",),
    TFP: ("tensorflow_probability.substrates.jax", "jax"),
    POWER: ("power_spherical",),
    VON_MISES: ("torch.distributions",),
}
NONE = "–"
_LACKS = {SCIPY: (LOG_PROB_GRADIENT, ENTROPY_GRADIENT, KL), TFP: (KL, FIT)}


@cache
def imported(name: str) -> Any:
    """A module, or None where it is not installed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module(name)
    except (ImportError, AttributeError):
        return None


def calls(place: Place, data: Given) -> dict[str, Call | str]:
    """Per contestant a call, or why there is none: `NONE` where the library has no such function."""
    found: dict[str, Call | str] = {PAIRGRAD: _pairgrad(place, data)}
    makers: dict[str, Callable[..., Call]] = {SCIPY: _scipy, TFP: _tfp, POWER: _power_spherical, VON_MISES: _von_mises}
    for name, make in makers.items():
        if name in CHEAPER and (place.quantity not in (SAMPLE, LOG_PROB) or (name == VON_MISES and place.dim != 2)):
            continue
        if place.quantity in _LACKS.get(name, ()):
            found[name] = NONE
        else:
            modules = [imported(module) for module in MODULES[name]]
            found[name] = "not installed" if None in modules else make(*modules, place, data)
    return found


def numbers(result: Any) -> Any:
    """What a call returned as an array, or a value and its gradients as a tuple of arrays."""
    if isinstance(result, tuple):
        value, *gradients = result
        parts = gradients[0] if isinstance(gradients[0], tuple) else gradients
        return tuple(numbers(part) for part in (value, *parts))
    return result.detach().numpy() if isinstance(result, torch.Tensor) else np.asarray(result)


def _tensor(value: Any) -> Any:
    return torch.from_numpy(value) if isinstance(value, np.ndarray) else value


def _pairgrad(place: Place, data: Given) -> Call:
    mu, kappa, x, generator = _tensor(data.mu), _tensor(data.kappa), _tensor(data.x), torch.Generator().manual_seed(0)

    def make() -> pg.VonMisesFisher:
        return pg.VonMisesFisher(mu, kappa)

    kept = make()
    law: Callable[[], pg.VonMisesFisher] = make if place.fresh else lambda: kept
    if place.quantity in (LOG_PROB_GRADIENT, ENTROPY_GRADIENT):
        kappa = torch.as_tensor(kappa, dtype=mu.dtype).clone().requires_grad_()
    if place.quantity == LOG_PROB_GRADIENT:
        mu.requires_grad_()
        x.requires_grad_()
    other = pg.VonMisesFisher(_tensor(data.other_mu), _tensor(data.other_kappa))
    ways: dict[str, Call] = {
        CONSTRUCTION: make,
        SAMPLE: lambda: law().sample((place.count,), generator),
        LOG_PROB: lambda: law().log_prob(x),
        LOG_PROB_GRADIENT: lambda: _with_gradient(make().log_prob(x).sum(), (x, mu, kappa)),
        ENTROPY: lambda: law().entropy(),
        ENTROPY_GRADIENT: lambda: _with_gradient(make().entropy().sum(), (kappa,)),
        KL: lambda: torch.distributions.kl_divergence(law(), other),
        FIT: lambda: pg.VonMisesFisher.fit(x).concentration,
        BATCH: lambda: law().log_prob(x),
    }
    return ways[place.quantity]


def _with_gradient(value: torch.Tensor, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return value, *torch.autograd.grad(value, inputs)


def _scipy(stats: Any, place: Place, data: Given) -> Call:
    generator = np.random.default_rng(0)
    mu, x, law = data.mu, data.x, stats.vonmises_fisher
    if isinstance(data.kappa, np.ndarray):  # it takes one mean direction and one concentration
        return _scipy_batch(law, place, data)
    kappa = data.kappa
    kept = law(mu, kappa)
    ways: dict[tuple[str, bool], Call] = {
        (CONSTRUCTION, True): lambda: law(mu, kappa),
        (SAMPLE, False): lambda: kept.rvs(place.count, random_state=generator),
        (LOG_PROB, False): lambda: kept.logpdf(x),
        (LOG_PROB, True): lambda: law(mu, kappa).logpdf(x),
        (ENTROPY, False): kept.entropy,
        (ENTROPY, True): lambda: law(mu, kappa).entropy(),
        (FIT, True): lambda: law.fit(x)[1],
    }
    return ways[place.quantity, place.fresh]


def _scipy_batch(law: Any, place: Place, data: Given) -> Call:
    kappas = data.kappa.tolist()  # type: ignore[union-attr]
    mus = list(data.mu) if data.mu.ndim == 2 else [data.mu] * len(kappas)
    given, x = list(zip(mus, kappas, strict=True)), data.x
    kept = [law(*parameters) for parameters in given]
    ways: dict[tuple[str, bool], Call] = {
        (CONSTRUCTION, True): lambda: [law(*parameters) for parameters in given],
        (ENTROPY, True): lambda: [law(*parameters).entropy() for parameters in given],
        (BATCH, False): lambda: [one.logpdf(row) for one, row in zip(kept, x, strict=True)],
        (BATCH, True): lambda: [law(*parameters).logpdf(row) for parameters, row in zip(given, x, strict=True)],
    }
    return ways[place.quantity, place.fresh]


def _tfp(tfp: Any, jax: Any, place: Place, data: Given) -> Call:
    """Compiled: of an object made before, the parameters are constants of the program; of one made in the call they are its arguments."""
    jax.config.update("jax_enable_x64", place.dtype == "float64")  # else some results in float32 are computed in float64
    law, wait = tfp.distributions.VonMisesFisher, jax.block_until_ready
    mu, kappa, x = (jax.numpy.asarray(v, dtype=place.dtype) for v in (data.mu, data.kappa, data.x))
    kept, keys = law(mu, kappa), [jax.random.PRNGKey(0)]

    def draw(key: Any) -> tuple[Any, Any]:
        following, key = jax.random.split(key)
        return following, kept.sample(place.count, seed=key)

    def drawn() -> Any:
        keys[0], sample = compiled(keys[0])
        return wait(sample)

    functions: dict[tuple[str, bool], tuple[Callable[..., Any], tuple[Any, ...]]] = {
        (SAMPLE, False): (draw, ()),
        (LOG_PROB, False): (kept.log_prob, (x,)),
        (LOG_PROB, True): (lambda x, m, k: law(m, k).log_prob(x), (x, mu, kappa)),
        (LOG_PROB_GRADIENT, True): (jax.value_and_grad(lambda x, m, k: law(m, k).log_prob(x).sum(), argnums=(0, 1, 2)), (x, mu, kappa)),
        (ENTROPY, False): (kept.entropy, ()),
        (ENTROPY, True): (lambda m, k: law(m, k).entropy(), (mu, kappa)),
        (ENTROPY_GRADIENT, True): (jax.value_and_grad(lambda k, m: law(m, k).entropy().sum()), (kappa, mu)),
        (BATCH, False): (kept.log_prob, (x,)),
        (BATCH, True): (lambda x, m, k: law(m, k).log_prob(x), (x, mu, kappa)),
    }
    if place.quantity == CONSTRUCTION:
        return lambda: law(mu, kappa)
    function, arguments = functions[place.quantity, place.fresh]
    compiled = jax.jit(function)
    return drawn if place.quantity == SAMPLE else lambda: wait(compiled(*arguments))


def _power_spherical(module: Any, place: Place, data: Given) -> Call:
    mu, x = _tensor(data.mu), _tensor(data.x)
    kappa = torch.tensor(data.kappa, dtype=mu.dtype)
    kept, shape = module.PowerSpherical(mu, kappa), torch.Size((place.count,))
    law = (lambda: module.PowerSpherical(mu, kappa)) if place.fresh else lambda: kept
    return (lambda: law().sample(shape)) if place.quantity == SAMPLE else lambda: law().log_prob(x)


def _von_mises(module: Any, place: Place, data: Given) -> Call:
    """Of angles, not of vectors."""
    mu, x = (torch.atan2(v[..., 1], v[..., 0]) for v in (_tensor(data.mu), _tensor(data.x)))
    kappa = torch.tensor(data.kappa, dtype=mu.dtype)
    kept, shape = module.VonMises(mu, kappa), torch.Size((place.count,))
    law = (lambda: module.VonMises(mu, kappa)) if place.fresh else lambda: kept
    return (lambda: law().sample(shape)) if place.quantity == SAMPLE else lambda: law().log_prob(x)

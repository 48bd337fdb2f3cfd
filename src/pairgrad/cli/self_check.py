"""What `pairgrad doctor` tries out: each check says what it saw, or raises."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

import pairgrad as pg
from pairgrad.coherence.judge.verdict import Verdict
from pairgrad.ground.balls import flint

# Largest relative errors of value and slope that are documented (docs/accuracy.md), at every dimension from 8 on.
DOCUMENTED = {torch.float64: 1.2e-15, torch.float32: 4e-7}
# At dim 3 there are closed forms, which need no extra; they are themselves evaluated in double precision, with a few roundings.
_AT_DIM_3 = {torch.float64: 4e-15, torch.float32: 7e-7, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-10}
_POINTS = (1.0, 2.5, 8.0, 40.0)


class Skipped(Exception):
    """A check that needs something that is not installed."""


def usable_dtypes(device: torch.device) -> dict[str, tuple[bool, str]]:
    """Whether value, slope and backward are right on a device, by dtype: against log(sinh(x) / x) and its derivative, at dim 3."""
    return {str(dtype).removeprefix("torch."): _usable(device, dtype, bound) for dtype, bound in _AT_DIM_3.items()}


def _usable(device: torch.device, dtype: torch.dtype, bound: float) -> tuple[bool, str]:
    values = torch.tensor([math.log(math.sinh(x) / x) for x in _POINTS], dtype=torch.float64)
    slopes = torch.tensor([1 / math.tanh(x) - 1 / x for x in _POINTS], dtype=torch.float64)
    try:
        x = torch.tensor(_POINTS, dtype=dtype, device=device, requires_grad=True)
        value = pg.potential(3).value(x)
        value.sum().backward()
        assert x.grad is not None
        error = max(_error(value, values), _error(x.grad, slopes))
    except (RuntimeError, TypeError) as reason:
        return False, str(reason).splitlines()[0]
    note = " (computed in float32)" if dtype in (torch.bfloat16, torch.float16) else ""
    return error <= bound, note if error <= bound else f"off by {error:.1e}"


def _error(found: torch.Tensor, exact: torch.Tensor) -> float:
    """The largest one, relative."""
    return float(((found.detach().cpu().double() - exact) / exact).abs().max())


def _need_balls() -> None:
    try:
        flint()
    except ImportError:
        raise Skipped("needs ball arithmetic: pip install 'pairgrad[reference]'") from None


def values_and_slopes() -> str:
    """Against ball arithmetic, in both dtypes."""
    _need_balls()
    worst = dict.fromkeys(DOCUMENTED, 0.0)
    for dim in (8, 128, 4096):
        exact, ours = pg.potential(dim, "reference"), pg.potential(dim)
        for dtype, bound in DOCUMENTED.items():
            x = (dim / 2 - 1) * torch.tensor([1e-6, 1e-2, 0.5, 3.0, 64.0, 1e4], dtype=dtype)
            errors = {
                "slope": _error(ours.slope(x), exact.slope(x.double())),
                "difference": _error(ours.difference(x, 2 * x), exact.difference(x.double(), 2 * x.double())),
            }
            for name, error in errors.items():
                if not error <= bound:
                    raise ArithmeticError(f"{name} at dim {dim} in {dtype} is off by {error:.1e}, relative; {bound:.1e} is documented")
                worst[dtype] = max(worst[dtype], error)
    words = (f"{str(dtype).removeprefix('torch.')} within {error:.1e}" for dtype, error in worst.items())
    return f"slope and differences, {', '.join(words)}"


def derivatives() -> str:
    """The backward hands out the slope, the second backward the curvature."""
    pot, x = pg.potential(512), torch.logspace(-1, 5, 25, dtype=torch.float64).requires_grad_()
    (first,) = torch.autograd.grad(pot.value(x).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    if not torch.equal(first, pot.slope(x)):
        raise ArithmeticError("the backward of value is not slope")
    if not torch.allclose(second, pot.curvature(x.detach()), rtol=1e-12, atol=0):
        raise ArithmeticError("the second backward of value is not curvature")
    return "backward is the slope, bit for bit; the second one the curvature"


def learning_step() -> str:
    """A ProCo step in float32 beside the same in float64."""
    gradients = [_proco_gradient(dtype, lambda loss: loss) for dtype in (torch.float64, torch.float32)]
    return f"float32 gradient within {_close(gradients[0], gradients[1], 1e-5):.1e} of float64"


def compiled_step() -> str:
    """The same through torch.compile."""
    gradients = [_proco_gradient(torch.float32, wrap) for wrap in (lambda loss: loss, pg.compile)]
    return f"compiled gradient within {_close(gradients[0].double(), gradients[1], 1e-5):.1e} of eager"


def _proco_gradient(dtype: torch.dtype, wrap: Callable[[torch.nn.Module], Callable[..., torch.Tensor]]) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    loss = pg.ProCoLoss(num_classes=20, dim=64, class_counts=[100 - 4 * k for k in range(20)], dtype=dtype)
    views = torch.randn(2, 40, 64, dtype=torch.float64, generator=generator)
    views = torch.nn.functional.normalize(views, dim=-1).to(dtype).requires_grad_()
    labels = torch.arange(40) % 20  # every class: those that were not seen begin at random
    wrap(loss)(views, labels).backward()
    assert views.grad is not None
    return views.grad


def _close(exact: torch.Tensor, found: torch.Tensor, bound: float) -> float:
    error = float((found.double() - exact).norm() / exact.norm())
    if not error <= bound:
        raise ArithmeticError(f"gradients are {error:.1e} apart, relative; at most {bound:.0e} was expected")
    return error


def auditor() -> str:
    """It accuses the system that the paper diagnoses and acquits the cure."""
    x = torch.tensor([64 * 63.0], dtype=torch.float64)
    verdicts = {}
    for name in ("original", "paired"):
        verdicts[name] = pg.audit(pg.potential(128, name).value, x, effort="quick", second_order=False, consequences=False).verdict
    if verdicts != {"original": Verdict.INCOHERENT, "paired": Verdict.COHERENT}:
        raise ArithmeticError(f"verdicts: {', '.join(f'{name} {verdict.value}' for name, verdict in verdicts.items())}")
    return "'original' is incoherent, 'paired' coherent"


def certificate() -> str:
    """The error bound of the paper's order, proven again."""
    from pairgrad.certificates import ratio

    _need_balls()
    if not ratio.prove_order("centred", 2).holds:
        raise ArithmeticError("the proof of order 2 fails")
    return "error bound of order 2 proven, for all x and nu"


def sampling() -> str:
    """The mean of samples beside the expected one, which is the Bessel ratio."""
    dim, kappa, number = 16, 20.0, 4000
    mean = torch.nn.functional.one_hot(torch.tensor(0), dim).double()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        samples = pg.VonMisesFisher(mean, torch.tensor(kappa, dtype=torch.float64)).sample((number,))
    pot, x = pg.potential(dim), torch.tensor(kappa, dtype=torch.float64)
    away = float((samples[:, 0].mean() - pot.slope(x)) / (pot.curvature(x) / number).sqrt())
    if not abs(away) < 5:
        raise ArithmeticError(f"the mean of {number} samples is {away:.1f} standard errors away")
    return f"mean of {number} samples {abs(away):.1f} standard errors away"


CHECKS: dict[str, Callable[[], str]] = {
    "potential": values_and_slopes,
    "derivatives": derivatives,
    "learning step": learning_step,
    "sampling": sampling,
    "certificate": certificate,
    "auditor": auditor,
}
COMPILED: dict[str, Callable[[], str]] = {"torch.compile": compiled_step}

"""What `pairgrad doctor --device` tries out: each check computes on the device and on the CPU, says how far apart they are, or raises."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch.nn.functional import normalize

import pairgrad as pg
from pairgrad.cli.self_check import DOCUMENTED, Skipped
from pairgrad.ground.devices import HOST, graph_of, kind, random_seed_kept, refusing_to_wait, widest
from pairgrad.losses.fused.triton import runs_on

_CLASSES, _DIM, _BATCH = 20, 64, 40
_COUNTS = [100 - 4 * k for k in range(_CLASSES)]
_REALIZATIONS = ("paired", "arfr", "log-bessel", "scott", "original", "consistent", "log-miller")
_ACCURATE = ("paired", "arfr")  # in float32 as well; the others cancel there, or compute in float64
_DOUBLE_ONLY = ("original", "consistent", "log-miller")
_SCORES = 5e-6  # documented, absolute (docs/learning-accuracy.md)
_STEP = 1e-5  # of losses and gradients in float32, relative
_TF32 = 2e-3  # likewise, with products in TF32
Results = dict[str, torch.Tensor]


def checks_on(device: torch.device, compiled: bool) -> dict[str, Callable[[], str]]:
    """The checks, by name."""
    checks: dict[str, Callable[..., str]] = {
        "potential": _potential,
        "scores": _scores,
        "losses": _losses,
        "triton": _triton,
        "class bank": _bank,
        "second order": _second_order,
        "densities": _densities,
        "samples": _samples,
        "half precision": _half,
        "repeatable": _repeatable,
        "no waiting": _no_waiting,
        "graph": _graph,
        **({"torch.compile": _compiled} if compiled else {}),
    }
    return {name: partial(check, device) for name, check in checks.items()}


def _apart(found: torch.Tensor, exact: torch.Tensor) -> float:
    """The length of the difference over that of what is exact."""
    return float((found.detach().to(HOST).double() - exact.detach().double()).norm() / exact.detach().double().norm())


def _agree(found: Mapping[str, torch.Tensor], exact: Mapping[str, torch.Tensor], bound: float) -> float:
    """The largest distance of the two, relative; an error where one exceeds the bound."""
    worst = 0.0
    for name, tensor in exact.items():
        error = _apart(found[name], tensor)
        if not error <= bound:
            raise ArithmeticError(f"{name} is {error:.1e} from the CPU, relative; at most {bound:.0e} was expected")
        worst = max(worst, error)
    return worst


def _unit(*shape: int, seed: int = 0) -> torch.Tensor:
    return normalize(torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)), dim=-1)


def _labels() -> torch.Tensor:
    return torch.arange(_BATCH) % _CLASSES  # every class, twice: those that were not seen begin at random


def _state(device: torch.device, dtype: torch.dtype) -> pg.ClassState:
    return pg.ClassState(
        _unit(_CLASSES, _DIM, seed=1).to(device, dtype), torch.logspace(0, 5, _CLASSES, dtype=torch.float64).to(device, dtype)
    )


def _potential(device: torch.device) -> str:
    worst: dict[torch.dtype, float] = {}
    for name in _REALIZATIONS:
        for dtype in (torch.float32, torch.float64):
            if (dtype == torch.float32 and name not in _ACCURATE) or (dtype == torch.float64 and not kind(device).float64):
                continue
            bound = 2 * DOCUMENTED[dtype] if name == "paired" else 1e-6 if dtype == torch.float32 else 1e-10
            for dim in (8, 128) if name in _DOUBLE_ONLY else (8, 128, 4096):
                pot = pg.potential(dim, name)
                x = (dim / 2 - 1) * torch.tensor([1e-2, 0.5, 3.0, 64.0, 1e3], dtype=dtype)
                found = pot.slope(x.to(device)).to(HOST).double()
                error = float((found / pot.slope(x.double()) - 1).abs().max())
                if not error <= bound:
                    raise ArithmeticError(
                        f"slope of {name!r} at dim {dim} in {dtype} is {error:.1e} from the CPU, relative; at most {bound:.0e} was expected"
                    )
                worst[dtype] = max(worst.get(dtype, 0.0), error)
    return "slopes, " + ", ".join(f"{str(dtype).removeprefix('torch.')} within {error:.1e}" for dtype, error in worst.items())


def _scores(device: torch.device) -> str:
    features = _unit(_BATCH, _DIM).float()
    exact = pg.vmf_scores(features.double(), _rounded_state(HOST, torch.float64))
    found = pg.vmf_scores(features.to(device), _rounded_state(device, torch.float32))
    error = float((found.to(HOST).double() - exact).abs().max())
    if not error <= _SCORES:
        raise ArithmeticError(
            f"scores are off by {error:.1e}; {_SCORES:.0e} is documented. Are float32 products rounded to TF32? It must be off for the loss"
        )
    return f"float32 within {error:.1e} of float64 on the CPU"


def _rounded_state(device: torch.device, dtype: torch.dtype) -> pg.ClassState:
    """The float32 state, in either dtype."""
    state = _state(HOST, torch.float32)
    return pg.ClassState(state.mean_direction.to(device, dtype), state.concentration.to(device, dtype))


def _losses(device: torch.device) -> str:
    found = 0.0
    for name, step in _STEPS.items():
        exact = step(HOST, torch.float64)
        ours = step(device, torch.float32)
        found = max(
            found, _agree({f"{part} of {name}": ours[part] for part in exact}, {f"{part} of {name}": exact[part] for part in exact}, _STEP)
        )
    return f"{len(_STEPS)} losses with gradients, float32 within {found:.1e} of float64 on the CPU"


def _triton(device: torch.device) -> str:
    """The streamed kernels, five times: threads that wait for each other wrongly give other bits now and then."""
    if not runs_on(device):
        raise Skipped("triton does not run there")
    exact, found = _proco(HOST, torch.float64), {}
    interpreted, runs = kind(device).on_host, []  # slowly
    for products, bound in ((None, _STEP),) if interpreted else (("ieee", _STEP), (None, _STEP), ("tf32", _TF32)):
        runs = [_proco(device, torch.float32, execution="triton", products=products) for _ in range(1 if interpreted else 5)]
        for name, tensor in runs[0].items():
            if any(not torch.equal(tensor, run[name]) for run in runs[1:]):
                raise ArithmeticError(f"{name} with products={products!r} has other bits in another run")
        found[products] = _agree(runs[0], exact, bound)
        if not interpreted:  # many tiles, of the larger kind
            _agree(_many(device, torch.float32, products=products, execution="triton"), _many(HOST, torch.float64), bound)
    kinds = ", ".join(f"{error:.1e}{f' with {products}' if products else ''}" for products, error in found.items())
    return f"loss and gradient, relative to float64 on the CPU: {kinds}; the same bits in {len(runs)} runs"


def _many(device: torch.device, dtype: torch.dtype, **options: Any) -> Results:
    state = pg.ClassState(_unit(20_000, _DIM, seed=3).to(device, dtype), torch.full((20_000,), 50.0, dtype=dtype, device=device))
    features = _unit(256, _DIM).to(device, dtype).requires_grad_()
    value = pg.vmf_cross_entropy(features, torch.arange(256, device=device), state, **options)
    value.backward()
    assert features.grad is not None
    return {"value of many classes": value, "gradient of many classes": features.grad}


def _proco(device: torch.device, dtype: torch.dtype, **options: Any) -> Results:
    loss = pg.ProCoLoss(_CLASSES, _DIM, class_counts=_COUNTS, device=device, dtype=dtype, **options)
    views = _unit(2, _BATCH, _DIM).to(device, dtype).requires_grad_()
    value = loss(views, _labels().to(device))
    value.backward()
    assert views.grad is not None
    return {"value": value, "gradient": views.grad}


def _patt(device: torch.device, dtype: torch.dtype) -> Results:
    loss = pg.PATTLoss(_CLASSES, _DIM, class_counts=_COUNTS, device=device, dtype=dtype)
    views = _unit(2, _BATCH, _DIM).to(device, dtype).requires_grad_()
    logits = (4 * _unit(_BATCH, _CLASSES, seed=2)).to(device, dtype).requires_grad_()
    value = loss(views, _labels().to(device), logits)
    value.backward()
    assert views.grad is not None
    assert logits.grad is not None
    return {"value": value, "gradient": views.grad, "gradient of the logits": logits.grad}


def _cross_entropy(device: torch.device, dtype: torch.dtype) -> Results:
    features = _unit(_BATCH, _DIM).to(device, dtype).requires_grad_()
    value = pg.vmf_cross_entropy(features, _labels().to(device), _state(device, dtype))
    value.backward()
    assert features.grad is not None
    return {"value": value, "gradient": features.grad}


def _regression(device: torch.device, dtype: torch.dtype) -> Results:
    prediction = (30 * _unit(_BATCH, _DIM)).to(device, dtype).requires_grad_()
    value = pg.VMFRegressionLoss(_DIM)(prediction, _unit(_BATCH, _DIM, seed=3).to(device, dtype))
    value.backward()
    assert prediction.grad is not None
    return {"value": value, "gradient": prediction.grad}


_STEPS: dict[str, Callable[[torch.device, torch.dtype], Results]] = {
    "ProCoLoss": _proco,
    "ProCoLoss with mle": partial(_proco, estimator="mle"),
    "ProCoLoss with two epochs": partial(_proco, memory="two-epochs"),
    "PATTLoss": _patt,
    "vmf_cross_entropy": _cross_entropy,
    "VMFRegressionLoss": _regression,
}


def _updated(device: torch.device, dtype: torch.dtype) -> pg.ClassBank:
    bank = pg.ClassBank(_CLASSES, _DIM, device=device, dtype=dtype)
    for step in range(5):
        features = normalize(_unit(_BATCH, _DIM, seed=step) + _unit(_CLASSES, _DIM, seed=9)[_labels()], dim=-1)
        bank.update(features.to(device, dtype), _labels().to(device))
    return bank


def _bank(device: torch.device) -> str:
    found, exact = _updated(device, torch.float32), _updated(HOST, torch.float64)
    parts = ("counts", "mean_direction", "concentration")
    error = _agree({name: getattr(found, name) for name in parts}, {name: getattr(exact, name) for name in parts}, _STEP)
    return f"counts, directions and concentrations after five updates within {error:.1e} of float64 on the CPU"


def _second_order(device: torch.device) -> str:
    pot, x = pg.potential(512), torch.logspace(-1, 5, 25, dtype=widest(device)).to(device).requires_grad_()
    (first,) = torch.autograd.grad(pot.value(x).sum(), x, create_graph=True)
    if not torch.equal(first, pot.slope(x)):
        raise ArithmeticError("the backward of value is not slope")
    found, exact = (_second(place, dtype) for place, dtype in ((device, torch.float32), (HOST, torch.float64)))
    error = _agree({"the second derivative": found}, {"the second derivative": exact}, 1e-4)
    return f"backward is the slope, bit for bit; the second one of a loss within {error:.1e}"


def _second(device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    features = _unit(_BATCH, _DIM).to(device, dtype).requires_grad_()
    state = pg.ClassState(_unit(_CLASSES, _DIM, seed=1).to(device, dtype), torch.full((_CLASSES,), 50.0, device=device, dtype=dtype))
    value = pg.vmf_cross_entropy(features, _labels().to(device), state)
    (gradient,) = torch.autograd.grad(value, features, create_graph=True)
    (second,) = torch.autograd.grad(gradient.square().sum(), features)
    return second


def _densities(device: torch.device) -> str:
    found, exact = (_density(place, dtype) for place, dtype in ((device, torch.float32), (HOST, torch.float64)))
    return f"log_prob, entropy and divergence within {_agree(found, exact, _STEP):.1e} of float64 on the CPU"


def _density(device: torch.device, dtype: torch.dtype) -> Results:
    kappa = torch.logspace(0, 3, _BATCH, dtype=torch.float64).to(device, dtype)
    law = pg.VonMisesFisher(_unit(_BATCH, _DIM).to(device, dtype), kappa)
    other = pg.VonMisesFisher(_unit(_BATCH, _DIM, seed=1).to(device, dtype), 2 * kappa)
    return {
        "log_prob": law.log_prob(_unit(_BATCH, _DIM, seed=2).to(device, dtype)),
        "entropy": law.entropy(),
        "the divergence": torch.distributions.kl_divergence(law, other),
    }


def _samples(device: torch.device) -> str:
    dim, kappa, number = 16, 20.0, 4000
    mean = torch.zeros(dim, device=device)
    mean[0] = 1
    with random_seed_kept(device):
        torch.manual_seed(0)
        samples = pg.VonMisesFisher(mean, torch.full((), kappa, device=device)).sample((number,)).to(HOST).double()
    pot, x = pg.potential(dim), torch.tensor(kappa, dtype=torch.float64)
    away = float((samples[:, 0].mean() - pot.slope(x)) / (pot.curvature(x) / number).sqrt())
    length = float((samples.norm(dim=1) - 1).abs().max())
    if not (abs(away) < 5 and length < 1e-5):
        raise ArithmeticError(f"the mean of {number} samples is {away:.1f} standard errors away, and lengths are off by {length:.0e}")
    return f"mean of {number} samples {abs(away):.1f} standard errors away"


def _half(device: torch.device) -> str:
    """bfloat16 features under autocast, against float64 at the rounded features: the loss has float32, the gradient is rounded once."""
    if not torch.amp.is_autocast_available(device.type):
        raise Skipped("no autocast on this device")
    rounded, state = _unit(_BATCH, _DIM).bfloat16(), _rounded_state(HOST, torch.float64)
    exact = rounded.double().requires_grad_()
    truth = pg.vmf_cross_entropy(exact, _labels(), state)
    truth.backward()
    features = rounded.to(device).requires_grad_()
    with torch.autocast(device.type, dtype=torch.bfloat16):
        value = pg.vmf_cross_entropy(features, _labels().to(device), _rounded_state(device, torch.float32))
    value.backward()
    assert exact.grad is not None
    assert features.grad is not None
    loss = _agree({"the loss": value}, {"the loss": truth}, _STEP)
    gradient = _agree({"the gradient": features.grad}, {"the gradient": exact.grad}, 2.0**-8)
    return f"bfloat16 under autocast: loss within {loss:.1e}, gradient within {gradient:.1e}"


def _repeatable(device: torch.device) -> str:
    with _deterministic():
        first, second = _updated(device, torch.float32), _updated(device, torch.float32)
    if not all(torch.equal(a, b) for a, b in zip(first.buffers(), second.buffers(), strict=True)):
        raise ArithmeticError("two banks that were given the same batches in deterministic mode differ")
    return "in deterministic mode a bank has the same bits twice"


@contextmanager
def _deterministic() -> Iterator[None]:
    before, warns = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warns)


def _step_on(device: torch.device) -> tuple[torch.Tensor, Callable[[], torch.Tensor]]:
    loss = pg.ProCoLoss(_CLASSES, _DIM, class_counts=_COUNTS, device=device)
    views, labels = _unit(2, _BATCH, _DIM).to(device, torch.float32).requires_grad_(), _labels().to(device)

    def step() -> torch.Tensor:
        value = loss(views, labels)
        value.backward()
        return value

    return views, step


def _no_waiting(device: torch.device) -> str:
    views, step = _step_on(device)
    step()
    views.grad = None
    with refusing_to_wait(device) as told:
        if not told:
            raise Skipped("torch does not report on this device when the host waits")
        step()
    return "a training step never waits for the device"


def _graph(device: torch.device) -> str:
    views, step = _step_on(device)
    replay = graph_of(device, step, lambda: setattr(views, "grad", None))
    if replay is None:
        raise Skipped("this device has no graphs")
    other, again = _step_on(device)
    for _ in range(3):  # as many steps as the warm-up had
        other.grad = None
        again()
    for _ in range(2):
        other.grad = None
        again()
        replay()
    assert views.grad is not None
    assert other.grad is not None
    error = _agree({"the replayed gradient": views.grad}, {"the replayed gradient": other.grad.to(HOST)}, _STEP)
    return f"a training step replayed twice, within {error:.1e} of eager"


def _compiled(device: torch.device) -> str:
    gradients = []
    for wrap in (lambda loss: loss, pg.compile):
        loss = pg.ProCoLoss(_CLASSES, _DIM, class_counts=_COUNTS, device=device)
        views = _unit(2, _BATCH, _DIM).to(device, torch.float32).requires_grad_()
        wrap(loss)(views, _labels().to(device)).backward()
        assert views.grad is not None
        gradients.append(views.grad.to(HOST))
    return f"compiled gradient within {_agree({'the compiled gradient': gradients[1]}, {'the compiled gradient': gradients[0]}, _STEP):.1e} of eager"

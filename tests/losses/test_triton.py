"""The streamed kernels, in Triton's interpreter: against float64, against the eager execution, and audited.

What the interpreter cannot show: races, the rounding of tensor cores beyond that of their operands, approximate exponentials.
"""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
import torch
from torch.nn import functional as F

import pairgrad as pg
from pairgrad.ground import devices

pytest.importorskip("triton", reason="triton is not installed: pip install -e '.[dev]' on Linux")
from triton.runtime.interpreter import GridExecutor

from pairgrad.losses.fused import triton_loss
from pairgrad.losses.fused.triton import potential_numbers

slow = pytest.mark.slow
EPS = torch.finfo(torch.float32).eps
ACCURATE = [pytest.param("ieee", marks=slow), "3xtf32"]  # the first is a part of the second


class Problem(NamedTuple):
    """Features and a fixed class state in float32."""

    features: torch.Tensor  # (B, p)
    labels: torch.Tensor
    state: pg.ClassState
    log_prior: torch.Tensor | None
    temperature: float

    def loss(self, execution: str, **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Loss of each row and its gradient."""
        leaf = self.features.detach().clone().requires_grad_()
        rows = pg.vmf_cross_entropy(leaf, self.labels, self.state, self.temperature, self.log_prior, "none", execution=execution, **options)
        return rows.detach(), torch.autograd.grad(rows.sum(), leaf)[0]


def problem(batch: int, classes: int, dim: int, kappa: str, unit: bool, tau: float, prior: bool = True, seed: int = 0) -> Problem:
    g = torch.Generator().manual_seed(seed)
    features = F.normalize(torch.randn(batch, dim, generator=g), dim=1)
    if not unit:
        features = features * torch.exp(torch.randn(batch, 1, generator=g))
    direction = F.normalize(torch.randn(classes, dim, generator=g) + 2 * features[:1].sum(0), dim=1)
    spread = {"none": 0.0, "large": 1e5}.get(kappa)
    concentration = torch.exp(torch.rand(classes, generator=g) * 11.5) if spread is None else torch.full((classes,), spread)
    if kappa == "mixed":
        concentration[::3], concentration[1::3] = 0.0, 1e5
    log_prior = torch.randn(classes, generator=g).log_softmax(0) if prior else None
    return Problem(features, torch.randint(0, classes, (batch,), generator=g), pg.ClassState(direction, concentration), log_prior, tau)


class Truth(NamedTuple):
    loss: torch.Tensor
    gradient: torch.Tensor
    scale: torch.Tensor  # (B,): 1 + the largest logit
    away: torch.Tensor  # (B,): 1 - p_y


def truth(given: Problem, features: torch.Tensor | None = None) -> Truth:
    """In float64, with the label left out of the sum, so that small losses have all their digits."""
    x = (given.features if features is None else features).double().requires_grad_()
    state = pg.ClassState(given.state.mean_direction.double(), given.state.concentration.double())
    logits = pg.vmf_scores(x, state, given.temperature)
    if given.log_prior is not None:
        logits = logits + given.log_prior.double()
    at_label = logits.gather(1, given.labels[:, None])
    others = logits.scatter(1, given.labels[:, None], -torch.inf)
    odds = torch.logsumexp(others, 1) - at_label[:, 0] if logits.shape[1] > 1 else torch.full_like(at_label[:, 0], -torch.inf)
    loss = torch.logaddexp(torch.zeros_like(odds), odds) if logits.shape[1] > 1 else 0 * at_label[:, 0]
    (gradient,) = torch.autograd.grad(loss.sum(), x)
    return Truth(loss.detach(), gradient, 1 + logits.detach().abs().amax(1), torch.sigmoid(odds).detach())


def errors(found: tuple[torch.Tensor, torch.Tensor], given: Problem, want: Truth) -> tuple[torch.Tensor, torch.Tensor]:
    """Of loss and gradient of each row, in roundings of the largest logit.

    The gradient is a sum over other classes of p_j times differences of pulls no longer than 1 / tau, so (1 - p_y) / tau is what it is measured by.
    """
    loss = (found[0] - want.loss).abs() / (EPS * want.scale)
    size = (want.away / given.temperature).clamp_min(torch.finfo(torch.float32).tiny)
    return loss, (found[1] - want.gradient).norm(dim=1) / (EPS * want.scale * size)


SHAPES = [(5, 77, 64), (1, 40, 32), (3, 1, 64), (20, 33, 30), (70, 100, 40)]
CASES = [
    (shape, kappa, unit, tau)
    for shape in SHAPES[:1]
    for kappa in ("none", "mixed", "large", "wide")
    for unit, tau in ((True, 0.1), (False, 1.0))
]
CASES += [(shape, "wide", True, 0.1) for shape in SHAPES[1:]] + [(SHAPES[0], "wide", True, 0.01), (SHAPES[0], "mixed", False, 0.1)]


@pytest.mark.parametrize("products", ACCURATE)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_loss_and_gradient_are_those_of_float64(case: tuple[Any, ...], products: str) -> None:
    shape, kappa, unit, tau = case
    given = problem(*shape, kappa, unit, tau)
    want = truth(given)
    loss, gradient = errors(given.loss("triton", products=products), given, want)
    assert loss.max() <= 4
    assert gradient.max() <= 4


def test_more_classes_than_programs() -> None:
    """A program then has several tiles, and scales what it has of the sums where the largest logit grows from one to the next."""
    given = problem(2, 9000, 32, "wide", True, 0.1)
    order = pg.vmf_scores(given.features[:1], given.state, 0.1)[0].argsort()
    given = given._replace(state=pg.ClassState(given.state.mean_direction[order], given.state.concentration[order]), log_prior=None)
    loss, gradient = errors(given.loss("triton"), given, truth(given))
    assert loss.max() <= 4
    assert gradient.max() <= 4


def test_a_block_of_rows_of_the_last_view() -> None:
    """It has nothing to do in the part of the batch's own classes, and must read nothing of it."""
    views, labels = torch.randn(2, 40, 32), torch.arange(40) % 7
    found = []
    for execution in ("eager", "triton"):
        loss = pg.ProCoLoss(45, 32, execution=execution, generator=torch.Generator().manual_seed(1))
        leaf = views.clone().requires_grad_()
        value = loss(leaf, labels)
        found.append((value.detach(), torch.autograd.grad(value, leaf)[0]))
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-6)


EAGER = (0.308, 0.100)  # root mean squares of loss and gradient of the eager execution on an AMD EPYC; on an Intel Xeon the second is 0.095


@pytest.mark.parametrize("products", ACCURATE)
def test_no_worse_than_the_eager_execution(products: str) -> None:
    """Root mean squares over many rows; at most a fifth more, on this processor or on the one named above: the interpreter does not use its matrix product."""
    found: dict[str, list[tuple[torch.Tensor, torch.Tensor]]] = {"eager": [], "triton": []}
    for shape, kappa, unit, tau in CASES:
        for seed in range(2):
            given = problem(*shape, kappa, unit, tau, seed=seed)
            want = truth(given)
            found["eager"].append(errors(given.loss("eager"), given, want))
            found["triton"].append(errors(given.loss("triton", products=products), given, want))
    for place in (0, 1):
        eager, triton = (torch.cat([pair[place] for pair in found[name]]).square().mean().sqrt() for name in ("eager", "triton"))
        assert triton <= 1.2 * max(float(eager), EAGER[place])


def test_tf32_keeps_three_digits_and_no_more() -> None:
    worst = 0.0
    for shape, kappa, unit, tau in CASES:
        given = problem(*shape, kappa, unit, tau)
        loss, gradient = errors(given.loss("triton", products="tf32"), given, truth(given))
        assert loss.max() * EPS <= 1e-3
        assert gradient.max() * EPS <= 1e-3
        worst = max(worst, float(loss.max()))
    assert worst > 50  # else the interpreter would not round as a tensor core does, and this test would show nothing


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("half_state", [False, True])
def test_half_precision_is_that_of_the_inputs(dtype: torch.dtype, half_state: bool) -> None:
    """Features, and class rows too, are rounded by who makes them: what is computed from them is float32. The gradient comes in the dtype of the features."""
    given = problem(5, 77, 64, "wide", True, 0.1)
    given = given._replace(features=given.features.to(dtype))
    if half_state:
        direction, kappa = given.state.mean_direction.to(dtype), given.state.concentration.clamp_max(6e4).to(dtype)
        given = given._replace(state=pg.ClassState(direction, kappa), log_prior=None)
    want = truth(given)
    loss, gradient = given.loss("triton")
    assert loss.dtype == torch.float32
    assert gradient.dtype == dtype
    assert ((loss - want.loss).abs() <= 4 * EPS * want.scale).all()
    assert ((gradient - want.gradient).norm(dim=1) <= torch.finfo(dtype).eps * want.gradient.norm(dim=1)).all()


@pytest.mark.parametrize("products", ACCURATE)
def test_a_small_loss_keeps_its_digits(products: str) -> None:
    """The label is not in the sums: 1 - p_y of 1e-9 is not a difference from 1."""
    direction = F.normalize(torch.randn(40, 64), dim=1)
    given = Problem(direction[:4] * 1.0, torch.arange(4), pg.ClassState(direction, torch.full((40,), 3000.0)), None, 0.05)
    want = truth(given)
    assert want.loss.max() < 1e-4
    loss, gradient = given.loss("triton", products=products)
    bound = 4 * EPS * want.scale
    assert ((loss - want.loss).abs() <= bound * want.loss).all()
    assert ((gradient - want.gradient).norm(dim=1) <= 4 * bound * want.gradient.norm(dim=1)).all()


def _strided(x: torch.Tensor) -> torch.Tensor:
    return torch.stack([x, 2 * x], -1)[..., 0]


@pytest.mark.parametrize(
    "arranged",
    [
        pytest.param(lambda x: _strided(x), id="strided"),
        pytest.param(lambda x: x.t().contiguous().t(), id="transposed"),
        pytest.param(lambda x: torch.cat([x, x], 1)[:, : x.shape[1]], id="rows apart"),
        pytest.param(lambda x: x[:1].expand_as(x), id="expanded"),
    ],
)
def test_how_tensors_lie_in_memory_does_not_matter(arranged: Any) -> None:
    given = problem(5, 40, 32, "wide", True, 0.1)
    direction = arranged(given.state.mean_direction)
    other = given._replace(features=given.features, state=pg.ClassState(direction, given.state.concentration))
    features = arranged(given.features)
    plain = [tensor.contiguous() for tensor in (features, direction)]
    want = given._replace(features=plain[0], state=pg.ClassState(plain[1], given.state.concentration)).loss("triton")
    leaf = given.features.clone().requires_grad_()
    rows = pg.vmf_cross_entropy(arranged(leaf), given.labels, other.state, 0.1, given.log_prior, "none", execution="triton")
    torch.testing.assert_close(rows.detach(), want[0], rtol=8 * EPS, atol=0)
    again = given.features.clone().requires_grad_()
    expected = torch.autograd.grad(arranged(again), again, want[1])[0]
    torch.testing.assert_close(torch.autograd.grad(rows.sum(), leaf)[0], expected, rtol=0, atol=16 * EPS / 0.1)


@pytest.mark.parametrize("labels", [torch.tensor([3, 9, 0, 9, 3, 9, 1, 9])[::2], torch.tensor(3).expand(4)], ids=["strided", "expanded"])
def test_labels_that_are_not_side_by_side(labels: torch.Tensor) -> None:
    """With two views, the first of which sees the classes of the batch in a state of their own."""
    found = []
    for execution in ("eager", "triton"):
        loss = pg.ProCoLoss(20, 33, execution=execution, reduction="none", generator=torch.Generator().manual_seed(1))
        views = torch.randn(2, 4, 33, generator=torch.Generator().manual_seed(2))
        found.append(loss(views, labels))
    torch.testing.assert_close(found[1], found[0], rtol=1e-5, atol=1e-6)


def test_long_features_have_finite_losses() -> None:
    given = problem(4, 12, 33, "wide", True, 1.0)
    given = given._replace(features=1e9 * given.features)
    loss, gradient = given.loss("triton")
    assert loss.isfinite().all()
    assert gradient.isfinite().all()
    want = truth(given)
    assert ((loss - want.loss).abs() <= 4 * EPS * want.scale).all()


def test_cotangents_of_every_kind() -> None:
    given = problem(6, 40, 32, "wide", True, 0.1)
    _, gradient = given.loss("triton")
    weights = torch.randn(12)
    for cotangent in (torch.ones(()).expand(6), weights[::2], torch.zeros(6)):
        leaf = given.features.clone().requires_grad_()
        rows = pg.vmf_cross_entropy(leaf, given.labels, given.state, 0.1, given.log_prior, "none", execution="triton")
        (found,) = torch.autograd.grad(rows, leaf, cotangent)
        torch.testing.assert_close(found, gradient * cotangent[:, None], rtol=2 * EPS, atol=0)


def test_no_rows() -> None:
    state = pg.ClassState(F.normalize(torch.randn(5, 32), dim=1), torch.ones(5))
    leaf = torch.zeros(0, 32, requires_grad=True)
    loss = pg.vmf_cross_entropy(leaf, torch.zeros(0, dtype=torch.long), state, execution="triton")
    (gradient,) = torch.autograd.grad(loss, leaf)
    assert loss == 0
    assert gradient.shape == (0, 32)
    losses = pg.ProCoLoss(5, 32, execution="triton")
    assert losses.rows(torch.zeros(2, 0, 32), torch.zeros(0, dtype=torch.long)).shape == (2, 0)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
def test_weights_smoothing_and_rows_that_do_not_count(smoothing: float) -> None:
    given = problem(6, 40, 32, "wide", False, 0.2)
    labels = torch.where(torch.arange(6) == 2, -100, given.labels)
    weight = torch.rand(40)
    weight[labels[3]] = 0.0
    prior = given.log_prior.clone() if given.log_prior is not None else None
    if not smoothing and prior is not None:
        prior[7] = -torch.inf  # a class that cannot occur; a label elsewhere
        labels = torch.where(labels == 7, 8, labels)
    given = given._replace(labels=labels, log_prior=prior)
    options: dict[str, Any] = {"weight": weight, "label_smoothing": smoothing}
    eager, triton = (given.loss(execution, **options) for execution in ("eager", "triton"))
    torch.testing.assert_close(triton, eager, rtol=1e-4, atol=2e-5)
    assert triton[0][2] == 0
    assert not triton[1][2].any()


@pytest.mark.parametrize("realization", ["paired", "arfr"])
@pytest.mark.parametrize("normalize", [True, False])
def test_every_view_sees_its_own_state(realization: str, normalize: bool) -> None:
    """Three views, labels that repeat, classes that are new, from an eager loss in float64 after two steps."""
    options: dict[str, Any] = {"temperature": 0.2, "class_counts": range(1, 21), "normalize": normalize, "realization": realization}
    options |= {"on_resultant_above_one": "normalize"}
    triton = pg.ProCoLoss(20, 34, execution="triton", reduction="none", generator=torch.Generator().manual_seed(0), **options)
    wide = pg.ProCoLoss(20, 34, dtype=torch.float64, reduction="none", generator=torch.Generator().manual_seed(0), **options)
    wide.load_state_dict(triton.state_dict())
    labels = torch.tensor([3, 3, 0, 19, 7])
    for _ in range(2):
        views = 0.8 * torch.randn(3, 5, 34) / 6
        found = []
        for loss, x in ((triton, views.clone()), (wide, views.double())):
            rows = loss(x.requires_grad_(), labels)
            found.append((rows.detach().double(), torch.autograd.grad(rows.sum(), x)[0].double()))
        torch.testing.assert_close(found[0], found[1], rtol=2e-5, atol=2e-5)
        assert torch.equal(triton.bank.counts, wide.bank.counts)
        torch.testing.assert_close(triton.bank.concentration.double(), wide.bank.concentration, rtol=1e-4, atol=0)


def _operands(features: torch.Tensor, given: Problem, gradient: bool = True) -> tuple[Any, ...]:
    classes = given.state.classes()
    numbers, lengths = potential_numbers(pg.potential(features.shape[-1]), None)
    nothing = (None, None, None, [], None, None)
    return features, given.labels, *classes, given.log_prior, *nothing, given.temperature, numbers, lengths, True, gradient, 1.0, "3xtf32"


def test_more_features_than_an_offset_can_count_are_refused() -> None:
    given = problem(1, 3, 32, "wide", True, 0.1)
    with pytest.raises(ValueError, match=r"must have fewer than 2\^31 numbers, got shape \(1, 67108864, 32\): divide the batch"):
        triton_loss.vmf_cross_entropy(*_operands(given.features.expand(1, 2**26, 32), given))


@pytest.mark.filterwarnings("ignore:.*opcheck")
def test_the_operator_is_one_of_torch() -> None:
    given = problem(3, 20, 32, "wide", True, 0.1)
    features = given.features[None].requires_grad_()
    torch.library.opcheck(triton_loss.vmf_cross_entropy, _operands(features, given))
    loss = triton_loss.vmf_cross_entropy(*_operands(features, given))[0]
    (gradient,) = torch.autograd.grad(loss.sum(), features)
    assert torch.equal(gradient[0], triton_loss.vmf_cross_entropy(*_operands(features, given))[1][0])
    with pytest.raises(RuntimeError, match="call it with gradient=True to differentiate its loss"):
        triton_loss.vmf_cross_entropy(*_operands(features, given, gradient=False))[0].sum().backward()


def test_in_a_graph_of_torch_compile() -> None:
    given, pot = problem(3, 20, 32, "wide", True, 0.1), pg.potential(32)

    def step(x: torch.Tensor) -> torch.Tensor:
        return pg.vmf_cross_entropy(
            2 * x, given.labels, given.state, 0.1, given.log_prior, realization=pot, execution="triton", max_norm=3.0
        )

    found = []
    for function in (step, torch.compile(step, fullgraph=True, backend="aot_eager")):
        leaf = given.features.clone().requires_grad_()
        value = function(leaf)
        found.append((value.detach(), torch.autograd.grad(value, leaf)[0]))
    torch.testing.assert_close(found[1], found[0], rtol=1e-5, atol=1e-6)


# Launch nothing: memory from the allocator, or another look at the same memory.
NOTHING = {
    f"aten::{name}"
    for name in ("empty", "detach", "detach_", "select", "expand", "unsqueeze", "view", "reshape", "unbind", "alias", "contiguous", "to")
}


def _launches(call: Any) -> list[str]:
    """Our kernels, and operations of torch that compute something, also those that our operators call."""
    kernels: list[str] = []

    def aside(function: Any, *names: str) -> Any:
        def run(*args: Any, **options: Any) -> Any:
            kernels.extend(getattr(args[0].fn, name) for name in names)
            with torch.profiler.record_function("aside"):  # the interpreter computes with torch; tests fill what is empty
                return function(*args, **options)

        return run

    with pytest.MonkeyPatch.context() as patch, torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
        patch.setattr(GridExecutor, "__call__", aside(GridExecutor.__call__, "__name__"))
        patch.setattr(torch, "empty", aside(torch.empty))
        call()
    operations = [event for event in seen.events() if event.name.startswith("aten::")]
    outermost = [event for event in operations if not any(name.startswith(("aten::", "aside")) for name in _around(event))]
    return kernels + [event.name for event in outermost if event.name not in NOTHING or "aten::copy_" in _inside(event)]


def _around(event: Any) -> Iterator[str]:
    while event.cpu_parent is not None:
        event = event.cpu_parent
        yield event.name


def _inside(event: Any) -> Iterator[str]:
    for child in event.cpu_children:
        yield child.name
        yield from _inside(child)


def test_a_training_step_is_six_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward, backward and the update of the bank, for any number of views and classes: three kernels of ours, the mean, and what backward starts with."""
    monkeypatch.setitem(devices.KINDS, "cpu", replace(devices.KINDS["cpu"], queued=True))
    loss = pg.ProCoLoss(40, 32, class_counts=range(1, 41), execution="triton", validate=False)
    views, labels = torch.randn(2, 4, 32, requires_grad=True), torch.tensor([0, 3, 3, 1])
    loss(views, labels).backward()
    views.grad = None
    found = _launches(lambda: loss(views, labels).backward())
    assert found == ["bank_update", "sweep", "finish", "aten::mean", "aten::ones_like", "aten::mul"]


@slow
def test_the_size_of_the_paper() -> None:
    g = torch.Generator().manual_seed(0)
    losses = [pg.ProCoLoss(1000, 1024, execution=name, reduction="none", generator=g.manual_seed(1)) for name in ("triton", "eager")]
    wide = pg.ProCoLoss(1000, 1024, dtype=torch.float64, reduction="none", generator=g.manual_seed(1))
    wide.load_state_dict(losses[0].state_dict())
    views, labels = F.normalize(torch.randn(2, 32, 1024), dim=-1), torch.randint(0, 1000, (32,))
    found = []
    for loss in (*losses, wide):
        x = views.to(loss.bank.sums.dtype).requires_grad_()
        rows = loss(x, labels)
        found.append((rows.detach(), torch.autograd.grad(rows.sum(), x)[0]))
    for place, bound in ((0, 4 * EPS * 20), (1, 4 * EPS * 20 * 10)):  # logits below 20, pulls of at most 1 / tau
        triton, eager = ((each[place] - found[2][place]).flatten(0, 1) for each in found[:2])
        assert triton.abs().max() <= bound
        assert triton.norm() <= 1.2 * eager.norm()


@slow
@pytest.mark.parametrize("products", ["3xtf32", "tf32"])
def test_the_audit_finds_it_coherent(products: str) -> None:
    """In float32; with TF32 to what its operands have. What one product rounds, the next rounds in the same way, so both belong together."""
    given = problem(2, 5, 30, "wide", True, 0.5)

    def loss(x: torch.Tensor) -> torch.Tensor:
        return pg.vmf_cross_entropy(x, given.labels, given.state, 0.5, given.log_prior, "none", execution="triton", products=products)

    report = pg.audit(
        loss, given.features.clone().requires_grad_(), effort="quick", **({} if products == "3xtf32" else {"tolerance": 1e-2})
    )
    assert report.verdict == "coherent", str(report)
    assert report.complete
    assert report.limit < (1e-3 if products == "3xtf32" else 1e-1)


def test_what_it_does_not_have_is_an_error_that_says_so() -> None:
    labels, state = torch.tensor([0, 1]), pg.ClassState(torch.eye(3, 32), torch.ones(3))
    features = torch.eye(32)[:2]

    def ce(x: torch.Tensor, state: pg.ClassState, **options: Any) -> torch.Tensor:
        return pg.vmf_cross_entropy(x, labels, state, execution="triton", **options)

    with pytest.raises(ValueError, match=r"execution='triton' has 'paired' from dim 30 on.*dim=8.*use execution='auto'"):
        pg.ProCoLoss(3, 8, execution="triton")
    with pytest.raises(ValueError, match=r"execution='triton' has the realizations 'paired' and 'arfr', got .*'original'"):
        ce(features, state, realization="original")
    with pytest.raises(ValueError, match="execution='triton' computes in float32, got float64"):
        ce(features.double(), state)
    loss = pg.ProCoLoss(3, 32, dtype=torch.float64, execution="triton")
    before = loss.bank.counts.clone()
    with pytest.raises(ValueError, match="execution='triton' computes in float32, got float64"):
        loss(features[None].half(), labels)
    assert torch.equal(loss.bank.counts, before)
    with pytest.raises(ValueError, match="execution='triton' computes in float32, got float64"):
        ce(features.half(), state, geometry_dtype=torch.float64)
    with pytest.raises(ValueError, match="products must be one of '3xtf32', 'ieee', 'tf32', got 'bf16'"):
        ce(features, state, products="bf16")
    with pytest.raises(ValueError, match="products belongs to execution='triton', got products='tf32' with execution='eager'"):
        pg.ProCoLoss(3, 32, products="tf32")


PROGRAM = """
import sys
if {hidden}:
    sys.modules["triton"] = None
import torch, pairgrad as pg
if not {hidden}:
    assert "triton" not in sys.modules, "importing pairgrad imports triton"
loss = pg.ProCoLoss(3, 32, execution="auto")
print(loss(torch.randn(2, 4, 32), torch.tensor([0, 1, 2, 0])).isfinite().item())
try:
    pg.ProCoLoss(3, 32, execution="triton")(torch.randn(2, 4, 32), torch.tensor([0, 1, 2, 0]))
except (ImportError, ValueError) as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize(
    ("hidden", "message"),
    [
        (
            True,
            "ImportError execution='triton' needs the package triton, which is not installed: pip install 'pairgrad[triton]', or use execution='auto'",
        ),
        (
            False,
            "ValueError execution='triton' needs a GPU for which triton compiles, got features on cpu: use execution='auto' or 'eager'",
        ),
    ],
)
def test_without_triton_or_without_a_gpu(hidden: bool, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    done = subprocess.run([sys.executable, "-c", PROGRAM.format(hidden=hidden)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["True", message]


def test_auto_says_what_it_picks(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    caplog.set_level(logging.INFO, logger="pairgrad")
    features, labels = torch.randn(2, 4, 34), torch.tensor([0, 1, 2, 0])
    pg.ProCoLoss(31, 34, execution="auto")(features, labels)
    monkeypatch.setitem(devices.KINDS, "cpu", replace(devices.KINDS["cpu"], queued=True))
    pg.ProCoLoss(31, 34, execution="auto")(features, labels)
    lines = [record.getMessage() for record in caplog.records if record.name == "pairgrad"]
    assert lines[0] == "execution='auto' is 'eager' for 8 rows and 31 classes on cpu: nothing to compile, few launches to save"
    assert lines[1] == "execution='auto' is 'triton' for 8 rows and 31 classes on cpu: fewest launches"


FALLBACKS = """
import logging, torch, pairgrad as pg
logging.basicConfig(level=logging.INFO, format="%(message)s")
state = pg.ClassState(torch.eye(3, 32).requires_grad_(), torch.ones(3))
for _ in range(2):
    pg.vmf_cross_entropy(torch.eye(32)[:2], torch.tensor([0, 1]), state, execution="triton").backward()
    pg.vmf_cross_entropy(torch.eye(32)[:2], torch.ones(2, 3) / 3, pg.ClassState(torch.eye(3, 32), torch.ones(3)), execution="triton")
    pg.ProCoLoss(3, 32, execution="triton", estimator="mle")(torch.randn(2, 4, 32), torch.tensor([0, 1, 2, 0]))
"""


def test_what_is_computed_operation_by_operation_says_so_once() -> None:
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", FALLBACKS], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines() == [
        "execution='triton': gradients in class state, temperature and prior are computed operation by operation, in a second pass",
        "execution='triton': class probabilities in place of labels are computed operation by operation",
        "execution='triton': the class bank is updated operation by operation, because estimator='mle' is computed with torch",
    ]

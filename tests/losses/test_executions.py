"""Every execution of a loss: the same numbers within the documented bounds, the same errors, the same state afterwards."""

from __future__ import annotations

import copy
import logging
import pickle
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import pairgrad as pg
from pairgrad.losses import EXECUTIONS, BankLoss
from tests.losses.bank_losses import DIM, FEW, LABELS, LOSS, MANY, TAU, agree, counts, run, views_of, warm
from tests.losses.sequence import sequence

slow = pytest.mark.slow
FLOAT = torch.float32
# Each graph is compiled. On the CPU the kernels of Triton run in its interpreter, if it is installed.
BY_NAME = {"compiled": [slow], "triton": [pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")]}
ALL = [pytest.param(name, marks=BY_NAME.get(name, [])) for name in EXECUTIONS]
SOME = [pytest.param(name, marks=BY_NAME.get(name, []) if name == "triton" else []) for name in EXECUTIONS]


@pytest.fixture(autouse=True)
def _nothing_compiled() -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()


def loss_of(execution: str, classes: int = MANY, **options: Any) -> BankLoss:
    return warm(BankLoss(classes, DIM, temperature=TAU, class_counts=counts(classes), execution=execution, **options))


def check_steps(loss: Any, bank: pg.ClassBank, views: int, log_prior: torch.Tensor | None, **how: Any) -> None:
    """Twice, so that the second step starts from a bank that the execution has written."""
    for step in range(2):
        batch, labels = views_of(views, dtype=FLOAT), torch.tensor(LABELS["repeated"]) + step
        want = sequence(bank, batch, labels, temperature=TAU, log_prior=log_prior, **how)
        leaf = batch.clone().requires_grad_()
        value = loss(leaf, labels)
        torch.testing.assert_close(value.detach(), want[0].mean(), rtol=LOSS[FLOAT], atol=0)
        (gradient,) = torch.autograd.grad(value, leaf)
        assert (gradient * want[0].numel() - want[1]).norm() <= 4 * LOSS[FLOAT] * want[1].norm()


def same(bank: pg.ClassBank, other: pg.ClassBank) -> None:
    assert torch.equal(bank.counts, other.counts)
    torch.testing.assert_close(bank.sums, other.sums, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(bank.concentration, other.concentration, rtol=1e-4, atol=0)


@pytest.mark.parametrize("execution", SOME)
def test_a_step_is_the_sequence_and_copies_work(execution: str) -> None:
    loss = loss_of(execution)
    bank = copy.deepcopy(loss.bank)
    check_steps(loss, bank, 2, loss.log_prior)
    same(loss.bank, bank)
    batch, labels = views_of(2, dtype=FLOAT), torch.tensor(LABELS["distinct"])
    for twin in (copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))):
        with torch.no_grad():
            twin.eval()
            assert torch.equal(BankLoss.scores(twin, batch[0]), loss.scores(batch[0]))
    leaf = batch.requires_grad_()
    (gradient,) = torch.autograd.grad(loss(leaf, labels), leaf, create_graph=True)
    assert gradient.requires_grad


@pytest.mark.parametrize("execution", ALL)
@pytest.mark.parametrize(
    ("classes", "views", "options"),
    [
        (MANY, 1, {}),
        (FEW, 2, {}),
        (MANY, 3, {"normalize": False}),
        (MANY, 2, {"score": "before-update"}),
        (MANY, 2, {"realization": "arfr"}),
        (MANY, 2, {"memory": "two-epochs"}),
    ],
    ids=str,
)
def test_other_steps(execution: str, classes: int, views: int, options: dict[str, Any]) -> None:
    loss = loss_of(execution, classes, **options)
    how = {"normalize": options.get("normalize", True), "before": options.get("score") == "before-update"}
    bank = copy.deepcopy(loss.bank)
    check_steps(loss, bank, views, loss.log_prior, **how)
    same(loss.bank, bank)


@pytest.mark.parametrize("execution", ALL)
def test_evaluation_changes_nothing(execution: str) -> None:
    loss, eager = loss_of(execution).eval(), loss_of("eager").eval()
    eager.load_state_dict(loss.state_dict())
    batch, labels = views_of(2, dtype=FLOAT), torch.tensor(LABELS["distinct"])
    before = {name: tensor.clone() for name, tensor in loss.state_dict().items()}
    value, want = loss(batch, labels), run(eager, batch, labels)[0].mean()
    torch.testing.assert_close(value, want, rtol=LOSS[FLOAT], atol=0)
    assert all(torch.equal(tensor, before[name]) for name, tensor in loss.state_dict().items())


@pytest.mark.parametrize("execution", ALL)
def test_a_module_compiled_from_outside(execution: str) -> None:
    loss = loss_of(execution)
    bank = copy.deepcopy(loss.bank)
    check_steps(pg.compile(loss), bank, 2, loss.log_prior)
    assert torch.equal(loss.bank.counts, bank.counts)


@pytest.mark.parametrize("execution", ALL)
def test_batches_of_many_sizes(execution: str) -> None:
    """torch.compile refuses a ninth graph of one function."""
    loss, eager = loss_of(execution, FEW), loss_of("eager", FEW)
    eager.load_state_dict(loss.state_dict())
    for size in range(1, 11):
        batch, labels = views_of(1, batch=size, dtype=FLOAT), torch.arange(size) % FEW
        agree(run(loss, batch, labels), run(eager, batch, labels), 4 * LOSS[FLOAT])


def graphs() -> int:
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


def test_compiling_says_so_and_a_smaller_batch_does_not_compile(caplog: pytest.LogCaptureFixture) -> None:
    """One line before it starts, which Python shows without any configuration. The last batch of an epoch is computed in eager mode."""
    dim = DIM + 6  # nothing else is compiled for this dimension
    state = pg.ClassState(F.normalize(torch.randn(FEW, dim), dim=1), 50 * torch.rand(FEW))
    caplog.set_level(logging.INFO, logger="pairgrad")
    for size in (5, 3, 3, 5):
        before, features, labels = graphs(), F.normalize(torch.randn(size, dim), dim=1), torch.arange(size)
        caplog.clear()
        found = [
            pg.vmf_cross_entropy(features, labels, state, 0.2, execution=execution, max_norm=1.0) for execution in ("compiled", "eager")
        ]
        torch.testing.assert_close(*found, rtol=LOSS[FLOAT], atol=0)
        lines = [(record.levelno, record.getMessage()) for record in caplog.records if record.name == "pairgrad"]
        if graphs() > before:
            assert lines == [(logging.WARNING, "compiling the loss for a batch of 5 rows: this takes some seconds, once for this shape")]
        elif lines:
            assert lines == [(logging.INFO, "batch of 3 rows: computed in eager mode; the step is compiled for 5 rows")]
    assert graphs() == 1


@slow
def test_a_larger_batch_is_compiled_and_says_why(caplog: pytest.LogCaptureFixture) -> None:
    loss, eager = loss_of("compiled"), loss_of("eager")
    eager.load_state_dict(loss.state_dict())
    for size in (4, 3, 6, 4):
        batch, labels = views_of(2, batch=size, dtype=FLOAT), torch.arange(size)
        agree(run(loss, batch, labels), run(eager, batch, labels), 4 * LOSS[FLOAT])
    lines = [record.getMessage() for record in caplog.records if record.name == "pairgrad"]
    assert lines == [
        "compiling the loss for a batch of 4 rows: this takes some seconds, once for this shape",
        "compiling the loss for a batch of 6 rows again, because the batch shape is new (before: 4 rows): this takes some seconds, once for this shape",
    ]
    same(loss.bank, eager.bank)


@slow
@pytest.mark.parametrize("execution", ["eager", "compiled"])  # the interpreter of Triton would take hours
def test_a_matrix_too_large_for_one_graph(execution: str) -> None:
    """More than 2^23 rows times classes, where compiled code goes through the classes tile by tile."""
    classes = 2**18 + 77
    loss, eager = (
        BankLoss(classes, 8, temperature=TAU, execution=each, generator=torch.Generator().manual_seed(0)) for each in (execution, "eager")
    )
    batch = F.normalize(torch.randn(2, 17, 8), dim=-1)
    labels = torch.randint(classes, (17,))
    # a sum over 2^18 classes in another order
    agree(run(loss, batch, labels), run(eager, batch, labels), 8 * LOSS[FLOAT])
    assert torch.equal(loss.bank.counts, eager.bank.counts)


@pytest.mark.parametrize("execution", SOME)
@pytest.mark.parametrize(
    "options",
    [{}, pytest.param({"label_smoothing": 0.1, "weight": True}, marks=slow), pytest.param({"probabilities": True}, marks=slow)],
    ids=str,
)
def test_cross_entropy_against_a_fixed_state(execution: str, options: dict[str, Any]) -> None:
    """Beside torch's cross-entropy of the scores, with gradients in features, directions, concentrations, temperature and prior."""
    options = dict(options)
    direction, kappa = F.normalize(torch.randn(FEW, DIM), dim=1), 50 * torch.rand(FEW)
    prior, tau = torch.randn(FEW).log_softmax(0), torch.tensor(0.2)
    features = F.normalize(torch.randn(5, DIM), dim=1)
    labels: torch.Tensor = torch.tensor([0, 3, -100, 5, 3])
    if options.pop("probabilities", False):
        labels = torch.softmax(torch.randn(5, FEW), 1)
    if options.pop("weight", False):
        options["weight"] = torch.rand(FEW)
    found = []
    for fused in (True, False):
        leaves = [tensor.clone().requires_grad_() for tensor in (features, direction, kappa, tau, prior)]
        x, mu, k, t, b = leaves
        state = pg.ClassState(mu, k)
        if fused:
            loss = pg.vmf_cross_entropy(x, labels, state, t, b, execution=execution, max_norm=1.0, **options)
        else:
            loss = F.cross_entropy(pg.vmf_scores(x, state, t) + b, labels, **options)
        found.append([loss.detach(), *torch.autograd.grad(loss, leaves)])
    for got, want in zip(*found, strict=True):
        assert (got - want).norm() <= 8 * LOSS[FLOAT] * want.norm() + 1e-6


@pytest.mark.parametrize("execution", SOME)
def test_errors_come_before_the_execution(execution: str) -> None:
    loss = BankLoss(MANY, DIM, execution=execution)
    features, labels = torch.zeros(4, DIM), torch.tensor([0, 1, 2, MANY])
    before = {name: tensor.clone() for name, tensor in loss.state_dict().items()}
    for call in (lambda: loss(features, labels), lambda: pg.vmf_cross_entropy(features, labels, loss.bank, execution=execution)):
        with pytest.raises(ValueError, match=r"labels must lie in \[0, 39\], got values from 0 to 40"):
            call()
    with pytest.raises(ValueError, match="features must be finite"):
        loss(features / 0, labels - 1)
    assert all(torch.equal(tensor, before[name]) for name, tensor in loss.state_dict().items())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"execution": "fast"}, "execution must be one of 'eager', 'compiled', 'triton', 'auto', got 'fast'"),
        ({"execution": True}, "execution must be one of 'eager', 'compiled', 'triton', 'auto', got True"),
        ({"compile_mode": "default"}, "compile_mode belongs to execution='compiled', got compile_mode='default' with execution='eager'"),
        ({"execution": "compiled", "compile_mode": ["default"]}, "compile_mode must be one of .*, got \\['default'\\]"),
        ({"execution": "compiled", "compile_mode": "faster"}, "compile_mode must be one of .*'reduce-overhead'.*, got 'faster'"),
    ],
    ids=str,
)
def test_wrong_executions(options: dict[str, Any], message: str) -> None:
    state = pg.ClassState(torch.eye(3, 8), torch.ones(3))
    makers = (
        lambda: pg.ProCoLoss(3, 8, **options),
        lambda: pg.PATTLoss(3, 8, class_counts=[1, 1, 1], **options),
        lambda: pg.vmf_cross_entropy(torch.eye(8)[:2], torch.tensor([0, 1]), state, **options),
    )
    for make in makers:
        with pytest.raises(ValueError, match=message):
            make()

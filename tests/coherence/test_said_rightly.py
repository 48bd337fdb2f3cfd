"""Right backwards that are easy to accuse, wrong ones that are easy to misname, and audits that are easy to lose: numbers, names, time and state."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest
import torch
from torch.autograd.function import once_differentiable
from torch.distributions import constraints

import pairgrad as pg
from pairgrad.coherence import Report, audit
from pairgrad.testing import CoherenceTests
from tests.coherence.functions import function, vector

D = torch.float64


def spd(n: int = 3) -> torch.Tensor:
    a = torch.linspace(-1, 1, n * n, dtype=D).reshape(n, n).sin()
    return a @ a.mT + torch.eye(n, dtype=D)


# 12. Constrained arguments


@pytest.mark.parametrize(
    "fn",
    [
        torch.linalg.cholesky,
        lambda a: torch.linalg.eigvalsh(a),
        lambda a: torch.cholesky_solve(torch.ones(3, 1, dtype=D), torch.linalg.cholesky(a)),
    ],
    ids=["cholesky", "eigvalsh", "solver"],
)
@pytest.mark.parametrize("given", ["symmetric", "positive_definite", constraints.symmetric, constraints.positive_definite, None], ids=str)
def test_functions_of_symmetric_matrices_pass(fn: Any, given: Any) -> None:
    report = audit(fn, spd(), constraints=given, consequences=False)
    assert report.passed, str(report)
    if given is None:
        (finding,) = (finding for finding in report.findings if finding.kind == "constraint")
        assert "within the symmetric matrices the gradient is right" in finding.text


def test_a_wrong_gradient_within_the_symmetric_matrices_is_found() -> None:
    wrong = function(torch.linalg.cholesky, lambda a, g: g * 0 + g.sum() * torch.ones_like(a))
    assert audit(wrong, spd(), constraints="symmetric", consequences=False).verdict == "incoherent"
    assert not audit(wrong, spd(), consequences=False).passed


def test_what_only_a_declaration_could_decide_is_inconclusive() -> None:
    """A forgotten transpose cannot be seen within the symmetric matrices, and the value reads both triangles."""
    weights = torch.arange(9, dtype=D).reshape(3, 3)
    fn = function(
        lambda a: (a @ weights).sin(), lambda a, g: ((g * (a @ weights).cos()) @ weights.mT + (g * (a @ weights).cos() @ weights.mT).mT) / 2
    )
    report = audit(fn, spd(), consequences=False)
    assert report.verdict == "inconclusive", str(report)
    assert "say which is meant" in str(report)
    assert audit(fn, spd(), constraints="symmetric", consequences=False).passed


@pytest.mark.parametrize(
    ("given", "x"),
    [
        ("simplex", vector(0.2, 0.3, 0.5)),
        (constraints.simplex, vector(0.2, 0.3, 0.5)),
        ("sphere", vector(0.6, 0.8)),
        ("orthogonal", torch.linalg.qr(spd())[0]),
    ],
    ids=["simplex", "torch's simplex", "sphere", "orthogonal"],
)
def test_a_gradient_that_is_right_within_its_set_passes(given: Any, x: torch.Tensor) -> None:
    """What points out of the set is the function's own business: here the gradient has another part across it."""
    across = {"sphere": lambda x: x, "orthogonal": lambda x: x}.get(given if isinstance(given, str) else "", torch.ones_like)
    fn = function(lambda x: x.exp().sum(), lambda x, g: g * (x.exp() + 0.5 * across(x)))
    assert not audit(fn, x, consequences=False).passed
    report = audit(fn, x, constraints=given, consequences=False)
    assert report.passed, str(report)


def test_an_input_outside_of_its_set_is_named() -> None:
    with pytest.raises(ValueError, match=r"constraints: \'input 0\' is declared \'symmetric\' and must have square matrices"):
        audit(torch.linalg.cholesky, torch.tensor([[2.0, 1.0], [0.0, 2.0]]), constraints="symmetric")


# 13. The headline


@pytest.mark.parametrize("shape", [(), (7,), (20, 30)])
def test_the_number_is_that_of_the_gradient_at_the_input_for_every_seed(shape: tuple[int, ...]) -> None:
    x = torch.linspace(0.3, 1.7, torch.Size(shape).numel(), dtype=D).reshape(shape)
    for seed in range(4):
        report = audit(function(torch.sin, lambda x, g: 1.8 * g * x.cos()), x, seed=seed, effort="quick", consequences=False)
        assert abs(report.defect - 0.8) <= report.defect_error, str(report)


@pytest.mark.parametrize("opaque", [False, True])
def test_the_error_bar_covers_the_choice_of_directions(opaque: bool) -> None:
    """One row of 20 is off by a half, with and without a forward that can be differentiated."""
    x = torch.linspace(0.3, 1.7, 600, dtype=D).reshape(20, 30)

    def backward(x: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        gradient = g * x.cos()
        gradient[3] *= 1.5
        return gradient

    fn = function((lambda x: torch.from_numpy(x.numpy()).sin()) if opaque else torch.sin, backward)
    found = []
    for seed in range(4):
        report = audit(fn, x, seed=seed, effort="quick", consequences=False)
        largest = max(f.numbers["relative"] for f in report.findings if f.kind == "defect")
        assert report.defect >= largest
        found.append((report.defect, report.defect_error))
    assert max(d for d, _ in found) - min(d for d, _ in found) <= min(e for _, e in found), found
    assert all(0.02 < d - e < d + e < 0.5 for d, e in found), found


def test_every_argument_has_its_number() -> None:
    fn = function(torch.sin, lambda x, g: -g * x.cos())
    report = audit(lambda x, w: (x.exp() * fn(w)).sum(), (vector(0.3, 0.7), vector(1.1, 0.4)))
    by_name = {gradient.argument: gradient for gradient in report.gradients}
    assert by_name["input 0"].relative <= max(1e-9, by_name["input 0"].error)
    assert by_name["input 1"].factor == pytest.approx(-1)
    assert by_name["input 1"].supplied == pytest.approx(-by_name["input 1"].true)


# 14. First and second order


class Cube(torch.autograd.Function):
    """Its second derivative is wrong: the backward hides the argument from autograd."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        return g * 3 * ctx.saved_tensors[0].detach() ** 2


def test_a_wrong_second_derivative_is_no_wrong_gradient() -> None:
    right = function(torch.sin, lambda x, g: g * x.cos(), once=False)
    report = audit(lambda x: Cube.apply(right(x)), vector(0.3, 0.7))
    assert report.verdict == "second-order"
    assert {judgement.verdict.value for judgement in report.verdicts} == {"second-order", "coherent"}
    assert report.checks["first order"] == "right"
    assert "does not supply the derivative" not in str(report)
    named = {finding.where.split(" ")[0]: finding.severity for finding in report.findings if finding.kind == "node"}
    assert named == {"Cube": "warning", "Custom": "note"}, str(report)


# 15. Estimators


class Sign(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.sign()

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        return g


ESTIMATORS = {
    "straight-through": Sign.apply,
    "clamped-straight-through": function(lambda x: x.clamp(-1, 1), lambda x, g: g),
    "reversal": function(lambda x: x * 1, lambda x, g: -0.3 * g),
    "scaling": function(lambda x: x.sin(), lambda x, g: 0.1 * g * x.cos()),
    "preconditioned": function(lambda x: x.square(), lambda x, g: g * 2 * x * torch.linspace(0.5, 2, x.numel(), dtype=x.dtype)),
}


@pytest.mark.parametrize("intent", ESTIMATORS)
def test_estimators_are_recognised_and_can_be_declared(intent: str) -> None:
    x = vector(0.3, -0.7, 1.6, -2.2, 0.9)
    undeclared = audit(ESTIMATORS[intent], x)
    assert not undeclared.passed, str(undeclared)
    (finding,) = (finding for finding in undeclared.findings if finding.kind == "looks-like")
    assert finding.numbers["intent"] == intent
    declared = audit(ESTIMATORS[intent], x, intent=intent)
    assert declared.passed, str(declared)


def test_a_declaration_that_does_not_hold_excuses_nothing() -> None:
    x = vector(0.3, -0.7, 1.6, -2.2, 0.9)
    others = {"reversal": "scaling", "scaling": "reversal", "clamped-straight-through": "reversal", "preconditioned": "scaling"}
    for name, intent in others.items():
        report = audit(ESTIMATORS[name], x, intent=intent)
        assert not report.passed, f"{name} as {intent}: {report}"


# 16. What torch refuses


def test_a_reentrant_checkpoint_is_audited() -> None:
    layer = torch.nn.Linear(3, 3).double()
    report = audit(lambda x: torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=True).sin(), torch.rand(2, 3, dtype=D), module=layer)
    assert report.passed, str(report)


def test_a_classic_function_passes_the_inheritable_tests() -> None:
    class Classic(CoherenceTests):
        function = function(torch.sin, lambda x, g: g * x.cos())
        inputs = vector(0.3, 0.7)
        dtypes = (D,)

    Classic.check()


# 17. Time


def slow(seconds: float) -> Any:
    def fn(x: torch.Tensor) -> torch.Tensor:
        time.sleep(seconds)
        return x.sin()

    return fn


def test_an_expensive_function_gets_an_answer_within_the_budget() -> None:
    started = time.perf_counter()
    report = audit(slow(0.005), torch.rand(4, 4, dtype=D) + 0.3, seconds=3)
    assert time.perf_counter() - started < 6
    assert report.left_out
    assert all(part in str(report) for part in report.left_out)


def test_a_budget_that_is_too_small_for_a_verdict_makes_the_audit_incomplete() -> None:
    report = audit(slow(0.02), torch.rand(4, 4, dtype=D) + 0.3, seconds=0.2)
    assert not report.complete
    assert not report.passed
    assert "raise `seconds`" in str(report)


@pytest.mark.parametrize("seconds", [0, -1, math.nan, "long"])
def test_a_budget_must_be_a_number_above_zero(seconds: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="seconds must be a number above 0"):
        audit(torch.sin, vector(0.3), seconds=seconds)


def test_an_audit_that_has_its_verdict_stops() -> None:
    class Worn(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
            (x,) = ctx.saved_tensors
            return g.mul_(x.data.cos_())

    report = audit(Worn.apply, torch.rand(20, dtype=D))
    assert not report.passed
    assert report.evaluations < 3000, report.evaluations


# 18. Global state


def test_what_a_function_changes_globally_is_put_back() -> None:
    ran: list[int] = []

    def fn(x: torch.Tensor) -> torch.Tensor:
        torch.set_default_dtype(torch.float16)
        torch.use_deterministic_algorithms(True)
        torch.autograd.set_detect_anomaly(True)
        torch.set_float32_matmul_precision("medium")
        torch.nn.modules.module.register_module_forward_hook(lambda *_: ran.append(1))
        return x.sin()

    before = (
        torch.get_default_dtype(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_anomaly_enabled(),
        torch.get_float32_matmul_precision(),
    )
    audit(fn, vector(0.3))
    after = (
        torch.get_default_dtype(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_anomaly_enabled(),
        torch.get_float32_matmul_precision(),
    )
    assert after == before
    torch.nn.Identity()(torch.ones(1))
    assert not ran


# The report


def test_a_report_is_made_without_a_call() -> None:
    calls = [0]
    seen: list[tuple[int, Report, int]] = []

    def fn(x: torch.Tensor) -> torch.Tensor:
        calls[0] += 1
        return x.sin()

    def progress(now: Any) -> None:
        before = calls[0]
        seen.append((before, now.report(), calls[0]))

    audit(fn, torch.rand(5, dtype=D), progress=progress)
    assert seen
    assert all(before == after for before, _, after in seen)
    assert not any(report.passed for _, report, _ in seen)


def test_the_rooms_have_no_cycle() -> None:
    """The folders of the auditor import each other in one direction."""
    import ast
    from pathlib import Path

    root = Path(pg.__file__).parent / "coherence"
    edges: dict[str, set[str]] = {}
    for path in root.rglob("*.py"):
        room = path.relative_to(root).parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pairgrad.coherence."):
                other = (node.module or "").split(".")[2]
                if other != room and room != "__init__":
                    edges.setdefault(room, set()).add(other)
    order: list[str] = []
    while edges:
        free = {room for others in edges.values() for room in others} - set(edges)
        assert free - set(order) or any(not others - set(order) for others in edges.values()), edges
        order += sorted(free - set(order))
        for room in [room for room, others in edges.items() if not others - set(order)]:
            order.append(room)
            del edges[room]


def test_the_inheritable_tests_take_constraints() -> None:
    class Cholesky(CoherenceTests):
        function = torch.linalg.cholesky
        inputs = spd()
        constraints = "positive_definite"
        dtypes = (D,)
        left_out = {"test_vmap": "takes long", "test_compiled": "takes long", "test_empty_batch": "a matrix has no batch"}

    Cholesky.check()

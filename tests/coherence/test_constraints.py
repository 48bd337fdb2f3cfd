"""Constraints: which argument has which, what is refused, tangent directions, and curves that stay in the set."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.distributions import constraints as c

from pairgrad.coherence.measure.limits import LADDER
from pairgrad.coherence.measure.path import Line, Path
from pairgrad.coherence.measure.state import examine
from pairgrad.coherence.subject.constraint import Constraint, is_exactly_symmetric, resolve_constraints
from pairgrad.coherence.subject.subject import Subject
from tests.coherence.functions import sine_with

NAMES = ("input 0", "input 1", "weight")


def normal(*shape: int, seed: int = 5) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def definite(n: int) -> torch.Tensor:
    x = normal(2, n, n)
    return x @ x.mT + 0.1 * torch.eye(n)


def correlation_factor() -> torch.Tensor:
    x = normal(2, 4, 4).tril()
    x.diagonal(dim1=-2, dim2=-1).abs_().add_(0.2)
    return x / x.norm(dim=-1, keepdim=True)


POINTS = {
    "real": normal(3),
    "positive": normal(5).exp(),
    "nonnegative": normal(5).exp(),
    "unit_interval": normal(5).sigmoid(),
    "square": normal(2, 3, 3),
    "symmetric": definite(3) - 1,
    "positive_definite": definite(3),
    "positive_semidefinite": definite(3),
    "lower_triangular": normal(2, 3, 3).tril(),
    "lower_cholesky": torch.linalg.cholesky(definite(3)),
    "corr_cholesky": correlation_factor(),
    "simplex": normal(4, 5).softmax(-1),
    "sphere": torch.nn.functional.normalize(normal(4, 3), dim=-1),
    "orthogonal": torch.linalg.qr(normal(2, 4, 4)).Q,
}
TALL = torch.linalg.qr(normal(2, 6, 3)).Q
CASES = [*POINTS.items(), ("orthogonal", TALL), ("orthogonal", TALL[0])]
IDS = [*POINTS, "tall", "one"]
TORCH = {
    "interval": (c.interval(-2.0, 1.5), torch.tensor([-1.9, 0.0, 1.25], dtype=torch.float64)),
    "half-open": (c.half_open_interval(0.0, 1.0), torch.tensor([0.25, 0.5], dtype=torch.float64)),
    "greater": (c.greater_than(1.0), torch.tensor([1.0625, 7.0], dtype=torch.float64)),
    "greater-eq": (c.greater_than_eq(1.0), torch.tensor([1.0625, 7.0], dtype=torch.float64)),
    "less": (c.less_than(1.0), torch.tensor([0.9375, -7.0], dtype=torch.float64)),
    "tensors": (
        c.interval(torch.tensor([0.0, 5.0]), torch.tensor([1.0, 9.0])),
        torch.tensor([[0.5, 6.0], [0.1, 8.0]], dtype=torch.float64),
    ),
    "independent": (c.independent(c.positive, 1), torch.tensor([0.5, 6.0], dtype=torch.float64)),
}


def the(constraint: Any, x: torch.Tensor) -> Constraint:
    return resolve_constraints(constraint, ["input 0"], [x])[0]


def satisfied(name: str, x: torch.Tensor) -> bool:
    """Membership by independent means: torch's own checks, else the definition."""
    if name == "sphere":
        return bool(((x.double().norm(dim=-1) - 1).abs() < 20 * torch.finfo(x.dtype).eps).all())
    if name == "orthogonal":
        product = x.double().mT @ x.double()
        return torch.allclose(product, torch.eye(x.shape[-1], dtype=torch.float64), rtol=0, atol=20 * torch.finfo(x.dtype).eps)
    return bool(getattr(c, name).check(x).all())


@pytest.mark.parametrize(("name", "x"), CASES, ids=IDS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3])
def test_curves_stay_in_the_set(name: str, x: torch.Tensor, dtype: torch.dtype, size: float) -> None:
    x = x.to(dtype)
    curve = the(name, x).curve(x, size * normal(*x.shape, seed=7))
    assert torch.equal(curve.point(0.0), x)
    for t in (-1.0, -0.7, 0.3, 1.0):
        point = curve.point(t)
        assert point.dtype == dtype
        assert satisfied(name, point), t
    assert float(curve.velocity(0.0).abs().max()) > 0


@pytest.mark.parametrize(("name", "x"), CASES, ids=IDS)
def test_velocities_are_derivatives_and_begin_with_the_tangent(name: str, x: torch.Tensor) -> None:
    """By a sixth-order difference with h = 2^-7: it errs by h^6/140 = 2e-15 times the seventh derivative, and by rounding, 1e-16 / h = 1e-14."""
    constraint = the(name, x)
    direction = normal(*x.shape, seed=7)
    curve = constraint.curve(x, direction)
    assert torch.allclose(curve.velocity(0.0), constraint.tangent(x, direction), rtol=0, atol=1e-14)
    h = 2.0**-7
    for t in (0.0, -0.8, 0.9):
        rises = [curve.point(t + k * h) - curve.point(t - k * h) for k in (1, 2, 3)]
        slope = (45 * rises[0] - 9 * rises[1] + rises[2]) / (60 * h)
        assert curve.velocity(t).dtype == torch.float64
        assert torch.allclose(curve.velocity(t), slope, rtol=0, atol=1e-11)


@pytest.mark.parametrize(("name", "x"), CASES, ids=IDS)
def test_projections_are_orthogonal(name: str, x: torch.Tensor) -> None:
    """Onto the tangent space: projecting twice changes nothing, tangents are kept, and <P a, b> = <a, P b>."""
    constraint = the(name, x)
    a, b = normal(*x.shape, seed=7), normal(*x.shape, seed=8)
    projected, tangent = constraint.project(x, a), constraint.tangent(x, a)
    assert torch.allclose(constraint.project(x, projected), projected, rtol=0, atol=1e-14)
    assert torch.allclose(constraint.project(x, tangent), tangent, rtol=0, atol=1e-14)
    assert float((projected * b).sum()) == pytest.approx(float((a * constraint.project(x, b)).sum()), rel=1e-12)


@pytest.mark.parametrize(
    ("name", "dimension"),
    [
        ("symmetric", 6),
        ("positive_definite", 6),
        ("lower_triangular", 6),
        ("lower_cholesky", 6),
        ("corr_cholesky", 6),
        ("simplex", 4),
        ("sphere", 2),
    ],
)
def test_tangents_fill_the_tangent_space(name: str, dimension: int) -> None:
    """Their rank, from many random directions at the first of the points."""
    x = POINTS[name][0]
    constraint = the(name, x)
    tangents = torch.stack([constraint.tangent(x, normal(*x.shape, seed=seed)).flatten() for seed in range(30)])
    assert int(torch.linalg.matrix_rank(tangents, rtol=1e-8)) == dimension


@pytest.mark.parametrize(("x", "dimension"), [(POINTS["orthogonal"][0], 6), (TALL[0], 6 * 3 - 6)], ids=["square", "tall"])
def test_tangents_fill_the_tangent_space_of_orthogonal_matrices(x: torch.Tensor, dimension: int) -> None:
    tangents = torch.stack([the("orthogonal", x).tangent(x, normal(*x.shape, seed=seed)).flatten() for seed in range(30)])
    assert int(torch.linalg.matrix_rank(tangents, rtol=1e-8)) == dimension


@pytest.mark.parametrize("case", TORCH)
@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3])
def test_intervals_of_torch(case: str, size: float) -> None:
    """Each coordinate has room of its own: one near the bound does not shorten the others."""
    constraint, x = TORCH[case]
    curve = the(constraint, x).curve(x, torch.full_like(x, size))
    for t in (-1.0, 1.0):
        assert bool(constraint.check(curve.point(t)).all())
    low, high = getattr(constraint, "lower_bound", -math.inf), getattr(constraint, "upper_bound", math.inf)
    if case == "independent":
        low = 0.0
    room = torch.minimum(x - low, high - x)
    assert bool((curve.velocity(0.0) >= torch.clamp(0.4 * room, max=size)).all())


@pytest.mark.parametrize("name", ["real", "symmetric", "positive_definite", "lower_cholesky", "positive"])
def test_steps_of_few_bits_stay_exact(name: str) -> None:
    """x and the steps are eighths: shortened by powers of two and averaged with the transpose, x + t d is a float32 without rounding."""
    x = torch.tensor([[1.0, 0.25, 0.0], [0.25, 2.0, 0.125], [0.0, 0.125, 1.5]])
    x = x.tril() if name == "lower_cholesky" else x + 0.5
    step = torch.tensor([[7.0, 5.0, 3.0], [-2.0, 1.0, 6.0], [5.0, 4.0, 9.0]], dtype=torch.float64) / 8
    constraint = the(name, x)
    curve = constraint.curve(x, step)
    for t in (-1.0, 0.375, 2.0**-9):
        assert torch.equal(curve.point(t).double(), x.double() + t * curve.velocity(0.0))
    assert constraint.exact


def test_one_small_probability_does_not_shorten_the_other_steps() -> None:
    x = torch.tensor([0.5, 0.5 - 1e-9, 1e-9], dtype=torch.float64)
    tangent = the("simplex", x).tangent(x, torch.tensor([0.25, -0.25, 1e-9], dtype=torch.float64))
    assert bool((tangent.abs() > 0.05 * x).all())
    assert abs(float(tangent.sum())) < 1e-16


@pytest.mark.parametrize("name", ["positive_definite", "positive_semidefinite"])
def test_one_small_eigenvalue_does_not_shorten_the_other_steps(name: str) -> None:
    basis = POINTS["orthogonal"][0]
    x = (basis * torch.tensor([1.0, 2.0, 3.0, 1e-8])) @ basis.T
    x = (x + x.T) / 2
    curve = the(name, x).curve(x, normal(4, 4, seed=7))
    assert float(curve.velocity(0.0).norm()) > 0.2
    for t in (-1.0, 1.0):
        assert float(torch.linalg.eigvalsh(curve.point(t)).min()) > 1e-9
        assert is_exactly_symmetric(curve.point(t))


def test_what_is_on_the_border_stays_there() -> None:
    zero = torch.tensor([0.0, 0.5, 0.5], dtype=torch.float64)
    assert the("simplex", zero).tangent(zero, torch.tensor([1.0, 0.25, -0.25]))[0] == 0
    assert the("nonnegative", zero).tangent(zero, torch.ones(3)).tolist() == [0.0, 0.25, 0.25]
    flat = torch.outer(normal(3), normal(3))
    flat = flat @ flat.T  # of rank 1
    for size in (1e-3, 1.0):
        curve = the("positive_semidefinite", flat).curve(flat, size * normal(3, 3, seed=7))
        for t in (-1.0, 1.0):
            assert float(torch.linalg.eigvalsh(curve.point(t)).min()) > -1e-15 * float(flat.norm())
        assert float(curve.velocity(0.0).norm()) > 0.01 * size * float(flat.norm())


def test_the_diagonal_of_a_correlation_factor_keeps_its_sign() -> None:
    x = torch.tensor([[1.0, 0.0], [math.sqrt(1 - 1e-8), 1e-4]], dtype=torch.float64)
    curve = the("corr_cholesky", x).curve(x, torch.tensor([[1.0, 0.0], [-1.0, 1.0]]))
    diagonals = [curve.point(t).diagonal() for t in (-1.0, -0.5, 0.5, 1.0)]
    assert all(bool((diagonal > 0).all()) for diagonal in diagonals)
    assert abs(float(diagonals[0][1] - diagonals[-1][1])) > 0.5e-4
    assert torch.equal(curve.point(1.0)[0], x[0])


def test_gradients_of_functions_of_symmetric_matrices_are_right_along_the_curves() -> None:
    """The gradient of the Cholesky factor is right within the symmetric matrices, and off outside of them."""
    x = POINTS["positive_definite"]
    leaf = x.clone().requires_grad_()
    weight = normal(*x.shape, seed=9)
    (gradient,) = torch.autograd.grad((torch.linalg.cholesky(leaf) * weight).sum(), leaf)
    h = 2.0**-16
    for name, right in (("positive_definite", True), ("real", False)):
        curve = the(name, x).curve(x, 0.01 * normal(*x.shape, seed=7))
        rise = ((torch.linalg.cholesky(curve.point(h)) - torch.linalg.cholesky(curve.point(-h))) * weight).sum() / (2 * h)
        work = (gradient * curve.velocity(0.0)).sum()
        assert (abs(float(rise - work)) < 1e-7 * abs(float(work))) == right


@pytest.mark.parametrize(("name", "x"), CASES, ids=IDS)
@pytest.mark.parametrize("dtype", [torch.float64, pytest.param(torch.float32, marks=pytest.mark.slow)])
def test_curves_show_what_straight_lines_show(name: str, x: torch.Tensor, dtype: torch.dtype) -> None:
    """A sine is coherent along each of eight curves, without kinks from the curve itself; a gradient that is off by a hundredth is seen on each."""
    x = x.to(dtype)
    for function, verdict in ((torch.sin, "coherent"), (sine_with(lambda x: 1.01).apply, "incoherent")):
        subject = Subject(function, x)
        for seed in range(20, 28):
            path = Path((the(name, x).curve(x, normal(*x.shape, seed=seed) * x.abs().mean()),))
            line = Line(subject, path, (normal(*x.shape, seed=seed + 100).to(dtype),))
            assert examine(line, LADDER[dtype]).verdict == verdict, seed


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (torch.ones(2, 2), True),
        (torch.eye(3), True),
        (POINTS["symmetric"] + POINTS["symmetric"].mT, True),
        (torch.tensor([[1.0, 0.5], [0.5 + 2.0**-24, 1.0]]), False),
        (torch.tensor([[1.0, math.nan], [math.nan, 1.0]]), False),
        (torch.ones(1, 1), False),
        (torch.ones(2), False),
        (torch.ones(2, 3), False),
        (torch.ones(0, 2, 2), False),
        (torch.eye(2).to_sparse(), False),
    ],
)
def test_exact_symmetry(x: torch.Tensor, expected: bool) -> None:
    assert is_exactly_symmetric(x) == expected


def test_long_directions_turn_by_less_than_a_quarter() -> None:
    """Then each row, or column, keeps a positive scalar product with where it was."""
    sphere = POINTS["sphere"]
    curve = the("sphere", sphere).curve(sphere, 1e3 * normal(*sphere.shape, seed=7))
    assert bool(((curve.point(1.0) * sphere).sum(-1) > 0).all())
    assert bool(((curve.point(1.0) * sphere).sum(-1) < 0.8).all())
    curve = the("orthogonal", TALL).curve(TALL, 1e3 * normal(*TALL.shape, seed=7))
    assert bool(((curve.point(1.0) * TALL).sum(-2) > 0).all())


def test_which_argument_has_which() -> None:
    tensors = [torch.eye(2), torch.eye(2), torch.ones(2)]

    def named(constraints: Any) -> dict[int, str]:
        return {place: constraint.name for place, constraint in resolve_constraints(constraints, NAMES, tensors).items()}

    assert named(None) == {}
    assert named("symmetric") == named(c.symmetric) == {0: "symmetric", 1: "symmetric"}
    assert named(["symmetric", None]) == named(("symmetric",)) == {0: "symmetric"}
    assert named([None, c.positive_definite]) == {1: "positive_definite"}
    assert named({"weight": "positive", 1: "sphere", "input 0": None}) == {1: "sphere", 2: "positive"}
    assert named({"weight": the("positive", torch.ones(1))}) == {2: "positive"}
    assert set(resolve_constraints("positive", ["weight", "bias"], [torch.ones(1), torch.ones(1)])) == {0, 1}


@pytest.mark.parametrize("name", ["real", "square", "symmetric", "positive_definite", "positive_semidefinite", "lower_triangular", "lower_cholesky",
                                  "corr_cholesky", "simplex"])  # fmt: skip
def test_objects_of_torch_are_what_their_names_are(name: str) -> None:
    assert the(getattr(c, name), POINTS[name]) is the(name, POINTS[name])
    assert the(c.real_vector, POINTS["real"]) is the("real", POINTS["real"])


@pytest.mark.parametrize(
    ("constraints", "error", "message"),
    [
        ({"bias": "real"}, ValueError, "names 'bias', which is not differentiated: the differentiated tensors are 'input 0', 'input 1', 'weight'"),
        (["real"] * 3, ValueError, "3 entries for 2 differentiated inputs"),
        ("symetric", ValueError, "did you mean 'symmetric'"),
        ("round", ValueError, "there are real, positive"),
        (3.0, TypeError, r"got 3.0 \(float\): the names are real"),
        ([(0, 1)], TypeError, r"such as interval\(0, 1\)"),
        (c.interval, TypeError, "objects of torch.distributions.constraints"),
        (c.boolean, TypeError, "has no directions to move in"),
        (c.independent(c.one_hot, 1), TypeError, "has no directions to move in"),
        (c.stack([c.real, c.positive]), TypeError, "made of several"),
        (c.cat([c.real, c.positive]), TypeError, "made of several"),
        (c.dependent, TypeError, "depends on other arguments"),
    ],
)  # fmt: skip
def test_what_is_refused(constraints: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=r"^constraints") as raised:
        resolve_constraints(constraints, NAMES, [torch.eye(2)] * 3)
    assert raised.match(message)


@pytest.mark.parametrize(
    ("constraint", "x", "messages"),
    [
        ("real", [math.nan], ["NaN"]),
        ("positive", [1.0, 0.0], ["elements > 0", "0 at [1]", "move the argument inside"]),
        ("nonnegative", -1.0, ["elements >= 0", "with -1:"]),
        ("unit_interval", [[0.0, 1.5]], ["0 <= x <= 1", "1.5 at [0, 1]"]),
        (c.less_than(2.0), [2.0], ["elements < 2", "2 at [0]"]),
        (c.interval(torch.zeros(2), torch.ones(2)), [0.5, 0.5, 0.5], ["(2,)", "do not broadcast"]),
        (c.interval(torch.zeros(2), torch.ones(2)), [0.5], ["(2,)", "do not broadcast"]),
        (c.square, [1.0], ["square matrices", "1 dimensions"]),
        ("symmetric", [[1.0, 2.0]], ["matrices of 1 x 2"]),
        ("symmetric", [[1.0, 2.0], [1.75, 1.0]], ["equal their transposes", "up to 0.25", "(x + x.mT) / 2"]),
        ("positive_definite", [[1.0, 2.0], [2.0, 1.0]], ["eigenvalues > 0", "an eigenvalue of -1"]),
        ("positive_definite", [[1.0, 1.0], [1.0, 1.0]], ["eigenvalues > 0"]),
        ("positive_semidefinite", [[1.0, 2.0], [2.0, 1.0]], ["eigenvalues >= 0", "an eigenvalue of -1"]),
        ("lower_triangular", [[1.0, 2.0], [0.0, 1.0]], ["up to 2 above the diagonal", "x.tril()"]),
        ("lower_triangular", [1.0, 2.0], ["1 dimensions"]),
        ("lower_cholesky", [[1.0, 0.0], [2.0, -1.0]], ["positive diagonal", "-1 on the diagonal"]),
        ("lower_cholesky", [[1.0, 0.0]], ["1 x 2"]),
        ("corr_cholesky", [[1.0, 0.0], [2.0, 1.0]], ["rows of length 1", "differs from 1 by 1.24"]),
        ("simplex", [0.5, 0.25], ["the sum 1", "differs from 1 by 0.25", "softmax"]),
        ("simplex", [1.5, -0.5], ["an element of -0.5"]),
        ("simplex", 1.0, ["0 dimensions"]),
        ("sphere", [[1.0, 0.0], [1.0, 1.0]], ["vectors of length 1", "differs from 1 by 0.414", "normalize"]),
        ("sphere", 1.0, ["0 dimensions"]),
        ("orthogonal", [[1.0, 1.0], [0.0, 1.0]], ["orthonormal columns", "off by 1", "qr"]),
        ("orthogonal", [[1.0, 0.0]], ["as many rows as columns or more", "1 x 2"]),
    ],
)  # fmt: skip
def test_an_argument_outside_of_its_set_is_refused(constraint: Any, x: Any, messages: list[str]) -> None:
    tensor = torch.tensor(x, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"^constraints: 'weight' is declared") as raised:
        resolve_constraints({"weight": constraint}, ["input 0", "weight"], [torch.ones(2), tensor])
    for message in (*messages, f"got a float64 tensor of shape {tuple(tensor.shape)}", "by a dict from names to constraints"):
        assert message in str(raised.value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["sphere", "orthogonal", "simplex", "corr_cholesky", "positive_semidefinite"])
def test_rounding_of_the_argument_is_no_violation(name: str, dtype: torch.dtype) -> None:
    x = POINTS[name].to(dtype)
    if name == "positive_semidefinite":
        x = torch.ones(3, 3, dtype=dtype) * 0.1
    assert the(name, x).curve(x, normal(*x.shape)).point(0.5).dtype == dtype


@pytest.mark.parametrize("name", POINTS)
def test_empty_arguments_have_nothing_to_violate(name: str) -> None:
    for shape in ((0, 2, 2), (0, 0)):
        x = torch.empty(shape)
        assert the(name, x).curve(x, x).point(0.5).shape == shape

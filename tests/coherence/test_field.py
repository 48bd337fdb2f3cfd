"""Conservativeness of supplied fields: known rotations and their strength, coherent controls, kinks, noise, and what the arguments must be."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import pairgrad as pg
from pairgrad.coherence import Antisymmetry, Subject, antisymmetry, circulation, component

UNIT = 2.0**-53
CONTROL = 4e-8  # the published control of the two-class construction
DIGITS = 5e-4  # three digits
# Steps are 2^-12 to 2^-4 of the point, so a gradient rounded some 16 times leaves 16 * 2^12 roundings in a derivative, at worst.
FLOOR = 16 * 2**12 * UNIT


class Supplied(torch.autograd.Function):
    """A function of one tensor whose backward supplies its gradient changed by `change(x, gradient)`."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, value: Callable[..., Any], change: Callable[..., Any]) -> torch.Tensor:
        with torch.enable_grad():
            leaf = x.detach().clone().requires_grad_()
            out = value(leaf)
            (gradient,) = torch.autograd.grad(out, leaf)
        ctx.save_for_backward(change(leaf.detach(), gradient))
        return out.detach()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0] * ctx.saved_tensors[0], None, None


def subject(value: Callable[..., Any], x: torch.Tensor, change: Callable[..., Any] = lambda x, gradient: gradient) -> Subject:
    return Subject(lambda x: Supplied.apply(x, value, change), (x,))


def rotation(size: int, first: int = 0, second: int = 1) -> torch.Tensor:
    """R with R x = the plane of two axes turned by a right angle: J - J^T of R x is 2 R."""
    matrix = torch.zeros(size, size, dtype=torch.float64)
    matrix[second, first], matrix[first, second] = 1.0, -1.0
    return matrix


def point(size: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def log_sum_exp(x: torch.Tensor) -> torch.Tensor:
    return torch.logsumexp(x, 0)


def two_class(realization: str, dtype: torch.dtype = torch.float64) -> Subject:
    """The construction of app:curl-proof: dim 128, temperature 1, f = 0, concentrations 4032 and 8064 along the first two axes, label 0."""
    state = pg.ClassState(torch.eye(2, 128, dtype=dtype), torch.tensor([4032.0, 8064.0], dtype=dtype))
    return Subject(
        lambda f: pg.vmf_cross_entropy(f, torch.tensor([0]), state, 1.0, realization=realization), (torch.zeros(1, 128, dtype=dtype),)
    )


def axes(size: int = 128) -> tuple[torch.Tensor, torch.Tensor]:
    first, second = torch.eye(2, size, dtype=torch.float64)
    return first, second


def network(activation: type[torch.nn.Module], seed: int) -> Subject:
    """Cross-entropy of a small network with respect to its 7 inputs and its parameters, 110 numbers."""
    torch.manual_seed(seed)
    net = torch.nn.Sequential(torch.nn.Linear(5, 8), activation(), torch.nn.Linear(8, 3)).double()
    inputs, labels = torch.randn(7, 5, dtype=torch.float64), torch.randint(3, (7,))
    return Subject(lambda inputs: torch.nn.functional.cross_entropy(net(inputs), labels), (inputs,), module=net)


def vmf_paired(seed: int) -> Subject:
    torch.manual_seed(seed)
    state = pg.ClassState(torch.randn(4, 16, dtype=torch.float64), 10 ** torch.linspace(1, 4, 4, dtype=torch.float64))
    features = torch.nn.functional.normalize(torch.randn(2, 16, dtype=torch.float64), dim=1)
    return Subject(lambda f: pg.vmf_cross_entropy(f, torch.tensor([0, 3]), state, 0.5, realization="paired"), (features,))


COHERENT = {
    "logsumexp": lambda seed: subject(log_sum_exp, point(12, seed)),
    "tanh network": lambda seed: network(torch.nn.Tanh, seed),
    "vmf paired": vmf_paired,
}


def test_two_class_from_supplied_gradients() -> None:
    audited = two_class("original")
    found = component(audited, *axes())
    assert f"{found.value:.5e}" == "-1.93915e-03"
    state = pg.ClassState(torch.eye(2, 128, dtype=torch.float64), torch.tensor([4032.0, 8064.0], dtype=torch.float64))
    known = pg.update_field(torch.zeros(1, 128, dtype=torch.float64), torch.tensor([0]), state, 1.0).antisymmetry_along(*axes()).item()
    assert abs(found.value - known) <= found.error <= CONTROL
    assert 0 < found.noise_floor <= found.error
    assert found.significant
    block = antisymmetry(audited, exact_up_to=0)
    assert block.significant
    assert abs(block.norm - math.sqrt(2) * abs(known)) <= 3 * block.spread
    loop = circulation(audited, directions=axes(), nodes=16)
    assert loop.significant
    # Stokes: the work is minus the component times the area, up to how much the component varies over it; it decays like 1 / kappa
    assert loop.work == pytest.approx(-known * math.pi * loop.radius**2, rel=1e-2)


@pytest.mark.parametrize("name", ["consistent", "paired"])
def test_two_class_controls(name: str) -> None:
    found = component(two_class(name), *axes())
    assert abs(found.value) <= found.error <= CONTROL
    assert not found.significant
    assert not circulation(two_class(name), directions=axes(), nodes=16).significant


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 4))])
@pytest.mark.parametrize("name", COHERENT)
def test_coherent_losses_have_a_potential(name: str, seed: int) -> None:
    audited = COHERENT[name](seed)
    for exact_up_to in (256, 0):
        found = antisymmetry(audited, exact_up_to=exact_up_to, seed=seed)
        assert found.exact == (exact_up_to == 256)
        assert not found.significant, found
        assert found.norm <= found.norm_error
        assert 0 < found.noise_floor <= found.norm_error <= FLOOR * found.size * found.symmetric_norm
        assert "nothing speaks against a potential" in str(found)
        for directions in (found, None):
            loop = circulation(audited, directions=directions, seed=seed)
            assert not loop.significant, loop
            assert abs(loop.work) <= loop.error <= FLOOR * loop.magnitude
            assert "nothing speaks against a potential" in str(loop)


@pytest.mark.parametrize("factor", [0.5, -3.0])
def test_a_constant_factor_is_conservative(factor: float) -> None:
    for seed in range(4):
        audited = subject(log_sum_exp, point(12, seed), lambda _, gradient: factor * gradient)
        assert not antisymmetry(audited, seed=seed).significant
        assert not circulation(audited, seed=seed).significant


def test_a_factor_that_varies_is_not() -> None:
    """G = c(x) grad f with c depending on one coordinate: J - J^T = grad f (grad c)^T - grad c (grad f)^T."""
    x = point(6)
    found = antisymmetry(subject(log_sum_exp, x, lambda x, gradient: (1 + 0.01 * x[2]) * gradient))
    change = torch.zeros(6, dtype=torch.float64)
    change[2] = 0.01
    product = torch.outer(torch.softmax(x, 0), change)
    assert (found.matrix - (product - product.T)).abs().max() <= found.errors.max() <= FLOOR
    assert found.significant


@pytest.mark.parametrize("size", [2, 20])
@pytest.mark.parametrize("strength", [1e-6, 0.3])
def test_strength_of_a_rotation(size: int, strength: float) -> None:
    turn = rotation(size)
    x = point(size)
    audited = subject(log_sum_exp, x, lambda x, gradient: gradient + strength * turn @ x)
    found = antisymmetry(audited)
    assert found.significant
    assert found.norm == pytest.approx(2 * math.sqrt(2) * strength, rel=DIGITS)
    assert abs(found.norm - 2 * math.sqrt(2) * strength) <= found.norm_error
    assert ((found.matrix - 2 * strength * turn).abs() <= found.errors + 4 * UNIT).all()
    assert torch.equal(found.matrix, -found.matrix.T)
    p = torch.softmax(x, 0)
    hessian = torch.diag(p) - torch.outer(p, p)
    assert found.symmetric_norm == pytest.approx(2 * torch.linalg.matrix_norm(hessian).item(), rel=1e-8)
    assert found.share == pytest.approx(found.norm / math.hypot(found.norm, found.symmetric_norm))
    assert "the gradient of no twice differentiable function" in str(found)
    first, second = axes(size)
    assert found.component(first, second) == pytest.approx(-2 * strength, rel=DIGITS)
    assert found.component((second,), (first,)) == pytest.approx(2 * strength, rel=DIGITS)
    single = component(audited, 3 * first, 0.5 * second)
    assert abs(single.value - 1.5 * -2 * strength) <= single.error
    assert single.significant


def test_one_bad_entry_among_many() -> None:
    """The norm of the error bars of 16384 entries hides a rotation that one entry shows."""
    audited = subject(log_sum_exp, point(128), lambda x, gradient: gradient + 3e-12 * rotation(128) @ x)
    found = antisymmetry(audited)
    assert found.significant
    assert found.norm < 4 * found.norm_error
    assert not antisymmetry(subject(log_sum_exp, point(128))).significant


def linear(matrix: torch.Tensor, seed: int = 0) -> Subject:
    return subject(lambda x: 0 * x.sum(), point(len(matrix), seed), lambda x, _: matrix @ x)


@pytest.mark.parametrize("rank", ["two", "full"])
def test_block_estimates_are_unbiased_with_the_stated_spread(rank: str) -> None:
    size, probes, seeds = 12, 4, 150
    matrix = torch.randn(size, size, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    matrix = matrix + 5 * torch.eye(size, dtype=torch.float64)  # most of the symmetric part
    if rank == "two":
        matrix = matrix + matrix.T + 2 * rotation(size)
    audited = linear(matrix)
    exact = antisymmetry(audited)
    assert exact.spread == 0
    blocks = [antisymmetry(audited, probes=probes, exact_up_to=0, seed=seed) for seed in range(seeds)]
    assert not any(block.exact for block in blocks)
    assert all(block.significant for block in blocks)
    for key in ("norm", "symmetric_norm"):
        squares = torch.tensor([getattr(block, key) for block in blocks], dtype=torch.float64).square()
        assert abs(squares.mean() - getattr(exact, key) ** 2) <= 4 * squares.std() / math.sqrt(seeds), key  # one false alarm in 16000
    squares = torch.tensor([block.norm for block in blocks], dtype=torch.float64).square() / exact.norm**2
    stated = 2 * blocks[0].spread / blocks[0].norm  # relative, of the square
    if rank == "two":
        assert squares.std().item() == pytest.approx(stated, rel=0.35)  # kurtosis near 6: a standard deviation to 10 % in 150 samples
    else:
        assert squares.std().item() < stated
    within = [abs(block.norm - exact.norm) <= 3 * max(block.spread, stated / 2 * exact.norm) for block in blocks]
    assert all(within)


def test_block_is_the_matrix_in_its_directions() -> None:
    matrix = torch.randn(12, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    block = antisymmetry(linear(matrix), probes=3, exact_up_to=0)
    directions = block.directions
    assert directions is not None
    assert (directions.T @ directions - torch.eye(3, dtype=torch.float64)).abs().max() <= 1e-9
    assert (block.matrix - directions.T @ (matrix - matrix.T) @ directions).abs().max() <= block.errors.max() <= FLOOR * 100
    with pytest.raises(ValueError, match="component needs all 12 columns, got a block of 3"):
        block.component(torch.ones(12), torch.ones(12))


@pytest.mark.parametrize("value", [lambda x: 0 * x.sum(), log_sum_exp], ids=["rotation", "with a gradient"])
def test_lower_bound_is_one_and_is_reached(value: Callable[..., Any]) -> None:
    """The rotation s R x is s radius long on its circle around 0: so far from G is grad f, and no gradient field comes nearer."""
    size, strength, radius = 5, 0.25, 0.75
    turn = rotation(size, 1, 3)
    audited = subject(value, torch.zeros(size, dtype=torch.float64), lambda x, gradient: gradient + strength * turn @ x)
    eye = torch.eye(size, dtype=torch.float64)
    loop = circulation(audited, radius=radius, directions=(eye[1], 2 * eye[3] + eye[1]))
    assert loop.work == pytest.approx(2 * math.pi * radius**2 * strength, rel=1e-12)
    assert loop.length == pytest.approx(2 * math.pi * radius)
    distance = strength * radius
    assert distance * (1 - 1e-9) <= loop.lower_bound <= distance
    assert loop.significant
    assert loop.lower_bound_relative == pytest.approx(loop.lower_bound / loop.size)
    assert "is the gradient of nothing" in str(loop)
    if value is not log_sum_exp:
        assert loop.relative == pytest.approx(1)
        assert loop.lower_bound_relative == pytest.approx(1)
    reverse = circulation(audited, radius=radius, directions=(eye[3], eye[1]))
    assert reverse.work == pytest.approx(-loop.work)


def test_lower_bound_holds_for_other_functions() -> None:
    """Off the centre, against some hundred psi: none comes nearer than the bound."""
    size, x = 4, point(4)
    turn = rotation(size) + 0.5 * rotation(size, 1, 2)
    audited = subject(log_sum_exp, x, lambda x, gradient: gradient + turn @ x)
    loop = circulation(audited)
    assert loop.significant
    a, b = loop.directions
    angles = torch.linspace(0, 2 * math.pi, 201, dtype=torch.float64)[:, None]
    places = x + loop.radius * (angles.cos() * a + angles.sin() * b)
    field = torch.softmax(places, 1) + places @ turn.T
    nearest = math.inf
    for seed in range(100):
        generator = torch.Generator().manual_seed(seed)
        hessian = torch.randn(size, size, dtype=torch.float64, generator=generator) * seed / 100
        hessian = (hessian + hessian.T) / 2
        gradient = (places - x) @ hessian + turn @ x + torch.softmax(places, 1)  # of a function: a quadratic one, and logsumexp
        nearest = min(nearest, torch.linalg.vector_norm(field - gradient, dim=1).max().item())
    assert loop.lower_bound <= nearest <= 3 * loop.lower_bound


def test_plane_of_the_antisymmetry() -> None:
    turn = 1e-4 * rotation(9, 2, 5) + 1e-5 * rotation(9, 0, 1)
    audited = subject(log_sum_exp, point(9), lambda x, gradient: gradient + turn @ x)
    found = antisymmetry(audited)
    loop = circulation(audited, directions=found)
    for direction in loop.directions:
        assert torch.linalg.vector_norm(direction[[2, 5]]).item() == pytest.approx(1, abs=1e-5)
    assert abs(loop.work) == pytest.approx(1e-4 * 2 * math.pi * loop.radius**2, rel=1e-4)
    block = antisymmetry(audited, probes=4, exact_up_to=0)
    a, b = circulation(audited, directions=block).directions
    largest = torch.linalg.matrix_norm(block.matrix, 2).item()
    assert abs(a @ (2 * turn) @ b).item() == pytest.approx(largest, rel=1e-4)


@pytest.mark.parametrize("radius", [None, 3.0])
def test_kinks_are_no_false_alarm(radius: float | None) -> None:
    crossed = 0
    for seed in range(20):
        audited = network(torch.nn.ReLU, seed)
        loop = circulation(audited, radius=radius, seed=seed)
        assert not loop.significant, (seed, loop)
        crossed += loop.error > 1e-6 * loop.magnitude
    assert crossed >= 5  # of these loops cross kinks, so that the test is about them


def test_kinks_at_and_near_the_point() -> None:
    """max(x) at a tie and |x| at and next to 0: differences across a kink are no derivatives, and the error bars say so."""
    weights = torch.tensor([[1.0, 2.0, -1.0], [0.5, -1.0, 1.0]], dtype=torch.float64)

    def folded(x: torch.Tensor) -> torch.Tensor:
        return (x @ weights.T).abs().sum() * torch.exp(x[0]) + x.amax()

    for distance in (0.0, 1e-5, 1e-3, 1e-2):
        x = torch.tensor([1.0, 0.0, 1.0 + distance], dtype=torch.float64)
        found = antisymmetry(subject(folded, x))
        assert not found.significant, (distance, found)
        assert not circulation(subject(folded, x), directions=tuple(torch.eye(2, 3, dtype=torch.float64))).significant
    for seed in range(20):
        assert not antisymmetry(network(torch.nn.ReLU, seed), exact_up_to=0, seed=seed).significant


def test_error_bar_covers_what_every_other_node_gives() -> None:
    """sin(128 angle): 256 nodes see alternating signs, every other one a constant."""
    audited = subject(
        lambda x: torch.sin(128 * torch.atan2(x[1], x[0])), torch.zeros(2, dtype=torch.float64), lambda _, gradient: gradient.nan_to_num()
    )
    loop = circulation(audited, directions=axes(2), nodes=256)
    assert abs(loop.work) <= 1e-9 * loop.magnitude
    assert loop.error >= loop.magnitude * (1 - 1e-9)
    assert not loop.significant


def test_a_rotation_is_found_across_kinks() -> None:
    turn = rotation(6)
    audited = subject(lambda x: torch.relu(x).sum(), 0.1 * point(6), lambda x, gradient: 0.01 * gradient + turn @ x)
    loop = circulation(audited, radius=1.0, directions=axes(6), nodes=256)
    assert loop.error > 1e-6
    assert loop.significant
    assert abs(loop.work - 2 * math.pi) <= loop.error


def test_lower_precision_shows_in_the_noise_floor() -> None:
    """float32 inputs, and a gradient that takes a detour through float32, behind float64 inputs."""
    for seed in range(5):
        x = point(12, seed)
        double = antisymmetry(subject(log_sum_exp, x), seed=seed)
        for audited in (subject(log_sum_exp, x.float()), subject(log_sum_exp, x, lambda _, gradient: gradient.float().double())):
            single = antisymmetry(audited, seed=seed)
            assert not single.significant
            assert single.norm <= single.norm_error
            assert single.noise_floor > 1e5 * double.noise_floor
            assert single.norm > 1e-8  # there is noise to be doubted
            assert not circulation(audited, seed=seed).significant
        half = subject(log_sum_exp, x.bfloat16())
        assert not antisymmetry(half, seed=seed).significant
        assert not circulation(half, seed=seed).significant


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_displacements_add_no_rounding(dtype: torch.dtype) -> None:
    """The gradient 2 x is exact, so that all there is to see of J - J^T would come from displacements that are rounded."""
    given = (100 * point(5).to(dtype), 1e-3 * point(3, 1).to(dtype), torch.zeros(2, dtype=dtype))
    given[0][3] = 1e-5 / 3  # whose last digits are lost in any sum with a step
    found = antisymmetry(Subject(lambda *tensors: sum(tensor.square().sum() for tensor in tensors), given), probes=3, exact_up_to=0)
    assert found.norm <= 16 * UNIT * found.symmetric_norm


def test_one_coordinate_always_has_a_potential() -> None:
    audited = subject(lambda x: x.exp().sum(), torch.ones(1, dtype=torch.float64), lambda _, gradient: 7 * gradient)
    found = antisymmetry(audited)
    assert (found.norm, found.norm_error, found.significant, found.exact, found.size) == (0, 0, False, True, 1)
    assert found.symmetric_norm == pytest.approx(14 * math.e)
    assert "one coordinate always has a potential" in str(found)
    assert component(audited, torch.ones(1), torch.ones(1)).value == 0
    with pytest.raises(ValueError, match="subject must have two coordinates or more for a loop, got one"):
        circulation(audited)
    with pytest.raises(ValueError, match="plane needs two coordinates"):
        found.plane()


def test_fields_that_vanish() -> None:
    for value in (lambda x: x.square().sum(), lambda x: 0 * x.sum()):
        audited = subject(value, torch.zeros(4, dtype=torch.float64))
        found = antisymmetry(audited)
        loop = circulation(audited, directions=found)
        assert not circulation(audited).significant
        assert not found.significant
        assert not loop.significant
        assert math.isfinite(found.share + loop.relative + loop.lower_bound_relative)
    constant = antisymmetry(subject(lambda x: (x * point(4, 1)).sum(), point(4)))  # without any noise to measure
    assert 4 * UNIT < constant.noise_floor <= constant.norm_error
    unused = Subject(lambda x, y: x.square().sum(), (point(3), point(2)))
    assert not antisymmetry(unused).significant


def test_steps_that_leave_the_domain_are_left_out() -> None:
    x = torch.tensor([1.0, 0.03, 0.5], dtype=torch.float64)  # a step of rms / 16 makes the second negative
    found = antisymmetry(subject(lambda x: x.sqrt().prod() + x.sqrt().sum(), x))
    assert not found.significant
    assert found.norm_error < 1e-6 * found.symmetric_norm  # steps 0.34, 0.08, 0.02 of it and less: their product squared is 4e-7
    with pytest.raises(ValueError, match="subject must supply finite gradients"):
        antisymmetry(subject(lambda x: x.sqrt().sum(), torch.tensor([1.0, 1e-5], dtype=torch.float64)))
    with pytest.raises(ValueError, match="subject must supply finite gradients"):
        antisymmetry(subject(lambda x: x.sqrt().sum(), torch.tensor([1.0, 1e-12], dtype=torch.float64)))
    with pytest.raises(ValueError, match="radius must keep the loop where the supplied gradient is finite, got 0"):
        circulation(subject(lambda x: x.sqrt().sum(), x), radius=0.5, directions=axes(3))


def test_parameters_and_generators_are_put_back() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Dropout(0.5), torch.nn.Tanh()).double()
    before = [parameter.detach().clone() for parameter in net.parameters()]
    inputs = torch.randn(6, 4, dtype=torch.float64)
    state = torch.get_rng_state()
    audited = Subject(lambda inputs: net(inputs).square().sum(), (inputs,), module=net)
    assert not antisymmetry(audited).significant
    assert not circulation(audited).significant
    assert all(torch.equal(old, new) for old, new in zip(before, net.parameters(), strict=True))
    assert torch.equal(state, torch.get_rng_state())


def test_results_repeat_and_follow_the_seed() -> None:
    audited = subject(log_sum_exp, point(12))
    assert circulation(audited, seed=3).work == circulation(audited, seed=3).work
    assert not torch.equal(circulation(audited, seed=3).directions[1], circulation(audited, seed=4).directions[1])
    one, two, other = (antisymmetry(audited, exact_up_to=0, seed=seed) for seed in (3, 3, 4))
    assert torch.equal(one.matrix, two.matrix)
    assert not torch.equal(one.matrix, other.matrix)
    first = circulation(audited).directions[0]
    assert (first - torch.nn.functional.normalize(torch.softmax(point(12), 0), dim=0)).abs().max() <= 8 * UNIT
    # a point drawn with the seed of the audit is its own gradient here: the random direction is another
    assert not circulation(subject(lambda x: x.square().sum(), point(16, 3)), seed=3).significant


def smooth() -> Subject:
    return subject(log_sum_exp, point(4))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: antisymmetry(log_sum_exp), TypeError, "subject must be a Subject, got .*: make one with Subject"),  # type: ignore[arg-type]
        (
            lambda: antisymmetry(Subject(torch.exp, point(4))),
            ValueError,
            r"one output, a single number, got \(4,\): .*sum or weigh its outputs",
        ),
        (lambda: circulation(Subject(lambda x: (x.sum(), x.prod()), point(4))), ValueError, r"single number, got \(\), \(\)"),
        (lambda: component(Subject(torch.exp, point(4)), *axes(4)), ValueError, "sum or weigh its outputs first"),
        (lambda: antisymmetry(subject(lambda x: x.sqrt().sum(), -point(4).abs())), ValueError, "finite gradient at its inputs"),
        (lambda: antisymmetry(subject(lambda x: x.nan_to_num().sum(), point(4) * math.nan)), ValueError, "subject must have finite inputs"),
        (lambda: antisymmetry(smooth(), probes=1), ValueError, "probes must be an integer >= 2, got 1"),
        (lambda: antisymmetry(smooth(), exact_up_to=2.5), TypeError, "exact_up_to must be an integer"),  # type: ignore[arg-type]
        (lambda: antisymmetry(smooth(), seed=-1), ValueError, "seed must be an integer >= 0"),
        (lambda: component(smooth(), torch.ones(3), torch.ones(4)), ValueError, r"first must be a direction: a tensor of shape \(4,\)"),
        (lambda: component(smooth(), torch.ones(4), 1.0), ValueError, r"second must be a direction.* got 1.0 \(float\)"),  # type: ignore[arg-type]
        (lambda: component(smooth(), torch.ones(4), torch.zeros(4)), ValueError, "second must be a direction, got zeros"),
        (lambda: component(smooth(), torch.full((4,), math.inf), torch.zeros(4)), ValueError, "first must be finite"),
        (lambda: antisymmetry(smooth()).component((torch.ones(2), torch.ones(2)), torch.ones(4)), ValueError, "first must be a direction"),
        (lambda: circulation(smooth(), radius=0.0), ValueError, "radius must be a positive finite number or None, got 0.0"),
        (lambda: circulation(smooth(), nodes=8), ValueError, "nodes must be an integer >= 16"),
        (lambda: circulation(smooth(), nodes=33), ValueError, "nodes must be even, got 33"),
        (lambda: circulation(smooth(), directions=torch.ones(4)), TypeError, "directions must be two directions, an Antisymmetry or None"),  # type: ignore[arg-type]
        (lambda: circulation(smooth(), directions=(torch.ones(4), -torch.ones(4))), ValueError, "directions must span a plane"),
        (lambda: circulation(smooth(), directions=(torch.ones(4), torch.ones(5))), ValueError, r"directions\[1\] must be a direction"),
        (
            lambda: circulation(smooth(), directions=antisymmetry(subject(log_sum_exp, point(3)))),
            ValueError,
            "with 4 coordinates, got .* of 3",
        ),
    ],
)
def test_errors_name_the_argument(call: Callable[[], Antisymmetry], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()

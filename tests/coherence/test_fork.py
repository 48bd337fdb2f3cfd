"""The fork: against closed forms of what a wrong factor does under SGD, and against the geometry of best scalings."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.autograd import Function

from pairgrad.coherence import Fork, best_scaling, fork

EPS = 1e-3
ROUNDINGS = 2.0**-53 * 1e3  # relative: a hundred updates of a few roundings each, against a power computed at once


class Square(Function):
    """sum x^2 / 2 with the gradient (1 + EPS) x."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.square().sum() / 2

    @staticmethod
    def backward(ctx, u):
        return (1 + EPS) * u * ctx.saved_tensors[0]


class Bent(Function):
    """The same with a gradient bent towards the first axis."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.square().sum() / 2

    @staticmethod
    def backward(ctx, u):
        g = u * ctx.saved_tensors[0].clone()
        g[0] += 0.3
        return g


def sgd(rate: float) -> Any:
    return lambda tensors: torch.optim.SGD(tensors, lr=rate)


def test_a_wrong_factor_under_sgd_has_a_closed_form() -> None:
    """theta_s = (1 - h (1 + eps))^n theta_0 and theta_c = (1 - h)^n theta_0."""
    x = torch.randn(7, dtype=torch.float64)
    h, n = 0.05, torch.arange(101, dtype=torch.float64)
    result = fork(Square.apply, x, steps=100, optimizer=sgd(h))
    shrunk, right = (1 - h * (1 + EPS)) ** n, (1 - h) ** n
    assert result.steps == 100
    assert result.stopped is None
    assert result.distance.dtype == torch.float64
    assert result.distance[0] == 0
    assert torch.allclose(result.distance, (1 - right / shrunk).abs(), rtol=0, atol=ROUNDINGS)
    assert torch.allclose(result.supplied_loss, shrunk**2 * x.square().sum() / 2, rtol=ROUNDINGS, atol=0)
    assert torch.allclose(result.consistent_loss, right**2 * x.square().sum() / 2, rtol=ROUNDINGS, atol=0)
    assert result.one_step["gradient"] == pytest.approx(EPS, rel=1e-12)
    # updates are differences of parameters 20 times as long
    assert result.one_step["update"] == pytest.approx(EPS, rel=1e-10)
    assert result.one_step["rescaled"] < 1e-13
    assert result.optimizer == "SGD(lr=0.05)"


def test_a_bent_gradient_is_not_mended_by_rescaling() -> None:
    x = torch.tensor([3.0, 4.0], dtype=torch.float64)
    result = fork(Bent.apply, x, steps=1, optimizer=sgd(0.1))
    assert result.one_step["gradient"] == pytest.approx(0.3 / 5, rel=1e-13)
    # b = (3.3, 4) and a = (3, 4): what is left is the part of b across a, |3.3 * 4 - 4 * 3| / 5
    assert result.one_step["rescaled"] == pytest.approx(1.2 / 5 / math.hypot(3.3, 4), rel=1e-12)
    assert result.steps == 1
    assert len(result.distance) == 2
    assert result.distance[1].item() == pytest.approx(0.03 / math.hypot(2.67, 3.6), rel=1e-12)


def test_the_default_rate_moves_by_a_hundredth() -> None:
    x = torch.randn(5, dtype=torch.float64)
    result = fork(Square.apply, x, steps=1)  # g_c = theta
    assert result.optimizer == "SGD(lr=0.01)"
    assert torch.allclose(result.consistent_loss[1], 0.99**2 * x.square().sum() / 2, rtol=1e-14)


def test_a_factor_does_nothing_to_signs() -> None:
    x = torch.randn(5, dtype=torch.float64)
    result = fork(Square.apply, x, steps=3, optimizer=lambda tensors: torch.optim.Rprop(tensors, lr=1e-3))
    assert result.one_step["gradient"] == pytest.approx(EPS, rel=1e-12)
    assert result.one_step["update"] == 0
    assert not result.distance.any()


def test_an_optimizer_with_memory_has_one_for_each_branch() -> None:
    x = torch.randn(5, dtype=torch.float64)
    result = fork(Square.apply, x, steps=30, optimizer=lambda tensors: torch.optim.SGD(tensors, lr=0.02, momentum=0.9))
    theta, velocity = x.clone(), torch.zeros_like(x)
    for _ in range(30):
        velocity = 0.9 * velocity + (1 + EPS) * theta
        theta = theta - 0.02 * velocity
    assert torch.allclose(result.supplied_loss[-1], theta.square().sum() / 2, rtol=1e-11)


def test_a_coherent_function_stays_together() -> None:
    result = fork(lambda x: x.sin().sum(), torch.randn(5, dtype=torch.float64), steps=5)
    assert not result.distance.any()
    assert torch.equal(result.supplied_loss, result.consistent_loss)
    assert result.one_step == {"gradient": 0.0, "update": 0.0, "rescaled": pytest.approx(0, abs=1e-14)}


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([1.0, 2.0], dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return Square.apply(self.weight) + 0 * data.sum() * self.count


@pytest.mark.parametrize("wrapped", [False, True])
def test_parameters_are_updated_and_data_is_not_and_all_is_put_back(wrapped: bool) -> None:
    model, data = Model(), torch.ones(3, dtype=torch.float64)
    state = torch.get_rng_state()
    if wrapped:
        result = fork(lambda data: model(data), data, steps=4, optimizer=sgd(0.1), parameters=model)
    else:
        result = fork(model, data, steps=4, optimizer=sgd(0.1))
    assert torch.allclose(result.consistent_loss, 2.5 * 0.81 ** torch.arange(5, dtype=torch.float64), rtol=1e-14)
    # the gap is relative to the weights alone, not to weights and data
    assert result.distance[1].item() == pytest.approx(0.1 * EPS / (0.9 - 0.1 * EPS), rel=1e-10)
    assert torch.equal(model.weight, torch.tensor([1.0, 2.0], dtype=torch.float64))
    assert model.weight.grad is None
    assert model.count == 0
    assert torch.equal(torch.get_rng_state(), state)


def test_inputs_that_ask_for_a_gradient_are_updated_alone_and_left_unchanged() -> None:
    x, y = torch.ones(2, dtype=torch.float64, requires_grad=True), torch.ones(2, dtype=torch.float64)
    result = fork(lambda x, y: Square.apply(x) + Square.apply(y), (x, y), steps=1, optimizer=sgd(0.1))
    assert result.consistent_loss.tolist() == pytest.approx([2.0, 1 + 0.81], rel=1e-14)
    assert torch.equal(x, torch.ones(2, dtype=torch.float64))
    assert x.grad is None


def test_another_implementation_can_be_the_consistent_one() -> None:
    x = torch.randn(300, dtype=torch.float64)
    own, other = (
        fork(Square.apply, x, steps=10, optimizer=sgd(0.05), consistent=c)
        for c in ("forward", lambda x: x.square().sum() / 2 * (1 + 2.0**-50))
    )
    assert other.consistent_loss[0] != other.supplied_loss[0]  # it rounds differently
    assert torch.allclose(own.distance, other.distance, rtol=0, atol=ROUNDINGS)
    assert own.distance[-1] > 1e-4


def test_two_implementations_on_one_module_start_from_the_same_buffers() -> None:
    model, data = Model(), torch.ones(3, dtype=torch.float64)

    def right(data: torch.Tensor) -> torch.Tensor:
        model.count += 1
        return model.weight.square().sum() / 2 + (data.sum() * model.count)

    def wrong(data: torch.Tensor) -> torch.Tensor:
        return model(data) + data.sum() * model.count

    result = fork(wrong, data, steps=2, optimizer=sgd(0.1), consistent=right, parameters=model)
    assert result.consistent_loss[0] == 2.5 + 3
    assert result.one_step["gradient"] == pytest.approx(EPS, rel=1e-12)
    assert model.count == 0


def test_another_function_is_refused() -> None:
    x = torch.randn(7, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"same loss at the start, got .* supplied and .* consistent: consistent must compute"):
        fork(Square.apply, x, consistent=lambda x: 0.5001 * (x * x).sum())


def test_a_function_with_a_memory_is_refused() -> None:
    calls: list[int] = []

    def drifting(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return Square.apply(x) * (1 + 1e-12 * len(calls))

    with pytest.raises(ValueError, match="keeps something from call to call"):
        fork(drifting, torch.ones(2, dtype=torch.float64))


def test_random_numbers_are_the_same_in_both_branches() -> None:
    result = fork(lambda x: Square.apply(torch.nn.functional.dropout(x, 0.5)), torch.randn(50, dtype=torch.float64), steps=3)
    assert result.one_step["gradient"] == pytest.approx(EPS, rel=1e-12)


def test_a_loss_that_is_not_finite_ends_it() -> None:
    result = fork(
        Square.apply, torch.ones(2), steps=400, optimizer=sgd(101.0)
    )  # multiplies by -100 (and by -100.1) each time; 3.4e38 is the end
    assert 8 <= result.steps <= 10
    assert len(result.distance) == len(result.supplied_loss) == len(result.consistent_loss) == result.steps + 1
    assert torch.isfinite(result.supplied_loss).all()
    assert "was inf after update" in str(result.stopped)
    assert "stopped early" in str(result)


def test_text_shows_the_numbers() -> None:
    text = str(fork(Square.apply, torch.ones(2, dtype=torch.float64), steps=2, optimizer=sgd(0.1)))
    for part in ("2 updates with SGD(lr=0.1)", "first gradient       0.001 apart", "1 at the start", "stopped"):
        assert (part in text) == (part != "stopped"), text
    assert isinstance(fork(Square.apply, torch.ones(2), steps=1), Fork)


def test_errors_name_the_argument() -> None:
    x = torch.ones(2)
    with pytest.raises(ValueError, match="steps must be an integer >= 1"):
        fork(Square.apply, x, steps=0)
    with pytest.raises(ValueError, match='consistent must be "forward" or a callable'):
        fork(Square.apply, x, consistent="backward")
    with pytest.raises(ValueError, match=r"fn must return one loss.*\[\(2,\)\]"):
        fork(torch.sin, x)
    with pytest.raises(ValueError, match="depends on its inputs"):
        fork(lambda x: torch.ones(()), x)
    with pytest.raises(ValueError, match="finite loss at the inputs, got nan"):
        fork(lambda x: x.sum() * math.nan, x)
    with pytest.raises(TypeError, match=r"optimizer must make a torch.optim.Optimizer"):
        fork(Square.apply, x, optimizer=lambda tensors: 3)  # type: ignore[arg-type,return-value]
    with pytest.raises(TypeError, match=r"parameters must be a torch.nn.Module"):
        fork(Square.apply, x, parameters=[x])  # type: ignore[arg-type]
    first, second = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
    with pytest.raises(ValueError, match="same tensors with the same values"):
        fork(lambda x: first(x).sum(), x, consistent=second, parameters=None)


def test_best_scaling_is_the_projection() -> None:
    a, b = torch.randn(2, 3, 4, dtype=torch.float64)
    scaling = best_scaling([b[:2], b[2]], [a[:2], a[2]])
    factor = (a * b).sum() / a.square().sum()
    assert scaling.factor == pytest.approx(factor.item(), rel=1e-13)
    assert scaling.residual == pytest.approx(((b - factor * a).norm() / b.norm()).item(), rel=1e-13)


def test_best_scaling_per_sample() -> None:
    a, b = torch.randn(2, 3, 4, dtype=torch.float64)
    scaling = best_scaling([b, b[:, 0]], [a, a[:, 0]], per_sample=True)
    assert scaling.factor.shape == scaling.residual.shape == (3,)
    for i in range(3):
        alone = best_scaling([b[i], b[i, 0]], [a[i], a[i, 0]])
        assert scaling.factor[i].item() == pytest.approx(alone.factor, rel=1e-14)
        assert scaling.residual[i].item() == pytest.approx(alone.residual, rel=1e-14)


@pytest.mark.parametrize(
    ("dtype", "size"), [(torch.float32, 1e-38), (torch.float32, 1e38), (torch.float64, 1e-300), (torch.float64, 1e300)]
)
def test_squares_neither_overflow_nor_vanish(dtype: torch.dtype, size: float) -> None:
    a = torch.tensor([3.0, 4.0], dtype=torch.float64)
    b = torch.tensor([-8.0, 6.0], dtype=torch.float64) / 10 + 0.5 * a
    digits = 1e-5 if dtype is torch.float32 else 1e-13
    scaling = best_scaling([(b * size / 4).to(dtype)], [(a * size / 4).to(dtype)])
    assert scaling.factor == pytest.approx(0.5, rel=digits)
    assert scaling.residual == pytest.approx(1 / math.sqrt(1 + 2.5**2), rel=digits)
    assert best_scaling([a], [a * size]).factor == pytest.approx(1 / size, rel=digits)


def test_zeros() -> None:
    zero, one = torch.zeros(3), torch.ones(3)
    assert best_scaling([zero], [one]) == (0, 0)
    assert best_scaling([one], [zero]) == (0, 1)
    assert best_scaling([zero], [zero]) == (0, 0)
    assert math.isnan(best_scaling([one * math.nan], [one]).residual)


class Nudged(Function):
    """sum x^2 / 2 with one coordinate of the gradient off by 2^-50 of it."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.square().sum() / 2

    @staticmethod
    def backward(ctx, u):
        g = ctx.saved_tensors[0].clone()
        g[3] += g[3] * 2.0**-50
        return u * g


def test_small_gaps_of_gradients_keep_their_digits() -> None:
    x = torch.randn(50, dtype=torch.float64)
    exact = (x[3] + x[3] * 2.0**-50 - x[3]).abs().item() / x.norm().item()
    assert fork(Nudged.apply, x, steps=1).one_step["gradient"] == pytest.approx(exact, rel=1e-14)


@pytest.mark.parametrize("size", [1e-300, 1e300])
def test_gaps_of_gradients_whose_squares_overflow_or_vanish(size: float) -> None:
    x = torch.tensor([3.0, 4.0], dtype=torch.float64)
    result = fork(lambda x: Square.apply(x) * size, x, steps=1, optimizer=sgd(0.1 / size))
    assert result.one_step["gradient"] == pytest.approx(EPS, rel=1e-12)


def test_gaps_of_gradients_that_vanish() -> None:
    """A supplied gradient of nothing is off by all of it; where the derivative is zero, anything else is off by infinitely much."""

    class Nothing(Square):
        @staticmethod
        def backward(ctx, u):
            return torch.zeros_like(ctx.saved_tensors[0])

    ones, zeros = torch.ones(2, dtype=torch.float64), torch.zeros(2, dtype=torch.float64)
    assert fork(Nothing.apply, ones, steps=1, optimizer=sgd(0.1)).one_step["gradient"] == 1
    assert fork(Bent.apply, zeros, steps=1, optimizer=sgd(0.1)).one_step["gradient"] == math.inf
    assert fork(Nothing.apply, zeros, steps=1, optimizer=sgd(0.1)).one_step["gradient"] == 0


def test_shapes_must_agree() -> None:
    with pytest.raises(ValueError, match=r"the same shapes, got \[\(2,\)\] and \[\(3,\)\]"):
        best_scaling([torch.ones(2)], [torch.ones(3)])
    with pytest.raises(ValueError, match="at least one tensor"):
        best_scaling([], [])
    with pytest.raises(ValueError, match="one first dimension"):
        best_scaling([torch.ones(2), torch.ones(3)], [torch.ones(2), torch.ones(3)], per_sample=True)

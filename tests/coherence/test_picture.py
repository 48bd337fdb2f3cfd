"""The picture of the update field in a report: places, fields and values are those of the callable, and nothing is drawn where there is nothing to see."""

import math

import numpy as np
import pytest
import torch

import pairgrad as pg
from pairgrad.coherence import Report

X = torch.tensor([1.0, 0.5], dtype=torch.float64)
# Fourth-order differences over 1/32 of the picture, of functions whose fifth derivatives are of order one.
DIFFERENCES = 1e-5


class Turned(torch.autograd.Function):
    """|x|^2 + x_0 x_1 with a gradient that is turned by 0.3 (-x_1, x_0)."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.square().sum() + x[0] * x[1]

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * (2 * x + x.flip(0) + 0.3 * torch.stack([-x[1], x[0]]))


class Slightly(Turned):
    """The same turned by a millionth."""

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        g = 2 * x + x.flip(0)
        return grad_output * (g + 1e-6 * torch.stack([-g[1], g[0]]))


class Opaque(torch.autograd.Function):
    """The same with a forward that autograd cannot look into."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        a = x.detach().numpy()
        return torch.tensor(float((a * a).sum() + a[0] * a[1]), dtype=x.dtype)

    backward = Turned.backward


class Steep(torch.autograd.Function):
    """x^2, with a slope that is too steep by one in a million."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return 2.000002 * x * grad_output


def pictured(fn, x=X):
    report = pg.audit(fn, x, effort="quick", second_order=False)
    assert report.verdict == "incoherent", report
    return report.picture


@pytest.fixture(scope="module")
def turned():
    return pictured(Turned.apply)


def test_the_middle_is_the_inputs_and_the_axes_are_the_gradient_and_the_defect(turned):
    """In units of the size of the argument: the consistent gradient along x alone, the defect along both."""
    middle = len(turned.x) // 2
    assert (turned.x[middle], turned.y[middle]) == (0, 0)
    assert turned.value[middle][middle] == float(X.square().sum() + X.prod())
    assert turned.axes[1] == "across it, towards the defect"
    along, across = turned.consistent[middle][middle]
    assert across == pytest.approx(0, abs=1e-12)
    gradient, defect = 2 * X + X.flip(0), 0.3 * torch.stack([-X[1], X[0]])
    unit = along / float(gradient.norm())  # the size of the argument
    assert 0.5 <= unit <= 1
    off = float(defect @ gradient / gradient.norm())
    expected = unit * (float(gradient.norm()) + off), unit * math.sqrt(float(defect @ defect) - off**2)
    assert turned.supplied[middle][middle] == pytest.approx(expected, rel=1e-12)


def test_a_defect_of_a_millionth_still_spans_the_plane():
    assert pictured(Slightly.apply).axes[1] == "across it, towards the defect"


def test_the_consistent_field_is_the_gradient_of_the_values(turned):
    value, field = np.array(turned.value), np.array(turned.consistent)
    down, right = np.gradient(value, turned.y, turned.x, edge_order=2)  # exact for a quadratic
    np.testing.assert_allclose(field[..., 0], right, rtol=0, atol=1e-12)
    np.testing.assert_allclose(field[..., 1], down, rtol=0, atol=1e-12)
    assert not np.allclose(np.array(turned.supplied), field, rtol=1e-3)


def test_a_forward_that_cannot_be_looked_into_is_measured():
    picture = pictured(Opaque.apply)
    down, right = np.gradient(np.array(picture.value), picture.y, picture.x, edge_order=2)
    np.testing.assert_allclose(np.array(picture.consistent)[..., 0], right, rtol=0, atol=DIFFERENCES)
    np.testing.assert_allclose(np.array(picture.consistent)[..., 1], down, rtol=0, atol=DIFFERENCES)


def test_a_defect_of_length_alone_leaves_the_plane_to_the_curvature():
    class Long(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.square().sum() + x.prod() ** 2

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return 1.01 * (2 * x + 2 * x.prod() * x.flip(0)) * grad_output

    class Straight(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x.sum()

        @staticmethod
        def backward(ctx, grad_output):
            return torch.full((2,), 3.0, dtype=torch.float64) * grad_output

    assert pictured(Long.apply).axes[1] == "across it, the way it turns"
    assert pictured(Straight.apply).axes[1] == "across it, at random"


def test_a_defect_that_differences_cannot_see_is_not_drawn():
    class Waves(torch.autograd.Function):
        """sin(3 x), opaque, with a gradient that is off by one in ten million."""

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.tensor(float(np.sin(3 * x.detach().numpy()).sum()), dtype=x.dtype)

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return (1 + 1e-7) * 3 * torch.cos(3 * x) * grad_output

    picture = pictured(Waves.apply)
    assert picture.consistent is None
    assert np.isfinite(np.array(picture.supplied)).all()


def test_one_number_has_two_slopes(turned):
    picture = pictured(Steep.apply, torch.tensor(1.5, dtype=torch.float64))
    x = np.array(picture.x)
    assert picture.axes == ("input 0", "")
    assert (len(picture.y), picture.x[len(x) // 2]) == (1, 1.5)
    assert (x[0] + x[-1]) / 2 == pytest.approx(1.5)
    np.testing.assert_allclose(np.array(picture.supplied[0])[:, 0], 2.000002 * x, rtol=1e-15)
    np.testing.assert_allclose(np.array(picture.consistent[0])[:, 0], 2 * x, rtol=1e-15)
    # the coordinate that moves most moves by as much of the size in every picture
    gradient = 2 * X + X.flip(0)
    assert turned.x[-1] * float((gradient / gradient.norm()).abs().max()) == pytest.approx((x[-1] - 1.5) / 1.5, rel=1e-12)


@pytest.mark.parametrize("outside", ["nan", "raises"])
def test_outside_the_domain_there_is_nan(outside):
    def fn(x):
        if outside == "raises" and float(x.detach().sum()) < 1.2:
            raise ValueError("outside")
        return Turned.apply(x) + 0 * torch.where(x.sum() < 1.2, torch.nan, x.sum())

    picture = pictured(fn)
    bad = [[math.isnan(v) for v in row] for row in picture.value]
    assert any(map(any, bad))
    assert not all(map(all, bad))
    assert [[math.isnan(arrow[0]) for arrow in row] for row in picture.supplied] == bad
    assert [[math.isnan(arrow[0]) for arrow in row] for row in picture.consistent] == bad


def test_several_outputs_are_not_drawn():
    assert pictured(lambda x: (Turned.apply(x), x.prod())) is None
    assert pictured(lambda x: Steep.apply(x)) is None


def test_many_tensors_of_other_shapes_and_dtypes():
    """Sizes differ by 1e6: in units of the sizes both coordinates matter alike."""

    class Wide(torch.autograd.Function):
        @staticmethod
        def forward(ctx, w, b):
            ctx.save_for_backward(w, b)
            return (w * 1e3).square().sum() + (b / 1e3).square()

        @staticmethod
        def backward(ctx, grad_output):
            w, b = ctx.saved_tensors
            return 2e6 * w * grad_output, 2.5e-6 * b * grad_output

    w, b = torch.tensor([[1e-3, 2e-3]], dtype=torch.float32), torch.tensor(2e3, dtype=torch.float32)
    picture = pictured(Wide.apply, (w, b))
    lengths = np.linalg.norm(np.array(picture.supplied), axis=-1)
    assert np.isfinite(lengths).all()
    assert 1 < lengths[len(picture.y) // 2, len(picture.x) // 2] < 20


def test_there_is_a_picture_of_a_defect_at_the_inputs_alone(turned):
    assert pg.audit(Turned.apply, X, effort="quick", consequences=False).picture is None
    assert pg.audit(lambda x: x.square().sum(), X, effort="quick").picture is None
    report = pg.audit(Turned.apply, X, effort="quick", second_order=False)
    assert report.picture == turned
    assert Report.from_dict(report.to_dict()).picture == turned


def test_a_scanned_number_is_drawn_over_its_domain():
    """The slope is wrong everywhere by one in a million; the scan has both slopes already."""
    report = pg.audit(Steep.apply, domain=(1.0, 4.0), effort="quick")
    picture = report.picture
    assert len(picture.y) == 1
    assert list(picture.x) == sorted(picture.x)
    assert 1 <= picture.x[0] < 1.1
    assert 3.9 < picture.x[-1] <= 4
    x, supplied, consistent = (np.array(v) for v in (picture.x, picture.supplied[0], picture.consistent[0]))
    np.testing.assert_allclose(supplied[:, 0] - consistent[:, 0], 2e-6 * x, rtol=1e-3)
    np.testing.assert_allclose(np.array(picture.value[0]), x * x, rtol=1e-15)

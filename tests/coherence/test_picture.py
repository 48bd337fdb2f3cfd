"""The picture of the update field: places, fields and values are those of the callable, and nothing is drawn where there is nothing to see."""

import math

import numpy as np
import pytest
import torch

import pairgrad as pg
from pairgrad.coherence import Report, Subject
from pairgrad.coherence.consequences import Consistent
from pairgrad.coherence.path import scales
from pairgrad.coherence.picture import GRID, REACH, SLOPES, field_picture

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


def known(supplied, gradient, method="forward"):
    return Consistent((supplied,), (gradient,), method, 0.0)


def turned(x=X):
    consistent = 2 * x + x.flip(0)
    return known(consistent + 0.3 * torch.stack([-x[1], x[0]]), consistent)


def test_the_plane_is_spanned_by_the_gradient_and_the_defect_across_it():
    picture = field_picture(Subject(Turned.apply, X), turned())
    unit = float(scales(X, relative=False)[0])
    gradient = (2 * X + X.flip(0)) * unit
    defect = 0.3 * torch.stack([-X[1], X[0]]) * unit
    along = float(defect @ gradient / gradient.norm())
    middle = GRID // 2
    assert picture.axes[1] == "across it, towards the defect"
    assert picture.consistent[middle][middle] == pytest.approx((float(gradient.norm()), 0.0), abs=1e-12)
    across = math.sqrt(float(defect @ defect) - along**2)
    assert picture.supplied[middle][middle] == pytest.approx((float(gradient.norm()) + along, across), rel=1e-12)


def test_a_defect_of_a_millionth_still_spans_the_plane():
    gradient = 2 * X + X.flip(0)
    tiny = known(gradient + 1e-6 * torch.stack([-gradient[1], gradient[0]]), gradient)
    assert field_picture(Subject(Turned.apply, X), tiny).axes[1] == "across it, towards the defect"


def test_places_and_values_belong_to_each_other():
    """The consistent field is the gradient of the values of the picture, and no coordinate moves further than it should."""
    picture = field_picture(Subject(Turned.apply, X), turned())
    value, field = np.array(picture.value), np.array(picture.consistent)
    down, right = np.gradient(value, picture.y, picture.x, edge_order=2)  # exact for a quadratic
    np.testing.assert_allclose(field[..., 0], right, rtol=0, atol=1e-12)
    np.testing.assert_allclose(field[..., 1], down, rtol=0, atol=1e-12)
    assert value[GRID // 2, GRID // 2] == float(X.square().sum() + X.prod())
    gradient = 2 * X + X.flip(0)
    assert max(picture.x) == pytest.approx(REACH / float((gradient / gradient.norm()).abs().max()), rel=1e-12)


def test_a_forward_that_cannot_be_looked_into_is_measured():
    picture = field_picture(Subject(Opaque.apply, X))
    exact = field_picture(Subject(Opaque.apply, X), turned())  # its forward raises when differentiated
    assert all(math.isnan(part) for row in exact.consistent for arrow in row for part in arrow)
    value = np.array(picture.value)
    down, right = np.gradient(value, picture.y, picture.x, edge_order=2)
    np.testing.assert_allclose(np.array(picture.consistent)[..., 0], right, rtol=0, atol=DIFFERENCES)
    np.testing.assert_allclose(np.array(picture.consistent)[..., 1], down, rtol=0, atol=DIFFERENCES)


def test_differences_that_see_nothing_are_not_drawn():
    picture = field_picture(Subject(lambda x: x.sin().sum(), X))
    assert picture.consistent is None
    assert picture.axes[1] == "across it, the way it turns"


def test_a_defect_of_length_alone_leaves_the_plane_to_the_curvature():
    gradient = 2 * X
    picture = field_picture(Subject(lambda x: Steep.apply(x).sum() + x.prod() ** 2, X), known(1.000001 * gradient, gradient))
    assert picture.axes[1] == "across it, the way it turns"
    straight = field_picture(Subject(lambda x: 3 * x.sum(), X), known(torch.full_like(X, 3.0), torch.full_like(X, 2.0)))
    assert straight.axes[1] == "across it, at random"


def test_one_number_has_two_slopes():
    x = torch.tensor(1.5, dtype=torch.float64)
    picture = field_picture(Subject(Steep.apply, x), known(2.000002 * x, 2 * x))
    assert picture.axes == ("input 0", "")
    assert (len(picture.x), len(picture.y), picture.x[SLOPES // 2]) == (SLOPES, 1, 1.5)
    assert picture.x[0] == pytest.approx(1.5 - 1.5 * REACH)
    np.testing.assert_allclose(np.array(picture.supplied[0])[:, 0], 2.000002 * np.array(picture.x), rtol=1e-15)
    np.testing.assert_allclose(np.array(picture.consistent[0])[:, 0], 2 * np.array(picture.x), rtol=1e-15)


@pytest.mark.parametrize("outside", ["nan", "raises"])
def test_outside_the_domain_there_is_nan(outside):
    def fn(x):
        if outside == "raises" and float(x.detach().sum()) < 1.2:
            raise ValueError("outside")
        return Turned.apply(x) + 0 * torch.where(x.sum() < 1.2, torch.nan, x.sum())

    picture = field_picture(Subject(fn, X), turned())
    bad = [[math.isnan(v) for v in row] for row in picture.value]
    assert any(map(any, bad))
    assert not all(map(all, bad))
    assert [[math.isnan(arrow[0]) for arrow in row] for row in picture.supplied] == bad
    assert [[math.isnan(arrow[0]) for arrow in row] for row in picture.consistent] == bad


@pytest.mark.parametrize(
    ("fn", "x"),
    [
        (lambda x: (x.sum(), x.prod()), X),
        (lambda x: x.square(), X),
        (lambda x: x.sum() * 0, X),
        (lambda x: x.detach().sum(), X),
        (lambda x: torch.where(x.sum() > 0, torch.nan, 1.0) * x.sum(), X),
    ],
    ids=["two outputs", "a vector", "no gradient", "detached", "never finite"],
)
def test_nothing_to_draw(fn, x):
    assert field_picture(Subject(fn, x)) is None


def test_the_cost_is_bounded():
    subject = Subject(Turned.apply, X)
    before = subject.evaluations
    field_picture(subject, turned())
    assert subject.evaluations - before <= 2 * GRID**2 + 2
    subject = Subject(Opaque.apply, X)
    field_picture(subject)
    assert subject.evaluations <= 9 * GRID**2 + 8 * (GRID**2 // 8 + 1) + 5


def test_many_tensors_of_other_shapes_and_dtypes():
    """Sizes differ by 1e6: in units of the sizes both coordinates matter alike."""
    w, b = torch.tensor([[1e-3, 2e-3]], dtype=torch.float32), torch.tensor(2e3, dtype=torch.float32)
    picture = field_picture(Subject(lambda w, b: (w * 1e3).square().sum() + (b / 1e3).square(), (w, b)))
    lengths = np.linalg.norm(np.array(picture.supplied), axis=-1)
    assert np.isfinite(lengths).all()
    assert 1 < lengths[GRID // 2, GRID // 2] < 10


# Inside an audit ------------------------------------------------------------------------------------------------------


def test_the_audit_draws_a_defect_at_the_inputs():
    report = pg.audit(Turned.apply, X, effort="quick")
    assert report.verdict == "incoherent"
    assert len(report.picture.y) == GRID
    assert Report.from_dict(report.to_dict()).picture == report.picture
    assert pg.audit(Turned.apply, X, effort="quick", consequences=False).picture is None
    assert pg.audit(lambda x: x.square().sum(), X, effort="quick").picture is None


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

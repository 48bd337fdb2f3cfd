"""Hints: what a wrong gradient may come from, in a sentence with a question."""

from __future__ import annotations

import pytest
import torch

import pairgrad as pg
from tests.coherence.functions import points


def product_with(backward):
    """x w, with a backward that gets both right gradients, the one of w summed over the batch, and makes others of them."""

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x * w

        @staticmethod
        def backward(ctx, grad_output):
            x, w = ctx.saved_tensors
            return backward(grad_output * w, (grad_output * x).sum_to_size(w.shape))

    return Product.apply


def hint(backward, *shapes):
    inputs = tuple(points(*shape, seed=i) for i, shape in enumerate(shapes))
    report = pg.audit(product_with(backward), inputs, effort="glance", second_order=False)
    assert not report.passed
    assert report.hint == (report.summary.splitlines()[-1].removeprefix("hint: ") if report.hint else "")
    return report.hint


@pytest.mark.parametrize(
    ("factor", "sentence"),
    [
        (1 / 5, "the ratio is 1/5, the batch size: mean instead of sum?"),
        (5, "the ratio is 5, the batch size: sum instead of mean?"),
        (1 / 3, "the ratio is 1/3, the last dimension: mean instead of sum?"),
        (3**-0.5, "the ratio is 1 over the square root of 3, the last dimension: is it divided by twice?"),
        (1 / 15, "the ratio is 1/15, the number of elements: mean instead of sum?"),
        (-1, "the ratio is -1: a wrong sign?"),
        (2, "the ratio is 2: a term counted twice, or a factor of two too many?"),
        (0.5, "the ratio is 1/2: a missing factor of two, as from a square?"),
        (65536, "the ratio is 65536 = 2^16, a power of two: a loss scale that is not divided out?"),
        (2**-16, "the ratio is 1/65536 = 2^-16, a power of two: a loss scale that is divided out twice?"),
        (0, "the supplied gradient is zero: is None returned for this argument, or is it detached?"),
        (1 + 3e-11, "so small a defect may be a solver that stops at its tolerance, or float32 inside: tolerance=1e-10 accepts it"),
        (1.37, ""),
        (4, ""),
    ],
)
def test_simple_ratios(factor, sentence):
    assert hint(lambda x, w: (x, factor * w), (5, 3), (3,)) == sentence


def test_a_batch_of_two_and_a_factor_of_two_are_both_named():
    assert hint(lambda x, w: (x, w / 2), (2, 3), (3,)) == "the ratio is 1/2, the batch size, or a factor of two: mean instead of sum?"


def test_a_transpose():
    assert hint(lambda x, w: (x.mT, w), (4, 4), (4, 4)) == "the numbers are those of the true gradient transposed: a missing transpose?"
    told = hint(lambda x, w: (x.mT.reshape(2, 4), w), (2, 4), (2, 4))
    assert told == "the numbers are those of the true gradient transposed: reshape instead of transpose?"


def test_swapped_gradients():
    told = hint(lambda x, w: (w, x), (4,), (4,))
    assert told.endswith(" are swapped: are they returned in the wrong order?")
    assert "input 0" in told
    assert "input 1" in told
    assert hint(lambda x, w: (w, w), (4,), (4,)) == "this is the gradient of input 1: is it returned in the wrong place?"


def test_a_dimension_taken_for_a_broadcast_one():
    told = hint(lambda x, w: (x.sum(0, keepdim=True).expand_as(x), w), (5, 3), (3,))
    assert told == "every entry along dimension 0 is the sum of the true ones: is this dimension taken for a broadcast one?"
    told = hint(lambda x, w: (x.mean(1, keepdim=True).expand_as(x), w), (5, 3), (3,))
    assert told == "every entry along dimension 1 is the mean of the true ones: is this dimension taken for a broadcast one?"


def test_nothing_is_guessed_where_nothing_fits():
    assert hint(lambda x, w: (x + 0.3 * x.flip(0), w), (5, 3), (3,)) == ""
    assert pg.audit(torch.sin, points(3), effort="glance", second_order=False).hint == ""


def test_there_is_no_hint_where_the_declaration_holds():
    report = pg.audit(product_with(lambda x, w: (-x, -w)), (points(4), points(4, seed=1)), effort="glance", intent="reversal")
    assert report.passed
    assert report.hint == ""

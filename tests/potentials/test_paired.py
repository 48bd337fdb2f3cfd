"""What `"paired"` makes of its options, and the hypothesis of its certificate."""

from __future__ import annotations

import math

import pytest
import torch

import pairgrad as pg


def test_the_largest_order_and_shift_are_allowed_and_no_larger_ones() -> None:
    assert pg.potential(64, order=24).depth[torch.float64] == (24, 0)
    assert pg.potential(64, order=1, shift=64).depth[torch.float32] == (1, 64)
    for order, shift in ((25, 0), (1, 65)):
        with pytest.raises(ValueError, match=f"order must be <= 24 and shift <= 64, got order={order} and shift={shift}"):
            pg.potential(64, order=order, shift=shift)


def test_options_are_those_that_were_given() -> None:
    assert pg.potential(64).options == {}
    assert pg.potential(64, order=3).options == {"order": 3}
    assert pg.potential(64, order=3, shift=2).options == {"order": 3, "shift": 2}
    assert pg.potential(64, order=3, shift=0).options == {"order": 3}


def test_only_a_planned_expansion_is_right_to_rounding() -> None:
    assert pg.potential(64).to_rounding
    assert not pg.potential(64, order=6).to_rounding


def test_the_certificate_says_for_which_expansion_it_holds() -> None:
    plain, shifted = pg.potential(64, order=3), pg.potential(64, order=3, shift=2)
    assert plain.ratio_certificate().hypothesis == "order 3 around nu + 0.5, nu >= 0"
    assert shifted.ratio_certificate().hypothesis == "order 3 around nu + 2.5, shift 2, nu >= 0"
    assert 0 < plain.ratio_certificate().bound < 1e-4
    assert plain.ratio_certificate().bound == plain.ratio_bound()


def test_an_order_far_too_high_has_an_infinite_bound() -> None:
    found = pg.potential(2, order=24, shift=1).ratio_certificate()
    assert found.bound == math.inf
    assert found.status == "proven"
    assert "may have poles" in found.reason

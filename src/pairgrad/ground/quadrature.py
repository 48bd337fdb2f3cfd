"""Gauss-Legendre rules, as constants of formulas."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from functools import cache

import torch

from pairgrad.ground.devices import on_host

Rule = tuple[tuple[float, ...], tuple[float, ...]]  # nodes and weights
_DIGITS = 40


@cache
def gauss_legendre(points: int) -> Rule:
    """Nodes and weights of the rule on [0, 1], rounded once.

    In decimal arithmetic: close to the ends of the interval a weight is points^2 times as sensitive as its node, and float64 would lose two digits.

    Examples:
        >>> nodes, weights = gauss_legendre(2)
        >>> round(sum(w * x**3 for x, w in zip(nodes, weights)), 15)
        0.25
    """
    pairs = []
    with localcontext() as context:
        context.prec = _DIGITS
        for i in range(points):
            x = Decimal(-math.cos(math.pi * (i + 0.75) / (points + 0.5)))  # Tricomi's approximation of a zero of P_n
            for _ in range(6):
                value, slope = _legendre(points, x)
                x -= value / slope
            _, slope = _legendre(points, x)
            pairs.append((float((1 + x) / 2), float(1 / ((1 - x * x) * slope * slope))))
    nodes, weights = zip(*pairs, strict=True)
    return nodes, weights


_ON_DEVICES: dict[tuple[Rule, torch.dtype, torch.device], tuple[torch.Tensor, torch.Tensor]] = {}


def as_tensors(rule: Rule, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Nodes and weights in the dtype and on the device of `like`; copied to a device once, because a copy may wait for it."""
    if on_host(like) or torch.compiler.is_compiling():
        return like.new_tensor(rule[0]), like.new_tensor(rule[1])
    key = (rule, like.dtype, like.device)
    if key not in _ON_DEVICES:
        with torch.inference_mode(False):
            _ON_DEVICES[key] = like.new_tensor(rule[0]), like.new_tensor(rule[1])
    return _ON_DEVICES[key]


def _legendre(n: int, x: Decimal) -> tuple[Decimal, Decimal]:
    """P_n(x) and its derivative."""
    before, here = Decimal(1), x
    for k in range(2, n + 1):
        before, here = here, ((2 * k - 1) * x * here - (k - 1) * before) / k
    return here, n * (x * here - before) / (x * x - 1)

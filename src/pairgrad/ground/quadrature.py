"""Gauss-Legendre rules, as constants of formulas."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from functools import cache

import torch

from pairgrad.ground.devices import capturing_graph, kind

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
    """Nodes and weights in the dtype and on the device of `like`, filled in there: a copy from the host may wait for the device, and cannot be captured."""
    if not kind(like.device).queued or torch.compiler.is_compiling():
        return like.new_tensor(rule[0]), like.new_tensor(rule[1])
    # what is made while a graph is captured holds its numbers only after a replay, and fake tensors hold none
    kept = type(like) is torch.Tensor and not capturing_graph()
    key = (rule, like.dtype, like.device)
    if kept and key in _ON_DEVICES:
        return _ON_DEVICES[key]
    with torch.inference_mode(False):
        nodes, weights = (torch.stack([like.new_full((), number) for number in numbers]) for numbers in rule)
    if kept:
        _ON_DEVICES[key] = nodes, weights
    return nodes, weights


def _legendre(n: int, x: Decimal) -> tuple[Decimal, Decimal]:
    """P_n(x) and its derivative."""
    before, here = Decimal(1), x
    for k in range(2, n + 1):
        before, here = here, ((2 * k - 1) * x * here - (k - 1) * before) / k
    return here, n * (x * here - before) / (x * x - 1)

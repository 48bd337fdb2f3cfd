"""Arithmetic in which products are fused into the sums they go into, as compilers and devices may do."""

from __future__ import annotations

from typing import Any

import torch


class Contracted:
    """float32 in which each product that goes into a sum is fused into it; float64 stands for the exact product and sum."""

    def __init__(self, value: torch.Tensor, product: torch.Tensor | None = None) -> None:
        self.value, self.product = value, product

    @staticmethod
    def of(other: Any) -> Contracted:
        return other if isinstance(other, Contracted) else Contracted(torch.tensor(other, dtype=torch.float32))

    def __add__(self, other: Any) -> Contracted:
        first, second = (self, Contracted.of(other)) if self.product is not None else (Contracted.of(other), self)
        exact = first.value.double() if first.product is None else first.product
        return Contracted((exact + second.value.double()).float())

    def __neg__(self) -> Contracted:
        return Contracted(-self.value, None if self.product is None else -self.product)

    def __sub__(self, other: Any) -> Contracted:
        return self + -other

    def __rsub__(self, other: Any) -> Contracted:
        return -self + other

    def __mul__(self, other: Any) -> Contracted:
        product = self.value.double() * Contracted.of(other).value.double()
        return Contracted(product.float(), product)

    def __truediv__(self, other: Any) -> Contracted:
        return Contracted(self.value / Contracted.of(other).value)

    def __rtruediv__(self, other: Any) -> Contracted:
        return Contracted(self.value.reciprocal() * other)

    __radd__, __rmul__ = __add__, __mul__

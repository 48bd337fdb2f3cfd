"""The arithmetic of a tile of scores on the host: formulas of a potential in the fewest passes over memory."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from pairgrad.ground.arithmetic import TorchArithmetic
from pairgrad.ground.checks import readable
from pairgrad.ground.devices import HOST
from pairgrad.potentials import Potential, kernels
from pairgrad.potentials.expansion import Expansion


class TileArithmetic(TorchArithmetic):
    """As `FusedArithmetic`, bit by bit, for plain tensors of the host where no graph is recorded: nothing is looked up for each operation."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._constants: dict[float, torch.Tensor] = {}

    def _operand(self, value: float) -> torch.Tensor:
        known = self._constants.get(value)
        if known is None:
            known = self._constants[value] = torch.tensor(value, dtype=self._dtype, device=HOST)
        return known

    def multiply_add(self, a: torch.Tensor | float, b: torch.Tensor, c: torch.Tensor | float) -> torch.Tensor:
        c = c if isinstance(c, torch.Tensor) else self._operand(c)
        # addcmul with two numbers is not vectorised
        return torch.addcmul(c, a, b) if isinstance(a, torch.Tensor) else torch.add(c, b, alpha=a)

    def polynomial(self, coefficients: Sequence[float], t: torch.Tensor) -> torch.Tensor:
        if len(coefficients) == 1:
            return coefficients[0] + 0 * t
        total = torch.add(self._operand(coefficients[-2]), t, alpha=coefficients[-1])
        for c in reversed(coefficients[:-2]):
            total = torch.addcmul(self._operand(c), total, t, out=total)
        return total


_TILES = {dtype: TileArithmetic(dtype) for dtype in (torch.float32, torch.float64)}


def increment_pair(
    pot: Potential, a: torch.Tensor, squared: torch.Tensor, terms: tuple[int, int] | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """`kernels.increment_pair` of a tile."""
    formulas = pot.formulas(squared.dtype)
    if isinstance(formulas, Expansion) and readable(squared) and type(squared) is torch.Tensor and not torch.is_grad_enabled():
        return formulas.increment(_TILES[squared.dtype], a, squared, terms)
    return kernels.increment_pair(pot, a, squared, terms)

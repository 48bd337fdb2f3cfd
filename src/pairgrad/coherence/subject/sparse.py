"""Sparse arguments: a function of the values that they store, with their indices fixed."""

from __future__ import annotations

import math

import torch

from pairgrad.ground._torch_private import sparse_parts

_BY_ROWS = (torch.sparse_csr, torch.sparse_bsr)


def parts(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The indices and, last, the values of a sparse tensor."""
    if tensor.layout == torch.sparse_coo:
        return sparse_parts(tensor)
    if tensor.layout in _BY_ROWS:
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    return tensor.ccol_indices(), tensor.row_indices(), tensor.values()


def values_of(tensor: torch.Tensor) -> torch.Tensor:
    """The numbers that a tensor stores: itself if it is dense."""
    return tensor if tensor.layout == torch.strided else parts(tensor)[-1]


def with_values(tensor: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """A sparse tensor with the indices of another."""
    if tensor.layout == torch.sparse_coo:
        indices, _ = parts(tensor)
        return torch.sparse_coo_tensor(indices, values, tensor.shape, check_invariants=False, is_coalesced=tensor.is_coalesced())
    compressed, plain, _ = parts(tensor)
    return torch.sparse_compressed_tensor(compressed, plain, values, tensor.shape, layout=tensor.layout, check_invariants=False)


def values_at(gradient: torch.Tensor, leaf: torch.Tensor) -> torch.Tensor:
    """The gradient by the values of a sparse leaf, in their order, from the gradient by the leaf: sparse or dense, and still differentiable."""
    *indices, values = (part.detach() for part in parts(leaf))
    if leaf.layout == torch.sparse_coo:
        return _looked_up(gradient, indices[0]) if gradient.layout == torch.sparse_coo else _filled(gradient)[tuple(indices[0])]
    if gradient.layout == leaf.layout and all(map(torch.equal, parts(gradient)[:2], indices)):
        return gradient.values()
    compressed, plain = indices
    lines = torch.arange(len(compressed) - 1, device=plain.device).repeat_interleave(compressed.diff())
    row, column = (lines, plain) if leaf.layout in _BY_ROWS else (plain, lines)
    if leaf.layout in (torch.sparse_csr, torch.sparse_csc):
        return _filled(gradient)[row, column]
    high, wide = values.shape[1:3]
    blocks = _filled(gradient).unflatten(1, (-1, wide)).unflatten(0, (-1, high)).transpose(1, 2)
    return blocks[row, column]


def _filled(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.layout == torch.strided else tensor.to_dense()


def _looked_up(gradient: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """Elements of a COO tensor, which may be far too large to fill."""
    gradient = gradient.coalesce()
    sizes = gradient.shape[: gradient.sparse_dim()]
    steps = torch.tensor([math.prod(sizes[i + 1 :]) for i in range(len(sizes))], device=indices.device)[:, None]
    there, wanted = (gradient.indices() * steps).sum(0), (indices * steps).sum(0)
    values = torch.cat(
        [gradient.values(), gradient.values().new_zeros(1, *gradient.shape[len(sizes) :])]
    )  # the last stands for what is not stored
    place = torch.searchsorted(there, wanted)
    stored = torch.cat([there, there.new_full((1,), -1)])[place] == wanted
    return values[torch.where(stored, place, len(there))]

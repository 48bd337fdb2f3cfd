"""Observations as the EM algorithm sees them: rows on the sphere, dense or sparse, of which it wants two products and little else."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from pairgrad.ground.devices import kind
from pairgrad.ground.precision import full_precision

_CPU_BYTES = 3 * 2**20  # of the rows of a chunk and twice their scores: they stay in a cache, and calls are few
# Numbers of a sparse chunk per feature, if there are so many: its sums are as long as there are features, however few its rows.
_SPARSE_FILL = 8
_DEVICE_BLOCK = 2**24  # elsewhere few large products are better than many small ones


class Rows(ABC):
    """`count` rows of length `features`; a chunk is named by its first row and the one after its last."""

    count: int
    features: int
    dtype: torch.dtype
    device: torch.device

    @abstractmethod
    def products(
        self, start: int, stop: int, directions: torch.Tensor, bias: torch.Tensor | None = None, out: torch.Tensor | None = None
    ) -> torch.Tensor:
        """`directions` (k, p), in dtype and place of the rows, times the transposed rows, plus `bias` (k,): (k, stop - start), in `out` if given."""

    @abstractmethod
    def sums(self, start: int, stop: int, shares: torch.Tensor) -> torch.Tensor:
        """`shares` (k, stop - start) times the rows: (k, p)."""

    @abstractmethod
    def take(self, index: torch.Tensor) -> torch.Tensor:
        """The rows with these numbers, dense."""

    @abstractmethod
    def _numbers_per_row(self) -> float:
        """How many numbers a row takes."""

    def chunk_rows(self, components: int, wanted: int | None) -> int:
        """Rows per chunk: `wanted`, or as many as let both products find their operands in a cache."""
        if wanted is not None:
            return min(wanted, self.count)
        if not kind(self.device).on_host:
            return min(self.count, max(1024, _DEVICE_BLOCK // components))
        numbers = _CPU_BYTES / self.dtype.itemsize
        return min(self.count, max(256, int(numbers / (self._numbers_per_row() + 2 * components))))

    def chunks(self, components: int, wanted: int | None) -> Iterator[tuple[int, int]]:
        size = self.chunk_rows(components, wanted)
        return ((start, min(start + size, self.count)) for start in range(0, self.count, size))


class DenseRows(Rows):
    """Rows of a strided tensor, which is read and never written."""

    def __init__(self, values: torch.Tensor) -> None:
        self.values = values
        self.count, self.features = values.shape
        self.dtype, self.device = values.dtype, values.device

    def products(
        self, start: int, stop: int, directions: torch.Tensor, bias: torch.Tensor | None = None, out: torch.Tensor | None = None
    ) -> torch.Tensor:
        chunk = self.values[start:stop]
        with full_precision(self.device.type):
            if kind(self.device).on_host and self.dtype == torch.float64:
                products = _product(directions, chunk.t(), out)
                return products if bias is None else products.add_(bias[:, None])
            if bias is None:
                return torch.mm(directions, chunk.t(), out=out)
            return torch.addmm(bias[:, None], directions, chunk.t(), out=out)

    def sums(self, start: int, stop: int, shares: torch.Tensor) -> torch.Tensor:
        return _product(shares, self.values[start:stop])

    def take(self, index: torch.Tensor) -> torch.Tensor:
        return self.values[index]

    def _numbers_per_row(self) -> float:
        return self.features


class SparseRows(Rows):
    """Compressed sparse rows. A chunk is made once, and its transpose with it when sums are first asked for: that is twice the memory of the data, and
    products with a transposed chunk ten times faster.
    """

    def __init__(self, starts: torch.Tensor, columns: torch.Tensor, values: torch.Tensor, features: int) -> None:
        self.starts, self.places, self.values = starts, columns, values
        self.count, self.features = starts.numel() - 1, features
        self.dtype, self.device = values.dtype, values.device
        self._chunks: dict[tuple[int, int, bool], torch.Tensor] = {}
        self._columns: tuple[torch.Tensor, torch.Tensor] | None = None  # the last directions, and their transpose

    def chunk_rows(self, components: int, wanted: int | None) -> int:
        size = super().chunk_rows(components, wanted)
        if wanted is not None:
            return size
        return min(self.count, max(size, int(self.features * min(1.0, _SPARSE_FILL / max(self._numbers_per_row(), 1)))))

    def products(
        self, start: int, stop: int, directions: torch.Tensor, bias: torch.Tensor | None = None, out: torch.Tensor | None = None
    ) -> torch.Tensor:
        if self._columns is None or self._columns[0] is not directions:
            self._columns = (
                directions,
                directions.t().contiguous(),
            )  # all that belongs to an entry of a row stands together: an eighth of the time
        with full_precision(self.device.type):
            return _biased((self._chunk(start, stop) @ self._columns[1]).t(), bias, out)

    def sums(self, start: int, stop: int, shares: torch.Tensor) -> torch.Tensor:
        with full_precision(self.device.type):
            return (self._chunk(start, stop, transposed=True) @ shares.t()).t()

    def take(self, index: torch.Tensor) -> torch.Tensor:
        taken = torch.zeros(index.numel(), self.features, dtype=self.dtype, device=self.device)
        for place, i in enumerate(index.tolist()):
            a, b = int(self.starts[i]), int(self.starts[i + 1])
            taken[place].index_add_(0, self.places[a:b].long(), self.values[a:b])
        return taken

    def _numbers_per_row(self) -> float:
        return self.values.numel() / max(self.count, 1)

    def _chunk(self, start: int, stop: int, *, transposed: bool = False) -> torch.Tensor:
        key = (start, stop, transposed)
        if key not in self._chunks:
            if transposed:
                with quiet_sparse():
                    self._chunks[key] = self._chunk(start, stop).t().to_sparse_csr()
            else:
                a, b = int(self.starts[start]), int(self.starts[stop])
                shape = (stop - start, self.features)
                self._chunks[key] = compressed(self.starts[start : stop + 1] - a, self.places[a:b], self.values[a:b], shape)
        return self._chunks[key]


def _product(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """A product of matrices, on the CPU by NumPy: for matrices this narrow its library is up to three times as fast as torch's on some processors."""
    if not kind(a.device).on_host:
        with full_precision(a.device.type):
            return torch.mm(a, b, out=out)
    if out is None:
        return torch.from_numpy(np.dot(a.numpy(), b.numpy()))
    np.dot(a.numpy(), b.numpy(), out=out.numpy())
    return out


def _biased(products: torch.Tensor, bias: torch.Tensor | None, out: torch.Tensor | None) -> torch.Tensor:
    """Products (k, rows) plus `bias` (k,), contiguous."""
    return products.contiguous() if bias is None else torch.add(products, bias[:, None], out=out)


@contextmanager
def quiet_sparse() -> Iterator[None]:
    """Without torch's remark that compressed sparse tensors are in beta state: nobody can act on it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse (CSR|CSC|invariant)")
        yield


def compressed(starts: torch.Tensor, columns: torch.Tensor, values: torch.Tensor, shape: tuple[int, int]) -> torch.Tensor:
    """A sparse tensor of compressed rows, of parts that are known to fit together."""
    with quiet_sparse():
        return torch.sparse_csr_tensor(starts, columns, values, shape, check_invariants=False)

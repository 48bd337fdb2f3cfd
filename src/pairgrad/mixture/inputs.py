"""What users hand over (numpy arrays, data frames, scipy sparse matrices, torch tensors), checked and put on the sphere; and results in the same kind."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array, validate_data

from pairgrad.ground.checks import DTYPES, HALF_DTYPES, describe
from pairgrad.ground.devices import HOST, has_values, widest
from pairgrad.mixture.rows import DenseRows, Rows, SparseRows, quiet_sparse

_UNIT_ROUNDINGS = 8  # a length that is 1 up to these many roundings is 1: a norm over thousands of features has an error of a few
UNIT_TOLERANCE = 1e-5  # for rows that must not be scaled: a single-precision embedding, normalised by its model, is within 1e-6
_SAFE = (1e-140, 1e140)  # lengths whose squares neither overflow nor lose digits


@dataclass(frozen=True)
class Kind:
    """What the input was, and therefore what results are: numpy arrays, or tensors on a device."""

    tensor: bool
    dtype: torch.dtype
    device: torch.device

    def give(self, result: torch.Tensor) -> Any:
        if result.is_floating_point():
            result = result.to(self.dtype)
        return result.to(self.device) if self.tensor else result.cpu().numpy()


def read(estimator: BaseEstimator, X: Any, *, reset: bool, normalize: bool) -> tuple[Rows, Kind]:
    """`X` as rows on the sphere; sets or checks `n_features_in_` and `feature_names_in_`."""
    if isinstance(X, torch.Tensor):
        values = _checked_tensor(estimator, X, reset=reset).resolve_neg()
        kind = Kind(True, values.dtype, values.device)
    else:
        least = 2 if reset else 1  # afterwards the number of features is compared with that of fit
        dtypes = np.float32 if getattr(X, "dtype", None) == np.float16 else [np.float64, np.float32]
        array: Any = validate_data(estimator, X, reset=reset, accept_sparse="csr", dtype=dtypes, ensure_min_features=least)
        if not isinstance(array, np.ndarray):
            if not array.has_canonical_format:  # entries given twice are to be added
                array = array.copy()
                array.sum_duplicates()
            parts = (_shared(array.indptr), _shared(array.indices), _shared(array.data))
            kind = Kind(False, parts[2].dtype, HOST)
            return _sparse(*parts, array.shape[1], normalize=normalize), kind
        values = _shared(array)
        kind = Kind(False, values.dtype, values.device)
    if values.layout == torch.sparse_csr:
        return _sparse(values.crow_indices(), values.col_indices(), values.values(), values.shape[1], normalize=normalize), kind
    lengths = _lengths(values)
    if _to_be_scaled(lengths, values.dtype, normalize=normalize, sparse=False):
        values = _scaled(values, lengths)
    return DenseRows(values), kind


def read_weights(sample_weight: Any, rows: Rows) -> torch.Tensor | None:
    """Weights as a float64 tensor where the rows are, scaled by a power of 2 to at most 1: only their proportions matter. None: every row counts once."""
    if sample_weight is None:
        return None
    if np.isscalar(sample_weight) or (isinstance(sample_weight, torch.Tensor) and sample_weight.shape != (rows.count,)):
        raise ValueError(f"sample_weight must have shape ({rows.count},), one per row of X, got {describe(sample_weight)}")
    if isinstance(sample_weight, torch.Tensor):
        if (
            sample_weight.is_complex()
            or not has_values(sample_weight)
            or sample_weight.is_quantized
            or sample_weight.layout != torch.strided
        ):
            raise ValueError(f"sample_weight must hold real numbers, got {describe(sample_weight)}")
        weights = sample_weight.detach().to(widest(sample_weight.device))
    else:
        wanted: Any = np.float64
        array = check_array(sample_weight, ensure_2d=False, dtype=wanted, input_name="sample_weight")
        if array.shape != (rows.count,):
            raise ValueError(f"sample_weight.shape == {array.shape}, expected ({rows.count},): one weight per row of X")
        weights = _shared(array)
    if not bool(torch.isfinite(weights).all()) or not bool((weights >= 0).all()):
        raise ValueError(f"sample_weight must be finite and >= 0, got values from {float(weights.min()):g} to {float(weights.max()):g}")
    largest = float(weights.max())
    if not largest > 0:
        raise ValueError("sample_weight must have a positive sum, got only zeros: no row counts")
    power = -math.frexp(largest)[1]
    weights = weights * 2.0 ** (power // 2) * 2.0 ** (power - power // 2)  # in two steps, since the whole power need not be a number
    return weights.to(widest(rows.device)).to(rows.device)


def directions(name: str, given: Any, shape: tuple[int, int]) -> torch.Tensor:
    """Given directions as unit rows in float64 on the CPU."""
    what = describe(given) if isinstance(given, torch.Tensor) else f"{type(given).__name__} of dtype {getattr(given, 'dtype', 'object')}"
    if isinstance(given, torch.Tensor):
        real = not given.is_complex() and has_values(given) and given.layout == torch.strided
    else:
        given = np.asarray(given)
        real = given.dtype.kind in "biuf"
    if not real:
        raise ValueError(f"{name} must be a dense array of real numbers, got {what}")
    tensor = given.detach().cpu().double() if isinstance(given, torch.Tensor) else torch.from_numpy(given.astype(np.float64))
    if tensor.shape != shape:
        raise ValueError(
            f"{name} must have shape (n_components, n_features) = {shape}, one direction per component, got shape {tuple(tensor.shape)}"
        )
    largest = tensor.abs().amax(1)  # NaN if there is one
    bad = (~(torch.isfinite(largest) & (largest > 0))).nonzero()
    if bad.numel():
        raise ValueError(f"{name} must have finite rows of positive length, got row {int(bad[0])} without a direction")
    return torch.nn.functional.normalize(tensor / largest[:, None])


def _shared(array: np.ndarray) -> torch.Tensor:
    """The array's memory as a tensor, to be read only."""
    if any(stride < 0 for stride in array.strides):
        array = np.ascontiguousarray(array)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)


def _checked_tensor(estimator: BaseEstimator, X: torch.Tensor, *, reset: bool) -> torch.Tensor:
    name = type(estimator).__name__
    if X.is_quantized or X.is_nested:
        raise ValueError(f"X must be a matrix of real numbers, got {describe(X)}: use X.dequantize() or pad it")
    values = X.detach()
    if values.dim() != 2:
        raise ValueError(f"X must have shape (n_samples, n_features), got {describe(X)}: use X.reshape(-1, n_features)")
    if not has_values(values):
        raise ValueError(f"X must hold numbers, got {describe(X)}: {name} cannot be fitted to a shape")
    if values.layout not in (torch.strided, torch.sparse_csr):
        if values.layout not in (torch.sparse_coo, torch.sparse_csc) or values.sparse_dim() != 2:
            raise ValueError(
                "X must be strided or sparse in both dimensions (torch.sparse_coo, torch.sparse_csr or torch.sparse_csc), got "
                f"{values.layout} with {values.sparse_dim()} sparse dimension(s): convert it"
            )
        with quiet_sparse():
            values = values.to_sparse_csr()
    if values.is_complex():
        raise ValueError(f"Complex data not supported: X must be real, got {describe(X)}")
    if values.dtype not in DTYPES:
        values = values.to(torch.float32 if values.dtype in HALF_DTYPES else torch.float64)
    count, features = values.shape
    if count < 1 or features < 2:
        raise ValueError(
            f"Found a tensor with {count} sample(s) and {features} feature(s) while a minimum of 1 and 2 is required by {name}"
        )
    numbers = values if values.layout == torch.strided else values.values()
    if not bool(torch.isfinite(numbers.sum())) and not bool(torch.isfinite(numbers).all()):
        raise ValueError(f"Input X contains NaN or infinity, got {describe(X)}: {name} needs finite rows")
    if reset:
        estimator.n_features_in_ = features  # pyright: ignore[reportAttributeAccessIssue]
        if hasattr(estimator, "feature_names_in_"):
            delattr(estimator, "feature_names_in_")
    elif features != getattr(estimator, "n_features_in_", features):
        expected = getattr(estimator, "n_features_in_", None)
        raise ValueError(f"X has {features} features, but {name} is expecting {expected} features as input")
    return values


def _lengths(values: torch.Tensor) -> torch.Tensor:
    """Norms of dense rows in float64. Where squares would overflow or vanish, the row is scaled by its largest entry first."""
    dtype = widest(values.device)
    lengths = torch.linalg.vector_norm(values, dim=1, dtype=dtype)
    extreme = ((lengths < _SAFE[0]) | (lengths > _SAFE[1])).nonzero().squeeze(1)
    if extreme.numel():
        some = values[extreme].to(dtype)
        largest = some.abs().amax(1)
        scaled = torch.linalg.vector_norm(some / torch.where(largest > 0, largest, 1.0)[:, None], dim=1)
        lengths[extreme] = largest * scaled
    return lengths


def _scaled(values: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Unit rows, in new memory. Rows of extreme length are scaled in two steps, since one over their length need not be a number of their dtype."""
    unit = values / lengths.to(values.dtype)[:, None]
    tiny, huge = torch.finfo(values.dtype).tiny * 2**30, torch.finfo(values.dtype).max / 2**30
    extreme = ((lengths < tiny) | (lengths > huge)).nonzero().squeeze(1)
    if extreme.numel():
        some = values[extreme].to(lengths.dtype)
        some = some / some.abs().amax(1, keepdim=True)
        unit[extreme] = (some / torch.linalg.vector_norm(some, dim=1, keepdim=True)).to(values.dtype)
    return unit


def _sparse(starts: torch.Tensor, columns: torch.Tensor, values: torch.Tensor, features: int, *, normalize: bool) -> SparseRows:
    dtype = widest(values.device)
    owner = torch.repeat_interleave(torch.arange(starts.numel() - 1, device=values.device), starts.diff().long())
    largest = torch.zeros(starts.numel() - 1, dtype=dtype, device=values.device)
    largest.scatter_reduce_(0, owner, values.abs().to(dtype), "amax")
    relative = values.to(dtype) / torch.where(largest > 0, largest, 1.0)[owner]
    lengths = torch.zeros_like(largest).index_add_(0, owner, relative * relative).sqrt_()
    if _to_be_scaled(lengths * largest, values.dtype, normalize=normalize, sparse=True):
        values = (relative / lengths[owner]).to(values.dtype)
    return SparseRows(starts, columns, values, features)


def _to_be_scaled(lengths: torch.Tensor, dtype: torch.dtype, *, normalize: bool, sparse: bool) -> bool:
    """Whether rows have to be scaled to length 1; an error where they must not be, or cannot."""
    where = "the sparse matrix X" if sparse else "X"
    if not bool((lengths > 0).all()):
        bad = int((~(lengths > 0)).nonzero()[0])
        raise ValueError(f"row {bad} of {where} is zero and has no direction: leave out such rows, or give them one")
    off = (lengths - 1).abs()
    if not normalize and bool((off > UNIT_TOLERANCE).any()):
        bad = int((off > UNIT_TOLERANCE).nonzero()[0])
        raise ValueError(
            f"with normalize=False every row of {where} must have length 1 up to {UNIT_TOLERANCE:g}, got length {float(lengths[bad]):.9g} in row {bad}: "
            "normalise the rows, or use normalize=True"
        )
    return normalize and bool((off > _UNIT_ROUNDINGS * torch.finfo(dtype).eps).any())

"""The class state in a training checkpoint of the public ProCo code, read without running any of the code in the file.

ProCo saves the whole criterion object under the key "criterion_scl", because its class state is in plain attributes that no
state_dict carries. `torch.load` would have to import the class and run the pickle, which is to run whatever the author of the
file put there, and it needs ProCo's source on the path. Here the pickle is only read: see `pairgrad.compat.pickles`.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pairgrad.sphere.inputs import LENGTHS

from .archive import STORAGES, Archive, open_archive
from .pickles import Construction, Symbol, kind

_SHOWN = 20  # names that a message lists
_WRAPPERS = ("module", "_orig_mod")  # where DataParallel and torch.compile keep the module they wrap
_MOST_WRAPPERS = 4
_EARLIER = "use an earlier checkpoint"


@dataclass(frozen=True, eq=False)
class EstimatorState:
    """One of ProCo's two banks of class statistics, on the CPU and in the dtypes of the file. K classes, p dimensions."""

    mean: torch.Tensor
    """ProCo's `Ave`, shape (K, p): the mean feature of each class, not normalised."""
    count: torch.Tensor
    """ProCo's `Amount`, shape (K,): the number of features in each mean. 0 means that the mean is the random initial one."""
    concentration: torch.Tensor
    """ProCo's `kappa`, shape (K,)."""
    log_normaliser: torch.Tensor
    """ProCo's `logc`, shape (K,): log I_nu(kappa) - nu log kappa as ProCo computed it, which can be far off. Kept for comparison;
    the concentration is enough to compute it again."""


@dataclass(frozen=True, eq=False)
class ProCoState:
    """The class state of a ProCo criterion."""

    temperature: float | None
    """None if the criterion has no such attribute."""
    old: EstimatorState
    """`estimator_old`, with which ProCo scores."""
    new: EstimatorState
    """`estimator`, which becomes the old one at the start of the next epoch. Its concentration is still the initial one."""


def read_proco_checkpoint(path: str | os.PathLike[str], *, key: str = "criterion_scl") -> ProCoState:
    """The class state in a checkpoint that ProCo's training script saved with torch.save.

    No code from the file is run and no module that it names is imported. Tensors saved from a GPU come back on the CPU. The
    criterion may be wrapped in DataParallel or compiled.

    Args:
        path: the checkpoint.
        key: the entry of the checkpoint that holds the criterion object.

    Raises:
        FileNotFoundError: there is no file at `path`.
        ValueError: the file is not a zip-format checkpoint, is damaged, or holds no usable class state under `key`.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"path must be the path of a checkpoint file, got {path!r} ({type(path).__name__})")
    if not isinstance(key, str):
        raise TypeError(f"key must be a string, the name of an entry of the checkpoint, got {key!r} ({type(key).__name__})")
    shown = str(Path(path))
    if Path(path).is_dir():
        raise ValueError(f"path must be a checkpoint file, got the directory {shown!r}: pass a file in it")
    if not Path(path).exists():
        raise FileNotFoundError(f"path must be a checkpoint file, got {shown!r}, which does not exist")
    try:
        with open_archive(path) as archive:
            return _criterion_state(archive, _criterion(archive.contents(), key))
    except ValueError as error:
        raise ValueError(f"path must be a checkpoint of ProCo; {shown!r} cannot be read: {error}") from None


def _criterion(contents: Any, key: str) -> dict[Any, Any]:
    """The attributes of the criterion saved under `key`."""
    entries = _entries(contents)
    if key not in entries:
        raise ValueError(f"it has no entry {key!r}; key must be one of those that are there: {_names(entries)}")
    criterion = entries[key]
    attributes = _attributes(criterion)
    for _ in range(_MOST_WRAPPERS):
        inner = next((attributes[name] for name in _WRAPPERS if name in attributes), None)
        if inner is None or "estimator" in attributes or "estimator_old" in attributes:
            break
        criterion, attributes = inner, _attributes(inner)
    for name in ("estimator", "estimator_old"):
        if name not in attributes:
            raise ValueError(
                f"key must be the entry that holds the criterion object; {key!r} is {kind(criterion)}, without the attribute "
                f"{name!r}. It has: {_names(attributes)}. The checkpoint has: {_names(entries)}"
            )
    return attributes


def _criterion_state(archive: Archive, attributes: dict[Any, Any]) -> ProCoState:
    temperature = None
    if attributes.get("temperature") is not None:
        temperature = _number(archive, attributes["temperature"])
        if not (math.isfinite(temperature) and temperature > 0):
            raise ValueError(f"temperature is {temperature}, expected a finite number above 0")
    old = _estimator_state(archive, "estimator_old", attributes["estimator_old"])
    new = _estimator_state(archive, "estimator", attributes["estimator"])
    if old.mean.shape != new.mean.shape:
        raise ValueError(f"estimator_old.Ave has shape {tuple(old.mean.shape)} and estimator.Ave {tuple(new.mean.shape)}: they must agree")
    return ProCoState(temperature, old, new)


def _estimator_state(archive: Archive, name: str, estimator: Any) -> EstimatorState:
    attributes = _attributes(estimator)
    mean = _statistic(archive, name, attributes, "Ave")
    if mean.ndim != 2 or mean.shape[1] < 2:
        raise ValueError(f"{name}.Ave has shape {tuple(mean.shape)}, expected (classes, dimensions) with at least two dimensions")
    for attribute, expected in zip(("class_num", "feature_num"), mean.shape, strict=True):
        stated = attributes.get(attribute)
        if isinstance(stated, int) and stated != expected:
            raise ValueError(f"{name}.{attribute} is {stated}, but {name}.Ave has shape {tuple(mean.shape)}: they must agree")
    most = LENGTHS[torch.float64 if mean.dtype == torch.float64 else torch.float32][1]
    lengths = torch.linalg.vector_norm(mean, dim=1, dtype=torch.float64)
    if (lengths > most).any():
        raise ValueError(f"{name}.Ave is longer than {most:g} for class {int(lengths.argmax())}, where squares overflow: {_EARLIER}")
    vectors = []
    for attribute in ("Amount", "kappa", "logc"):
        vector = _statistic(archive, name, attributes, attribute)
        if vector.shape != mean.shape[:1]:
            raise ValueError(
                f"{name}.{attribute} has shape {tuple(vector.shape)}, expected ({mean.shape[0]},) as {name}.Ave has {mean.shape[0]} classes"
            )
        if attribute != "logc":
            counts = attribute == "Amount"
            wrong = (vector < 0) | ((vector != vector.round()) if counts else (vector > most))
            if wrong.any():
                row, expected = int(wrong.int().argmax()), "a whole number >= 0" if counts else f"a number from 0 to {most:g}"
                raise ValueError(f"{name}.{attribute} is {float(vector[row]):g} for class {row}, expected {expected}: {_EARLIER}")
        vectors.append(vector)
    return EstimatorState(mean, *vectors)


def _statistic(archive: Archive, estimator: str, attributes: dict[Any, Any], attribute: str) -> torch.Tensor:
    """The tensor in an attribute of an estimator, finite."""
    name = f"{estimator}.{attribute}"
    if attribute not in attributes:
        raise ValueError(f"{name} is missing; {estimator} has: {_names(attributes)}")
    tensor = _tensor(archive, name, attributes[attribute])
    if not tensor.is_floating_point() and attribute != "Amount":
        raise ValueError(f"{name} has dtype {tensor.dtype}, expected a floating-point one")
    bad = ~torch.isfinite(tensor)
    if bad.any():
        raise ValueError(f"{name} has a value that is not finite for class {int(bad.nonzero()[0, 0]) if bad.ndim else 0}: {_EARLIER}")
    return tensor


def _tensor(archive: Archive, name: str, value: Any) -> torch.Tensor:
    try:
        return archive.tensor(value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _attributes(value: Any) -> dict[Any, Any]:
    """The attributes that an object would have had, those that a torch module keeps in its three dicts included."""
    if isinstance(value, dict):
        return value
    if not isinstance(value, Construction):
        return {}
    found: dict[Any, Any] = {}
    for state in value.states:
        for part in state if isinstance(state, tuple) else (state,):  # a tuple is (__dict__, slots)
            found |= _entries(part)
    for group in ("_parameters", "_buffers", "_modules"):
        found = _entries(found.get(group)) | found
    return found


def _entries(value: Any) -> dict[Any, Any]:
    """The entries of a dict, or of an object that is filled like one (OrderedDict, defaultdict)."""
    if isinstance(value, Construction):
        return value.entries
    return value if isinstance(value, dict) else {}


def _names(entries: dict[Any, Any]) -> str:
    """The names in a dict, for a message."""
    names = [repr(name[:60]) for name in entries if isinstance(name, str)]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more if names else "no names at all"


def _number(archive: Archive, value: Any) -> float:
    """A Python number, a numpy scalar or a tensor with one element, as a float."""
    match value:
        case bool():
            pass
        case float():
            return value
        case int():
            return float(value) if abs(value) < 2**53 else math.inf
        case Construction(
            Symbol("numpy.core.multiarray" | "numpy._core.multiarray", "scalar"),
            (Construction(Symbol("numpy", "dtype"), (str(code), *_), states=[(_, "<" | ">" as order, *_)]), data),
        ) if code in STORAGES.values():
            match data:  # how bytes are written before protocol 3
                case Construction(Symbol("_codecs", "encode"), (str(text), "latin1")) if max(text, default="") <= "\xff":
                    data = text.encode("latin1")
            dtype = np.dtype(order + code)
            if isinstance(data, bytes) and len(data) == dtype.itemsize:
                return float(np.frombuffer(data, dtype)[0])
        case Construction():
            tensor = _tensor(archive, "temperature", value)
            if tensor.numel() == 1:
                return float(tensor)
    raise ValueError(f"temperature is {kind(value)}, expected a number")

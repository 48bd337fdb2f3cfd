"""A learning state in a file: features, labels and the class state they are scored against.

The format is safetensors, which holds tensors and nothing that runs.

| tensor | shape | |
|---|---|---|
| `features` | (B, p) or (V, B, p) | one batch, or V views of it |
| `labels` | (B,) | integers |
| `<prefix>sums`, `<prefix>compensation`, `<prefix>counts` | (K, p), (K, p), (K,) | a `ClassBank`, under any prefix, as in the `state_dict` of a loss |
| `mean_direction`, `concentration` | (K, p), (K,) | a `ClassState`, instead of a bank |
| `log_prior` | (K,) | optional |
| `class_counts` | (K,) | optional: training samples per class, for head, medium and tail |

The metadata may hold `temperature`, and under `bank` the options of the bank that its concentrations depend on, as JSON.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from pairgrad.ground import reading
from pairgrad.ground.checks import describe
from pairgrad.ground.files import write_atomically
from pairgrad.losses.options import check_temperature
from pairgrad.losses.scores import State
from pairgrad.sphere import ClassBank, ClassState
from pairgrad.sphere.inputs import check_statistics
from pairgrad.sphere.saved import read_options

_RULE = {"concentration": "estimator", "cap": "cap", "small_samples": "small_samples"}  # stored name: option of ClassBank and of its rule


@dataclass(frozen=True, eq=False)
class SavedState:
    """What a certificate needs to know. `temperature` is None where the file does not say; `assumed` lists what else had to be assumed."""

    features: torch.Tensor
    labels: torch.Tensor
    state: State
    temperature: float | None = None
    log_prior: torch.Tensor | None = None
    class_counts: torch.Tensor | None = None
    assumed: tuple[str, ...] = ()

    @property
    def views(self) -> torch.Tensor | list[torch.Tensor]:
        """As `certify` takes them."""
        return self.features if self.features.dim() == 2 else list(self.features)


def save_state(path: str | os.PathLike[str], saved: SavedState) -> Path:
    """Write a learning state, atomically. Tensors are stored as they are, from any device."""
    tensors = {"features": saved.features, "labels": saved.labels}
    metadata: dict[str, str] = {}
    if isinstance(saved.state, ClassBank):
        tensors |= {f"bank.{name}": tensor for name, tensor in saved.state.state_dict().items()}
        rule = saved.state.rule
        metadata["bank"] = json.dumps({stored: getattr(rule, option) for stored, option in _RULE.items()})
    elif isinstance(saved.state, ClassState):
        tensors |= {"mean_direction": saved.state.mean_direction, "concentration": saved.state.concentration}
    else:
        raise TypeError(f"state must be a pairgrad.ClassBank or a pairgrad.ClassState, got {describe(saved.state)}")
    for name in ("log_prior", "class_counts"):
        if getattr(saved, name) is not None:
            tensors[name] = getattr(saved, name)
    if saved.temperature is not None:
        check_temperature(saved.temperature)
        metadata["temperature"] = repr(float(saved.temperature))
    content = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    return write_atomically(path, _safetensors().torch.save(content, metadata))


def load_state(path: str | os.PathLike[str], *, bank: str | None = None) -> SavedState:
    """Read a learning state, on the CPU.

    Args:
        bank: the prefix of the bank's tensors, needed only where the file has several banks.

    Raises:
        ValueError: it is not a safetensors file, or lacks something; the message says what.
        OSError: it cannot be read.
    """
    return of_tensors(path, *read_safetensors(path), bank=bank)


def of_tensors(
    path: str | os.PathLike[str], tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str], *, bank: str | None = None
) -> SavedState:
    """The learning state that these tensors of the file `path` and its metadata describe; errors as of `load_state`."""

    def wanted(name: str) -> torch.Tensor:
        if name not in tensors:
            raise ValueError(f"{path} must hold a tensor {name!r}, got {_names(tensors)}")
        return tensors[name]

    features, labels = wanted("features"), wanted("labels")
    if features.dim() not in (2, 3):
        raise ValueError(f"features in {path} must have shape (batch, dim) or (views, batch, dim), got {describe(features)}")
    temperature = None
    if "temperature" in metadata:
        try:
            temperature = float(metadata["temperature"])
        except ValueError:
            raise ValueError(f"temperature in the metadata of {path} must be a number, got {metadata['temperature']!r}") from None
        try:
            check_temperature(temperature)
        except ValueError as error:
            raise ValueError(f"the metadata of {path}: {error}") from None
    state, saved = _state(path, tensors, metadata, bank)
    temperature = saved.get("temperature") if temperature is None else temperature
    assumed = []
    if isinstance(state, ClassBank) and "cap" not in saved:
        rule = state.rule
        assumed.append(f"the bank estimates concentrations by {rule.estimator!r}, capped at {rule.cap:g}")
    if "log_prior" not in tensors:
        assumed.append("there is no log prior")
    return SavedState(features, labels, state, temperature, tensors.get("log_prior"), tensors.get("class_counts"), tuple(assumed))


def read_safetensors(path: str | os.PathLike[str]) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """The tensors of a safetensors file, and its metadata."""
    try:
        return reading.read_safetensors(path)
    except ValueError as error:
        raise ValueError(f"{path} is not a safetensors file ({error}); write one with pairgrad.certificates.saved.save_state") from None


def _state(path: Any, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str], prefix: str | None) -> tuple[State, dict[str, Any]]:
    """The state, and the options that the file has for it: of a bank, and of the loss that it belongs to."""
    prefixes = sorted(
        name.removesuffix("sums") for name in tensors if name.endswith("sums") and f"{name.removesuffix('sums')}counts" in tensors
    )
    prefixes = [name for name in prefixes if not name.endswith("next_")]
    if prefix is None and "mean_direction" in tensors and "concentration" in tensors:
        try:
            return ClassState(tensors["mean_direction"], tensors["concentration"]), {}
        except (TypeError, ValueError) as error:
            raise ValueError(f"the classes in {path} cannot be used: {error}") from None
    if prefix is not None and prefix not in prefixes:
        prefix = f"{prefix}." if f"{prefix}." in prefixes else prefix
    if prefix is None and len(prefixes) > 1:
        raise ValueError(f"{path} holds several banks: choose one of {', '.join(map(repr, prefixes))}")
    if prefix is None and not prefixes:
        raise ValueError(f"{path} must hold a bank (sums, compensation, counts) or mean_direction and concentration, got {_names(tensors)}")
    prefix = prefixes[0] if prefix is None else prefix
    if prefix not in prefixes:
        raise ValueError(f"{path} holds no bank {prefix!r}, only {', '.join(map(repr, prefixes)) or 'none'}")
    own = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
    sums = own["sums"]
    kept = {name: own.get(name, torch.zeros_like(sums)) for name in ("sums", "compensation", "counts")}
    if sums.dim() != 2 or kept["counts"].shape != sums.shape[:1] or kept["compensation"].shape != sums.shape:
        raise ValueError(
            f"{prefix}sums and {prefix}compensation in {path} must have shape (classes, dim) and {prefix}counts (classes,), got "
            f"{', '.join(map(describe, kept.values()))}"
        )
    try:
        check_statistics(*kept.values(), names=(f"{prefix}sums", f"{prefix}compensation", f"{prefix}counts"))
    except ValueError as error:
        raise ValueError(f"the bank in {path} cannot be used: {error}") from None
    try:
        extra = [tensors.get(f"{place}_extra_state") for place in (prefix.removesuffix("bank."), prefix)]
        saved = {name: value for state in extra if state is not None for name, value in read_options(state).items()}
        saved.update({_RULE[name]: value for name, value in reading.read_json(metadata.get("bank", "{}")).items() if name in _RULE})
        bank = ClassBank(*sums.shape, dtype=sums.dtype, **{option: saved[option] for option in _RULE.values() if option in saved})
    except (TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"the bank in {path} cannot be made again: {error}") from None
    bank.load_state_dict(kept)
    return bank, saved


def _names(tensors: Mapping[str, torch.Tensor]) -> str:
    """What a file holds, if need be in short."""
    shown, more = sorted(tensors)[:8], len(tensors) - 8
    return "no tensors" if not shown else f"only {', '.join(shown)}{f' and {more} more' if more > 0 else ''}"


def _safetensors() -> Any:
    try:
        import safetensors
        import safetensors.torch  # pyright: ignore[reportUnusedImport]
    except ImportError as error:
        raise ImportError("saved learning states need the safetensors package: pip install 'pairgrad[cli]'") from error
    return safetensors

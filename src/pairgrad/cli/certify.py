"""`pairgrad certify`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from rich.text import Text

import pairgrad as pg
from pairgrad.certificates.learning import LearningCertificate, certify, shot_groups
from pairgrad.certificates.saved import SavedState, of_tensors, read_safetensors
from pairgrad.cli.commands import CertifyOptions
from pairgrad.cli.mistakes import fail
from pairgrad.cli.output import print_table, save_json
from pairgrad.cli.spec_values import load
from pairgrad.cli.streams import Console
from pairgrad.ground.checks import describe, one_of, real_number
from pairgrad.losses.adjust import log_prior
from pairgrad.sphere import ClassBank

SCHEMA = "pairgrad.certificate/1"
_DTYPES = {"float32": torch.float32, "float64": torch.float64}
_TEMPERATURE = 0.1


def run(options: CertifyOptions) -> None:
    """Read the state and the batch, certify them for every realization, print what a person wants to know and write the data."""
    console = Console()
    try:
        saved = _state(options)
        working = None if options.dtype is None else _DTYPES[one_of("--dtype", options.dtype, tuple(_DTYPES))]
        tau = saved.temperature
        if options.temperature is not None:
            tau = real_number("--temperature", options.temperature, "a positive finite number", lambda value: 0 < value < math.inf)
        assumed = list(saved.assumed)
        if tau is None:
            tau = _TEMPERATURE
            assumed.append(f"the temperature is {tau:g} (give another with --temperature)")
        counts, source = saved.class_counts, "--class-counts" if options.class_counts is not None else "class_counts of the file"
        if counts is None and isinstance(saved.state, ClassBank):
            counts, source = saved.state.counts, "the counts of the bank"
        groups = {} if counts is None else shot_groups(saved.labels, counts)
        names = options.realization or _with_theorem(console, saved.state.dim)
        with console.status("certifying"):
            certificates = [
                certify(saved.views, saved.labels, saved.state, tau, saved.log_prior, name, groups=groups, geometry_dtype=working)
                for name in names
            ]
    except (ValueError, TypeError) as error:
        fail("certify", error)
    _describe(console, saved, source if counts is not None else "")
    if assumed:
        console.print(Text(f"The file does not say otherwise, so it is assumed that {'; '.join(assumed)}.\n", style="yellow"))
    for certificate in certificates:
        _print(console, certificate)
    hypothesis = certificates[0].hypothesis
    console.print(Text(f"Rounding: {hypothesis}.", style="dim"))
    found = [{"realization": name, **certificate.to_dict()} for name, certificate in zip(names, certificates, strict=True)]
    given = {"state": str(options.state), "temperature": tau, "assumed": assumed, "rounding": hypothesis}
    save_json(console, options.json, {"schema": SCHEMA, **given, "certificates": found})


def _state(options: CertifyOptions) -> SavedState:
    """The class state and the batch, from their files."""
    path = options.state
    if path.suffix.lower() in (".pt", ".pth"):
        tensors, metadata = _flat(_read("", path, load)), {}
    else:
        tensors, metadata = _read("", path, read_safetensors)
    for name in ("features", "labels", "class_counts"):
        file = getattr(options, name)
        if file is not None:
            tensors[name] = _tensor(name, file)
        elif name != "class_counts" and name not in tensors:
            raise ValueError(f"{path} holds no tensor {name!r}: give the {name} of the batch with --{name} FILE")
    if options.class_counts is not None:
        tensors["log_prior"] = log_prior(tensors["class_counts"])
    saved = of_tensors(path, tensors, metadata, bank=options.bank)
    if isinstance(saved.state, ClassBank) and not bool(saved.state.counts.any()):
        raise ValueError(f"the class bank in {path} has no samples, all counts are 0: save it after it was updated")
    if saved.class_counts is not None and saved.class_counts.shape != (saved.state.num_classes,):
        raise ValueError(f"class counts must be one for each of the {saved.state.num_classes} classes, got {describe(saved.class_counts)}")
    return saved


def _read(option: str, path: Path, reader: Callable[[str], Any]) -> Any:
    try:
        return reader(str(path))
    except OSError as error:
        fail("certify", f"{option}cannot read {path}: {error.strerror or error}")
    except ValueError as error:
        raise ValueError(f"{option}{error}") from None


def _flat(content: Any, prefix: str = "") -> dict[str, torch.Tensor]:
    """The tensors in nested dicts, such as checkpoints, by names with dots."""
    if isinstance(content, torch.Tensor):
        return {prefix.removesuffix("."): content}
    items = content.items() if isinstance(content, Mapping) else ()
    return {name: tensor for key, value in items for name, tensor in _flat(value, f"{prefix}{key}.").items()}


def _tensor(name: str, file: Path) -> torch.Tensor:
    """The tensor that a file holds, or that of this name."""
    option = f"--{name.replace('_', '-')}: "
    content = _read(option, file, load)
    found = content
    if isinstance(content, Mapping):
        found = content[name] if name in content else next(iter(content.values()), None) if len(content) == 1 else None
    if not isinstance(found, torch.Tensor):
        held = f"a dict with {', '.join(map(str, content))}" if isinstance(content, Mapping) else describe(content)
        raise ValueError(f"{option}{file} must hold one tensor, or one named {name!r}, got {held:.200}")
    return found


def _with_theorem(console: Console, dim: int) -> list[str]:
    """The paper's realization and the default, where they have a ratio bound."""
    found = []
    for name in ("arfr", "paired"):
        certificate = pg.potential(dim, name).ratio_certificate()
        if certificate.bound is None:
            console.print(Text(f"{name}: {certificate.reason}\n", style="yellow"))
        else:
            found.append(name)
    return found


def _describe(console: Console, saved: SavedState, source: str) -> None:
    kappa, lengths = saved.state.classes().concentration, torch.linalg.vector_norm(saved.features.double(), dim=-1)
    console.print(Text(f"Concentrations {float(kappa.min()):.4g} to {float(kappa.max()):.4g}, "
                       f"features of length {float(lengths.min()):.4g} to {float(lengths.max()):.4g}"
                       + ("" if saved.log_prior is None else ", with a log prior") + "."))  # fmt: skip
    if source:
        console.print(Text(f"Head, medium and tail: more than 100, 20 to 100, fewer than 20 samples, by {source}."))
    console.print()


def _print(console: Console, certificate: LearningCertificate) -> None:
    console.print(Text(certificate.title, style="bold"))
    print_table(console, ("|computed - exact|", "at most", "truncation", "rounding"), certificate.lines(), left=("|computed - exact|",))
    console.print(Text(f"\n{certificate.verdict()}", style="" if bool(certificate.margin.unchanged.all()) else "yellow"))
    console.print(Text(f"{certificate.ratio}\n", style="dim"))

"""`pairgrad certify --state`."""

from __future__ import annotations

import torch
from rich.console import Console
from rich.text import Text

import pairgrad as pg
from pairgrad.certificates.learning import LearningCertificate, certify, shot_groups
from pairgrad.certificates.saved import SavedState, load_state
from pairgrad.cli.commands import CertifyOptions
from pairgrad.cli.mistakes import fail
from pairgrad.cli.output import print_table
from pairgrad.ground.checks import one_of
from pairgrad.sphere import ClassBank

_DTYPES = {"float32": torch.float32, "float64": torch.float64}
_TEMPERATURE = 0.1


def run(options: CertifyOptions) -> None:
    """Read the state, certify it for every realization and print what a person wants to know."""
    console = Console()
    assert options.state is not None
    try:
        saved = load_state(options.state, bank=options.bank)
        working = None if options.dtype is None else _DTYPES[one_of("--dtype", options.dtype, tuple(_DTYPES))]
        tau = options.temperature if options.temperature is not None else saved.temperature
        assumed = list(saved.assumed)
        if tau is None:
            tau = _TEMPERATURE
            assumed.append(f"the temperature is {tau:g} (give another with --temperature)")
        counts, source = saved.class_counts, "class_counts of the file"
        if counts is None and isinstance(saved.state, ClassBank):
            counts, source = saved.state.counts, "the counts of the bank"
        groups = {} if counts is None else shot_groups(saved.labels, counts)
        with console.status("certifying"):
            certificates = [
                certify(saved.views, saved.labels, saved.state, tau, saved.log_prior, name, groups=groups, geometry_dtype=working)
                for name in options.realization or _with_theorem(console, saved.state.dim)
            ]
    except (ValueError, TypeError) as error:
        fail("certify", error)
    _describe(console, saved, source if counts is not None else "")
    if assumed:
        console.print(Text(f"The file does not say otherwise, so it is assumed that {'; '.join(assumed)}.\n", style="yellow"))
    for certificate in certificates:
        _print(console, certificate)
    console.print(Text(f"Rounding: {certificates[0].hypothesis}.", style="dim"))


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

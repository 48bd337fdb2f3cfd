"""`pairgrad prove`."""

from __future__ import annotations

import re
import textwrap
import time
from typing import Any

import torch
from rich.text import Text

import pairgrad as pg
from pairgrad.certificates import ratio
from pairgrad.certificates.ratio import Proof
from pairgrad.certificates.rounding import HYPOTHESIS, measured_slope_rounding, slope_rounding_bound
from pairgrad.cli.commands import ProveOptions
from pairgrad.cli.mistakes import fail
from pairgrad.cli.output import print_table, progress
from pairgrad.cli.streams import Console
from pairgrad.ground.balls import flint
from pairgrad.ground.certificate import rounded_up

_MEASURABLE = 10**6  # the largest nu at which exact values are computed for comparison
_DTYPES = {"float64": torch.float64, "float32": torch.float32}


def run(options: ProveOptions) -> bool:
    """Prove what was asked for and print it; False if a proof failed."""
    flint()  # what is missing is said before anything is printed
    console, order = Console(), options.order
    try:
        if options.dim is not None or options.nu is not None:
            return _potentials(console, options.dim, options.nu, order, options.shift)
        if options.shift is not None:
            raise ValueError(f"--shift needs --dim or --nu: it belongs to a potential, got --shift {options.shift} alone")
        if order is not None:
            return _orders(console, range(_provable("--order", order), order + 1))
        return _orders(console, range(1, _provable("--max-order", 8 if options.max_order is None else options.max_order) + 1))
    except (ValueError, TypeError) as error:
        fail("prove", re.sub(r"^(?=(dim|nu|order|shift) )", "--", str(error)))


def _provable(option: str, order: int) -> int:
    if not 1 <= order <= ratio.MAX_ORDER:
        raise ValueError(f"{option} must be from 1 to {ratio.MAX_ORDER}, the orders that can be proven, got {order}")
    return order


def _orders(console: Console, orders: range) -> bool:
    started, proofs = time.perf_counter(), []
    with progress(console, "proving", 2 * len(orders) + len(_DTYPES)) as tick:
        for family in ratio.FAMILIES:
            for order in orders:
                proofs.append((family, order, ratio.prove_order(family, order)))
                tick()
        plans = []
        for dtype in _DTYPES.values():
            plans.append((dtype, ratio.prove_plans(dtype)))
            tick()
    console.print(Text("R = I_{nu+1} / I_nu and its uniform expansion A_n, all x >= 0, all nu >= nu_0:", style="bold"))
    console.print("  |R - A_n| <= leading / c^(n+1) + next / c^(n+2)")
    console.print("  |R - A_n| <= B v / c^(n+1),  v = x / sqrt(c^2 + x^2)")
    console.print("  c = nu + 1/2 (midpoint family, 'paired') or c = nu (centred, 'arfr')\n")
    rows = [
        (
            *(family, str(order), *(rounded_up(proof.constants[name]) for name in ("nu_0", "leading", "next", "relative"))),
            *(f"{proof.margin:.1e}", f"{proof.seconds:.2f}", Text("proven") if proof.holds else Text("FAILED", style="bold red")),
        )
        for family, order, proof in proofs
    ]
    print_table(console, ("family", "n", "nu_0", "leading", "next", "B", "margin", "seconds", ""), rows, left=("family", ""))
    console.print("\nmargin: the share of the inward pull at the barrier that the residual leaves")
    console.print("\nEvery potential with order 'auto', all x >= 0, all nu >= 0, before rounding:")
    for dtype, proof in plans:
        roundings = float(proof.constants["relative"]) / (torch.finfo(dtype).eps / 2)
        verdict = "proven" if proof.holds else "FAILED"
        console.print(
            Text(f"  {str(dtype).removeprefix('torch.')}  |slope - R| <= {rounded_up(roundings, 3)} u R  {proof.seconds:.2f} s  {verdict}")
        )
    done = [*(proof for _, _, proof in proofs), *(proof for _, proof in plans)]
    _failures(console, done)
    console.print(f"\n{sum(proof.holds for proof in done)} of {len(done)} proven in {time.perf_counter() - started:.1f} s")
    return all(proof.holds for proof in done)


def _potentials(console: Console, dim: int | None, nu: float | None, order: int | None, shift: int | None) -> bool:
    if dim is not None and nu is not None:
        raise ValueError(f"give --dim or --nu, not both, got --dim {dim} and --nu {nu}")

    def build(**options: Any) -> pg.Potential:
        return pg.potential(dim, **options) if nu is None else pg.potential(nu=nu, **options)

    console.print(Text(f"Rounding, in the following: {HYPOTHESIS}.\n", style="dim"))
    given = {} if shift is None else {"shift": shift}
    if order is None:
        pot = build(**given)
        proven = [_potential(console, pot, dtype, f"{pot!r}, {name}") for name, dtype in _DTYPES.items()]
        return all(proven)
    pot, held = build(order=order, **given), []
    if shift is None and pot.nu > 0:
        paper = build(realization="arfr", order=order)
        held += [_general(console, "centred", order), _potential(console, paper, torch.float64, repr(paper))]
    held += [_general(console, "midpoint", order), _potential(console, pot, torch.float64, repr(pot))]
    return all(held)


def _general(console: Console, family: str, order: int) -> bool:
    with console.status("proving"):
        proof = ratio.prove_order(family, order)
    console.print(Text(f"Theorem, order {order}, {family} family", style="bold"))
    _explain(console, proof)
    return proof.holds


def _potential(console: Console, pot: pg.Potential, dtype: torch.dtype, label: str) -> bool:
    console.print(Text(label, style="bold"))
    certificate = pot.ratio_certificate(dtype)
    if certificate.bound is None or certificate.bound == float("inf"):
        _line(console, "", f"no bound: {certificate.reason}\n")
        return True
    with console.status("proving"):
        proof = ratio.prove_potential(pot, dtype)
    _explain(console, proof)
    _line(console, "relative", f"|slope - R| <= {rounded_up(certificate.relative_bound or 0.0)} R")
    if pot.nu <= _MEASURABLE:
        with console.status("measuring"):
            attained = ratio.measured_ratio_error(pot, dtype).bound or 0.0
        factor = f"; the bound is {certificate.bound / attained:.3g} times that" if attained else ""
        _line(console, "attained", f"{attained:.4g}, measured in balls on 121 concentrations{factor}")
    else:
        _line(console, "attained", f"not measured: exact Bessel functions of order {float(pot.nu):.3g} take too long")
    with console.status("bounding the rounding"):
        rounding = slope_rounding_bound(pot, dtype)
        seen = measured_slope_rounding(pot, dtype)
    words = f"|computed - slope| <= {rounded_up(rounding.relative)} |slope| = {rounded_up(rounding.roundings, 3)} u |slope|, proven"
    _line(console, "rounding", words)
    _line(console, "seen", f"{seen:.1f} u, the largest rounding error of 1000 random x\n")
    return proof.holds


def _explain(console: Console, proof: Proof) -> None:
    verdict = f"proven in {proof.seconds:.2f} s" if proof.holds else "NOT PROVEN"
    _line(console, "", proof.statement, style="" if proof.holds else "red")
    _line(console, "hypothesis", proof.hypothesis)
    _line(console, "constants", ", ".join(f"{name} = {float(value):.4g}" for name, value in proof.constants.items()))
    for name in dict.fromkeys(step.name for step in proof.steps):
        steps = [step for step in proof.steps if step.name == name]
        _line(console, "checked", f"{name}: {sum(step.holds for step in steps)} of {len(steps)} hold")
    _failures(console, [proof])
    console.print(Text(f"  {verdict}; margin of the barrier {proof.margin:.1e}"))


def _failures(console: Console, proofs: list[Proof]) -> None:
    for proof in proofs:
        for step in proof.failures():
            _line(console, "failed", f"{step.name}: {step.statement} {step.detail}", style="red")


def _line(console: Console, name: str, words: str, style: str = "") -> None:
    """What a proof says of itself: a name, and words that are folded beside it."""
    named = f"  {name:<12}" if name else "  "
    folded = textwrap.fill(words, console.width, initial_indent=named, subsequent_indent=" " * max(len(named), 4), break_long_words=False)
    console.print(Text(folded + "\n" * words.count("\n"), style=style), soft_wrap=True)

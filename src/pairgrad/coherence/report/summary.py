"""The first lines of a report: what a person needs, and the words they use."""

from __future__ import annotations

import math
import re
import textwrap
from typing import TYPE_CHECKING

from pairgrad.coherence.judge.hints import multiple
from pairgrad.coherence.judge.verdict import Judgement, Verdict
from pairgrad.ground.text import printable

if TYPE_CHECKING:
    from pairgrad.coherence.report.report import ArgumentGradient, Report

GLOSSARY = {
    "coherent": "the backward supplies the derivative of the value that the forward computes",
    "cotangent": "what a backward receives: the gradient of the loss by the output, called grad_output in torch.autograd.Function",
    "defect": "the supplied gradient less the true one, over the size of the true one: 0.2 means off by a fifth",
    "limit": "the smallest defect that would have been seen",
    "re-entrant": "a second call, or a second backward, at the same state gives the same result, and arguments are not edited",
}
_USED = {"coherent": "coherent", "cotangent": r"cotangent|grad_output", "re-entrant": r"re-?entran"}


def glossary(text: str) -> str:
    """The words of the glossary that occur in a text, with what they mean; empty if there are none."""
    used = [word for word in GLOSSARY if re.search(_USED.get(word, rf"\b{word}"), text, re.IGNORECASE)]
    lines = [textwrap.fill(f"{word}: {GLOSSARY[word]}.", 100, initial_indent="  ", subsequent_indent="    ") for word in used]
    return "\n".join(["Words used here:", *lines]) if used else ""


def number(value: float, digits: int = 3) -> str:
    """Three digits, or a word where there are none."""
    return f"{value:.{digits}g}" if math.isfinite(value) else "infinity"


def summary(report: Report) -> str:
    """Up to five lines: the verdict and the backward, what is wrong, the checks, the element that is off most, a hint."""
    worst = _worst(report)
    lines = [_title(report), _said(report, worst), _checks(report)]
    if worst is not None and math.isfinite(worst.supplied) and math.isfinite(worst.true):
        index = f"[{', '.join(map(str, worst.index))}]" if worst.index else ""
        supplied, true = apart(worst.supplied, worst.true)
        lines.append(f"at {worst.argument}{index}: supplied {supplied}, true {true}")
    lines.append(f"hint: {report.hint}" if report.hint else "")
    return "\n".join(printable(line) for line in lines if line)


def named(argument: str) -> str:
    """The name of an argument as a report says it: positional ones with the number that a signature gives them."""
    position = re.match(r"input (\d+)", argument)
    return f"{argument} (argument {int(position[1]) + 1})" if position else argument


def off_by(gradient: ArgumentGradient) -> str:
    """How far a gradient is off, in words that follow "is"."""
    if math.isinf(gradient.relative):
        return "not zero, where the true one is"
    if abs(gradient.relative**2 + 2 * gradient.factor - 1) <= 1e-12:  # |supplied|^2 / |true|^2
        return "zero, where the true one is not"
    factor = multiple(gradient.relative, gradient.error, gradient.factor)
    if factor is None or factor == 1:
        return f"off by {number(gradient.relative)} of the true one (± {number(gradient.error, 1)})"
    digits = 6 if abs(factor) >= 100 else max(3, 2 - math.floor(math.log10(abs(factor - 1))))
    return f"{factor:.{digits}g} x the true one"


def apart(first: float, second: float) -> tuple[str, str]:
    """Two numbers with as many digits as they need to differ, three at least."""
    for digits in range(3, 18):
        words = f"{first:.{digits}g}", f"{second:.{digits}g}"
        if words[0] != words[1]:
            return words
    return f"{first:.3g}", f"{second:.3g}"


def gravest_judgement(report: Report) -> Judgement | None:
    """The judgement behind the verdict."""
    return next((judgement for judgement in report.verdicts if judgement.verdict is report.verdict), None)


def _worst(report: Report) -> ArgumentGradient | None:
    """The gradient that the summary speaks of: that of the argument that is off most, unless something graver was found elsewhere."""
    off = [gradient for gradient in report.gradients if gradient.relative > gradient.error]
    if report.passed or not off or report.verdict not in (Verdict.INCOHERENT, Verdict.STRAIGHT_THROUGH):
        return None
    worst, judgement = max(off, key=lambda gradient: gradient.relative), gravest_judgement(report)
    graver = judgement is not None and judgement.relative - judgement.error > worst.relative + worst.error
    return None if graver else worst


def _title(report: Report) -> str:
    word = "PASS" if report.passed else "UNDECIDED" if report.verdict is Verdict.INCONCLUSIVE else "FAIL"
    declared = f" (declared: {report.intent})" if report.intent else ""
    name, _, location = report.place.removesuffix(")").partition(" (")
    backward = f"{name}.backward" if name else report.name
    return f"{word}{declared} {backward}{'  ' + location if location else ''}"


def _said(report: Report, worst: ArgumentGradient | None) -> str:
    if worst is not None:
        return f"gradient of {named(worst.argument)} is {off_by(worst)}"
    if not report.passed:
        judgement = gravest_judgement(report)
        return _over_domain(report, judgement) or (judgement.text if judgement is not None else "") or report.headline
    near, far = report.scales
    seen = f", at distances of {near:.1g} to {far:.2g} of the size of the inputs" if math.isfinite(near) and math.isfinite(far) else ""
    return f"{report.headline}{seen}"


def _over_domain(report: Report, judgement: Judgement | None) -> str:
    """Of a gradient that is off in regions of a domain: where, and by how much."""
    regions = {name: [region for region in found if region.verdict == "incoherent"] for name, found in report.regions.items()}
    name, off = max(regions.items(), key=lambda item: len(item[1]), default=("", []))
    behind = [finding for finding in report.findings if finding.kind == "defect" and finding.severity == "alarm"]
    if not off or judgement is None or judgement.relative not in [finding.numbers.get("relative") for finding in behind]:
        return ""
    places = [f"from {region.low:.6g} to {region.high:.6g}" for region in off]
    listed = ", ".join(places[:3]) + (f" and in {len(places) - 3} more regions" if len(places) > 3 else "")
    size = f"{number(judgement.relative)} of the true one (± {number(judgement.error, 1)})"
    return f"gradient of {named(name)} is off {listed}, by up to {size}"


def _checks(report: Report) -> str:
    """What each check came to, capitals where it failed; linearity, forward mode and vmap only where they did."""
    said = []
    for check, result in report.checks.items():
        if check in ("linear", "forward mode", "vmap", "no grad") and result not in ("no", "wrong"):
            continue
        name = "second" if check == "second order" and "first order" in report.checks else check
        said.append(f"{name} {result.upper() if result in ('wrong', 'no') else result}")
    return ", ".join(said)

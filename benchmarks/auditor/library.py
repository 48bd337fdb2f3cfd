"""The auditor over the functions of torch, and evidence from mpmath for whatever it does not pass."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import mpmath
import torch
from tests.coherence.library_functions import ONCE, LibraryFunction
from torch.nn import functional as F

from benchmarks.auditor.comparison import progress, row, rule
from pairgrad.coherence import Report, Verdict, audit
from pairgrad.ground.timing import machine_line

DTYPES = (torch.float64, torch.float32)
DIGITS = 40
GRID = 200  # points of a domain at which mpmath is asked
REAL = 0.5  # a defect is real if the evidence shows at least this part of it
HALF_LENGTH = 2.0**-7  # of the segment over which the error of a value is differenced, as a part of the argument

Exact = Callable[[Any], Any]


@dataclass(frozen=True)
class Row:
    """One place: what torch supplies, what is exact, and the defect that follows, relative to the exact one."""

    where: str
    supplied: float
    exact: str
    of_supplied: float  # supplied / exact - 1
    of_value: float  # slope of the error of the value, over the exact derivative

    @property
    def defect(self) -> float:
        return self.of_supplied - self.of_value


@dataclass(frozen=True)
class Evidence:
    """What was found without the auditor. `defect` is comparable with the auditor's."""

    text: str
    rows: tuple[Row, ...]
    defect: float


@dataclass(frozen=True)
class Entry:
    """One function: {dtype: reports, one for each seed}, and evidence for the dtypes in which one does not pass."""

    function: LibraryFunction
    reports: dict[torch.dtype, list[Report]]
    evidence: dict[torch.dtype, Evidence | None] = field(default_factory=dict)


def _polygamma(order: int) -> Exact:
    return lambda x: mpmath.psi(order, x)


def _multigamma(order: int) -> Exact:
    """Derivatives of log Γ_3: sums over x, x - 1/2 and x - 1."""
    return lambda x: sum(mpmath.psi(order, x - mpmath.mpf(j) / 2) for j in range(3))


# First and second derivatives, and the value where its error can matter.
EXACT: dict[str, tuple[Exact, Exact, Exact]] = {
    "special.digamma": (_polygamma(0), _polygamma(1), _polygamma(2)),
    "special.digamma, negative": (_polygamma(0), _polygamma(1), _polygamma(2)),
    "special.polygamma, order 0": (_polygamma(0), _polygamma(1), _polygamma(2)),
    "special.polygamma, order 1": (_polygamma(1), _polygamma(2), _polygamma(3)),
    "special.polygamma, order 3": (_polygamma(3), _polygamma(4), _polygamma(5)),
    "special.gammaln": (mpmath.loggamma, _polygamma(0), _polygamma(1)),
    "special.gammaln, negative": (lambda x: mpmath.re(mpmath.loggamma(x)), _polygamma(0), _polygamma(1)),
    "lgamma": (mpmath.loggamma, _polygamma(0), _polygamma(1)),
    "special.multigammaln": (
        lambda x: 1.5 * mpmath.log(mpmath.pi) + sum(mpmath.loggamma(x - mpmath.mpf(j) / 2) for j in range(3)),
        _multigamma(0),
        _multigamma(1),
    ),
}


def torch_trigamma(x: Any) -> Any:
    """The formula of torch's trigamma for x >= 0.5: six steps up, and an asymptotic series that ends with 1/(42 x^7)."""
    x, total = mpmath.mpf(x), mpmath.mpf(0)
    for _ in range(6):
        total += 1 / x**2
        x += 1
    y = 1 / x**2
    return total + (1 + 1 / (2 * x) + y * (mpmath.mpf(1) / 6 - y * (mpmath.mpf(1) / 30 - y / 42))) / x


def why_trigamma() -> str:
    """Whether that formula, at forty digits, gives what torch supplies."""
    grid = torch.linspace(0.5, 20, GRID, dtype=torch.float64)
    with mpmath.workdps(DIGITS):
        off = max(
            abs(float(v / torch_trigamma(x) - 1)) for v, x in zip(torch.special.polygamma(1, grid).tolist(), grid.tolist(), strict=True)
        )
        short = max(abs(float(torch_trigamma(x) / mpmath.psi(1, x) - 1)) for x in grid.tolist())
    return (
        "The value is right to rounding; the trigamma of the backward is not. Its formula, six steps upwards and four terms of the asymptotic series, "
        f"evaluated by mpmath, gives what torch supplies to {off:.1g} on [0.5, 20], and is off by up to {short:.2g} itself."
    )


def why_polygamma(report: Report) -> str:
    """The value's error, and its jump where the formula changes to a reflection."""
    below, above = torch.tensor(0.5, dtype=torch.float64).nextafter(torch.tensor(0.0)).item(), 0.5
    values = torch.special.polygamma(1, torch.tensor([below, above], dtype=torch.float64)).tolist()
    with mpmath.workdps(DIGITS):
        errors = [float(mpmath.mpf(v) / mpmath.psi(1, mpmath.mpf(x)) - 1) for v, x in zip(values, (below, above), strict=True)]
    named = "which the auditor names" if any(f.kind == "jump" for f in report.findings) else "too small a leap for the auditor to name"
    return (
        "Here the backward is right to rounding, and the value, the same trigamma, is not: its error has a slope. Below 0.5 it is reflected, and leaps there: "
        f"its relative error is {errors[0]:.2g} just below and {errors[1]:.2g} at 0.5, {named}."
    )


WHY: dict[str, Callable[[Report], str]] = {
    "special.digamma": lambda report: why_trigamma(),
    "special.digamma, negative": lambda report: "The same trigamma, reflected.",
    "special.polygamma, order 0": lambda report: "digamma under another name.",
    "special.polygamma, order 1": why_polygamma,
    "special.gammaln": lambda report: "The second derivative of log Γ is the same trigamma.",
    "lgamma": lambda report: "The second derivative of log Γ is the same trigamma.",
    "special.multigammaln": lambda report: "A sum of log Γ: its second derivative is a sum of the same trigammas.",
}


def derivatives(fn: Callable[..., Any], x: torch.Tensor, order: int) -> torch.Tensor:
    """Of a function that acts element by element: its value, its gradient, its second derivative, as torch supplies them."""
    x = x.detach().requires_grad_()
    result = fn(x)
    for k in range(order):
        (result,) = torch.autograd.grad(result.sum(), x, create_graph=k + 1 < order)
    return result.detach()


def split(fn: Callable[..., Any], exact: tuple[Exact, Exact, Exact], x: float, dtype: torch.dtype, order: int) -> Row:
    """The defect at x, as the error of the supplied derivative less the slope of the error of what it is the derivative of."""
    with mpmath.workdps(DIGITS):
        centre = torch.tensor(x, dtype=dtype)
        half = abs(x) * HALF_LENGTH
        ends = torch.tensor([x - half, x + half], dtype=dtype)
        derivative = exact[order](mpmath.mpf(float(centre)))
        supplied = float(derivatives(fn, centre, order))
        errors = [
            mpmath.mpf(float(v)) - exact[order - 1](mpmath.mpf(float(e)))
            for v, e in zip(derivatives(fn, ends, order - 1), ends, strict=True)
        ]
        slope = (errors[1] - errors[0]) / (mpmath.mpf(float(ends[1])) - mpmath.mpf(float(ends[0])))
        return Row(
            f"x = {float(centre):.8g}",
            supplied,
            mpmath.nstr(derivative, 20),
            float((supplied - derivative) / derivative),
            float(slope / derivative),
        )


def elementwise_evidence(function: LibraryFunction, dtype: torch.dtype, report: Report, seed: int) -> Evidence:
    """At the auditor's own place, and the worst of a grid over the domain or, for a second derivative, of the inputs."""
    exact, why = EXACT[function.name], WHY.get(function.name, lambda report: "")(report)
    order = 1 if any(state.order == 1 and state.verdict == "incoherent" for state in report.states) else 2
    if order == 2:
        (x,) = function.inputs(seed, dtype)
        rows = [split(function.fn, exact, float(value), dtype, 2) for value in x]
        worst = max(rows, key=lambda r: abs(r.defect))
        with mpmath.workdps(DIGITS):
            sizes = [float(mpmath.mpf(r.exact)) for r in rows]
        size = math.sqrt(sum(s * s for s in sizes))
        largest = max(abs(r.defect * s) for r, s in zip(rows, sizes, strict=True)) / size
        text = (
            f"Of the second derivative, at the inputs; the largest error is {largest:.3g} of the length of the whole vector of them. {why}"
        )
        return Evidence(text.strip(), (worst,), abs(worst.defect))
    places = [float(x) for x in _places(report)]
    (interval,) = function.domain or (None,)
    low, high = interval or (min(places), max(places))
    rows = [split(function.fn, exact, low + (high - low) * (k + 0.5) / GRID, dtype, 1) for k in range(GRID)]
    worst = max(rows, key=lambda r: abs(r.defect))
    here = [split(function.fn, exact, x, dtype, 1) for x in places[:1]]
    text = f"Of the first derivative, at the auditor's place and at the worst of {GRID} points of [{low:g}, {high:g}]. {why}"
    return Evidence(text.strip(), (*here, worst), abs((here[0] if here else worst).defect))


def _places(report: Report) -> list[str]:
    """The numbers at which the single argument was off, the worst first."""
    defective = sorted((s for s in report.states if s.verdict == "incoherent" and s.order == 1), key=lambda s: -s.relative)
    found = (re.fullmatch(r"(?:near )?input 0 = (\S+)", state.state) for state in defective)
    return [match.group(1) for match in found if match]


def binary_cross_entropy_evidence(function: LibraryFunction, dtype: torch.dtype, report: Report, seed: int) -> Evidence:
    """The second derivative in p is (t/p² + (1-t)/(1-p)²) w/n; torch's double backward has p + 1e-12 and 1 - p + 1e-12 in the denominators."""
    p, t = function.inputs(seed, dtype)
    weight = torch.ones_like(p)
    if "weighted" in function.name:  # the weights are the function's own: its gradient is linear in them
        weight = derivatives(lambda x: function.fn(x, t), p, 1) / derivatives(lambda x: F.binary_cross_entropy(x, t), p, 1)
    supplied = derivatives(lambda x: function.fn(x, t), p, 2)
    ends = [p * (1 + sign * HALF_LENGTH) for sign in (-1, 1)]
    gradients = [derivatives(lambda x: function.fn(x, t), end, 1) for end in ends]
    rows, explained = [], 0.0
    with mpmath.workdps(DIGITS):
        for i in range(len(p)):
            a, b, w = mpmath.mpf(float(p[i])), mpmath.mpf(float(t[i])), mpmath.mpf(float(weight[i])) / len(p)
            exact = w * (b / a**2 + (1 - b) / (1 - a) ** 2)
            floor = mpmath.mpf("1e-12")
            formula = w * (a * a - 2 * a * b + b) / ((a + floor) ** 2 * (1 - a + floor) ** 2)
            at = [mpmath.mpf(float(end[i])) for end in ends]
            errors = [mpmath.mpf(float(gradient[i])) - w * (x - b) / (x * (1 - x)) for gradient, x in zip(gradients, at, strict=True)]
            slope = (errors[1] - errors[0]) / (at[1] - at[0])
            found = mpmath.mpf(float(supplied[i]))
            where = f"p = {float(p[i]):.8g}, t = {float(t[i]):.8g}"
            rows.append(Row(where, float(supplied[i]), mpmath.nstr(exact, 20), float((found - exact) / exact), float(slope / exact)))
            explained = max(explained, abs(float((found - formula) / exact)))
    worst = max(rows, key=lambda r: abs(r.defect))
    text = (
        "Of the second derivative in p, at the inputs. torch's double backward adds 1e-12 to p and to 1 - p in its denominators, and the first backward does "
        f"not: with these two additions mpmath gives what torch supplies to {explained:.1g}."
    )
    return Evidence(text, (worst,), abs(worst.defect))


def embedding_evidence(function: LibraryFunction, dtype: torch.dtype, report: Report, seed: int) -> Evidence:
    """The padding row is looked up once: raising an entry of it by one raises one entry of the output by one."""
    indices, weight = function.inputs(seed, dtype)
    leaf = weight.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(function.fn(indices, leaf).sum(), leaf)
    raised = torch.zeros_like(weight)
    raised[1, 0] = 1
    change = float((function.fn(indices, raised) - function.fn(indices, torch.zeros_like(weight))).sum())
    supplied = float(gradient[1, 0])
    text = (
        "The lookup is linear; the sum of the output changes by the number in the column exact if the first entry of the padding row is raised by one. torch "
        "documents that the row gets no gradient: it is so on purpose, and a mismatch all the same."
    )
    return Evidence(
        text,
        (Row("the padding row's first entry", supplied, f"{change:g}", (supplied - change) / change, 0.0),),
        1.0 if supplied != change else 0.0,
    )


def evidence(function: LibraryFunction, dtype: torch.dtype, report: Report, seed: int) -> Evidence | None:
    if function.name in EXACT:
        return elementwise_evidence(function, dtype, report, seed)
    if function.name in ("binary_cross_entropy", "binary_cross_entropy, weighted"):
        return binary_cross_entropy_evidence(function, dtype, report, seed)
    if function.name == "embedding, with a padding row":
        return embedding_evidence(function, dtype, report, seed)
    return None


def look(function: LibraryFunction, dtype: torch.dtype, seed: int) -> Report:
    return audit(
        function.fn,
        function.inputs(seed, dtype),
        domain=function.domain,
        second_order=function.name not in ONCE,
        consequences=False,
        seed=seed,
    )


def sweep(functions: Sequence[LibraryFunction], seeds: int) -> list[Entry]:
    entries = []
    for i, function in enumerate(functions):
        entry = Entry(function, {dtype: [look(function, dtype, seed) for seed in range(seeds)] for dtype in DTYPES})
        for dtype, reports in entry.reports.items():
            accused = [(seed, report) for seed, report in enumerate(reports) if not report.passed]
            if accused:
                seed, worst = max(accused, key=lambda pair: pair[1].defect)
                entry.evidence[dtype] = evidence(function, dtype, worst, seed)
        entries.append(entry)
        progress("library", i + 1, len(functions))
    return entries


def worst(reports: Sequence[Report]) -> Report:
    """The one that tells most against the function; among those that pass, the one that saw least."""
    return max(reports, key=lambda report: (not report.passed, report.defect, report.limit))


def is_real(report: Report, found: Evidence | None) -> bool:
    return found is not None and report.defect > 0 and found.defect >= REAL * report.defect


def false_alarms(entries: Sequence[Entry]) -> list[str]:
    """What was not passed and has no evidence against it; inconclusive audits accuse nobody."""
    return [
        f"{entry.function.name} ({_short(dtype)})"
        for entry in entries
        for dtype, found in entry.evidence.items()
        if worst(entry.reports[dtype]).verdict is not Verdict.INCONCLUSIVE and not is_real(worst(entry.reports[dtype]), found)
    ]


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def verdict_cells(reports: Sequence[Report]) -> tuple[str, str]:
    report = worst(reports)
    verdict = report.verdict.value if report.passed else f"**{report.verdict.value}**"
    if report.defect > 0:
        verdict += f", by {report.defect:.2g}"
    return verdict, f"{report.limit:.1g}" if math.isfinite(report.limit) else "none"


def page(entries: Sequence[Entry], command: str) -> str:
    seeds = len(next(iter(entries[0].reports.values())))
    audits = f"{seeds} audits of each" if seeds > 1 else "one audit of each"
    counts = {dtype: sum(worst(entry.reports[dtype]).passed for entry in entries) for dtype in DTYPES}
    alarms = false_alarms(entries)
    borne_out = sum(is_real(worst(entry.reports[dtype]), found) for entry in entries for dtype, found in entry.evidence.items())
    undecided = [
        f"{entry.function.name} ({_short(dtype)})"
        for entry in entries
        for dtype in DTYPES
        if any(report.verdict is Verdict.INCONCLUSIVE for report in entry.reports[dtype])
    ]
    lines = [
        "# The auditor on the functions of torch",
        "",
        f"Measured by `{command}` on",
        f"{machine_line()}.",
        "",
        f"The {len(entries)} smooth functions of `tests/coherence/library_functions.py`, {audits} in either dtype: passed are "
        + " and ".join(f"{counts[dtype]} in {_short(dtype)}" for dtype in DTYPES)
        + f". Of those not passed, {borne_out} are borne out by evidence that the auditor has "
        + f"no part in, and {len(alarms)} are not"
        + (f": {', '.join(alarms)}. These count as false alarms." if alarms else ": there is no false alarm.")
        + (f" Inconclusive: {', '.join(undecided)}." if undecided else ""),
        "",
        "A limit is the smallest defect, over the size of the gradient, that would have been seen at every state that could tell: on domains with flat ends",
        "(tanh, erf, gelu) it is that of the flattest such place, and says little of the others.",
        "",
        "## What it really found",
        "",
        f"supplied and exact: what torch's backward (or double backward) gives, and mpmath at {DIGITS} digits. The defect of a derivative is its own relative",
        "error less the slope, over the exact derivative, of the error of what it belongs to: both columns are measured against mpmath.",
        "",
        row(
            "function",
            "dtype",
            "auditor's defect",
            "place",
            "supplied",
            "exact",
            "error of supplied",
            "slope of the value's error",
            "defect",
        ),
        rule(9),
    ]
    texts: dict[str, list[str]] = {}
    for entry in entries:
        for dtype, found in entry.evidence.items():
            report = worst(entry.reports[dtype])
            measured = f"{report.defect:.3g} ± {report.defect_error:.1g}" if report.defect > 0 else report.verdict.value
            if found is None:
                lines.append(row(entry.function.name, _short(dtype), measured, "no evidence", "", "", "", "", ""))
                continue
            start = entry.function.name, _short(dtype), measured
            for r in found.rows:
                numbers = (f"{r.of_supplied:.3g}", f"{r.of_value:.3g}", f"{abs(r.defect):.3g}")
                lines += [row(*start, r.where, f"{r.supplied:.17g}", r.exact, *numbers)]
            judged = "Borne out." if is_real(report, found) else "**Not borne out: a false alarm.**"
            texts.setdefault(f"{found.text} {judged}", []).append(f"{entry.function.name} ({_short(dtype)})")
    lines += ["", *(f"- {', '.join(names)}: {text}" for text, names in texts.items()), ""]
    lines += ["## Kinks and jumps", "", *events(entries), ""]
    lines += [
        "## All functions",
        "",
        row("function", *(f"{_short(dtype)}{what}" for dtype in DTYPES for what in ("", ", limit"))),
        rule(1 + 2 * len(DTYPES)),
        *(row(entry.function.name, *(cell for dtype in DTYPES for cell in verdict_cells(entry.reports[dtype]))) for entry in entries),
    ]
    return "\n".join(lines) + "\n"


def events(entries: Sequence[Entry]) -> list[str]:
    """Kinks and jumps that were reported in functions that have none in exact arithmetic; a kink passes."""
    lines = []
    for entry in entries:
        for dtype in DTYPES:
            for report in entry.reports[dtype]:
                texts = [finding.text for finding in report.findings if finding.kind in ("kink", "jump")]
                if texts:
                    more = f" (and {len(texts) - 1} more)" if len(texts) > 1 else ""
                    lines.append(f"- {entry.function.name}, {_short(dtype)}, {report.verdict.value}: {texts[0]}{more}")
    head = "The functions have continuous derivatives: what is listed here is where rounding, or a change of formula inside torch, was taken for one."
    return [head, "", *dict.fromkeys(lines)] if lines else ["None was reported."]

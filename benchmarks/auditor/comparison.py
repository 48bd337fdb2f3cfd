"""The auditor, torch's gradcheck and opcheck, and JAX's check_grads on the same zoo: which broken functions each finds, and which right ones it flags."""

from __future__ import annotations

import math
import statistics
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from tests.coherence.zoo import independent, ours, reported
from tests.coherence.zoo.specimen import Specimen
from torch.autograd.gradcheck import GradcheckError, gradcheck, gradgradcheck
from torch.library import opcheck

from benchmarks.auditor.as_jax import NotWrapped, check_grads
from benchmarks.auditor.cost import MANY, Cost, many_table
from benchmarks.auditor.cost import table as cost_table
from benchmarks.progress import progress
from pairgrad import coherence
from pairgrad.coherence import Report, Verdict, audit
from pairgrad.ground.timing import machine_line

ZOO: tuple[Specimen, ...] = (*independent.SPECIMENS, *ours.SPECIMENS, *reported.SPECIMENS)
HALF: tuple[Specimen, ...] = ours.HALF_SPECIMENS
CHECKS: dict[str, Callable[..., bool]] = {
    "gradcheck": gradcheck,
    "fast gradcheck": partial(gradcheck, fast_mode=True),
    "gradgradcheck": gradgradcheck,
}
OURS, RULES, JAX = "pairgrad.gradcheck", "gradcheck with rules", "check_grads"


def with_rules(fn: Callable[..., Any], inputs: tuple[Any, ...]) -> bool:
    """gradcheck of the backward, of forward mode where there is a `jvp`, and of batched gradients."""
    try:
        return gradcheck(fn, inputs, check_forward_ad=True, check_batched_grad=True)
    except NotImplementedError:  # there is none
        return gradcheck(fn, inputs, check_batched_grad=True)


OTHERS: dict[str, Callable[..., Any]] = {
    OURS: coherence.gradcheck,
    **CHECKS,
    RULES: with_rules,
}
TOOLS = ("audit", *OTHERS, "opcheck", JAX)
FLAGGED, CLEARED, RAISED, UNDECIDED, NOT_APPLICABLE = "flagged", "cleared", "raised", "undecided", "does not apply"

# Audited at one number each, for the time that this takes.
SCALARS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sin": torch.sin,
    "exp": torch.exp,
    "log": torch.log,
    "sqrt": torch.sqrt,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "erf": torch.erf,
    "lgamma": torch.lgamma,
    "softplus": torch.nn.functional.softplus,
    "erfcx": torch.special.erfcx,
}


@dataclass(frozen=True)
class Outcome:
    """What one tool said of one function.

    Attributes:
        said: "flagged", "cleared", "raised" (an error other than a verdict), "undecided" or "does not apply".
        text: the measured defect, or the error.
        seconds: the processor time that it took, which other work on the machine does not change.
        calls: how often an audit called the function; 0 for the others.
        warned: how many warnings it gave.
        defect: what the audit measured; NaN for the others.
    """

    said: str
    text: str = ""
    seconds: float = 0.0
    calls: int = 0
    warned: int = 0
    defect: float = math.nan


@dataclass(frozen=True)
class Case:
    """One specimen in one dtype: {tool: outcomes, one for each seed}, for the broken function (None where it is not broken) and the right one."""

    specimen: Specimen
    dtype: torch.dtype
    right: dict[str, list[Outcome]] = field(default_factory=dict)
    broken: dict[str, list[Outcome]] | None = None
    at_inputs: list[Outcome] | None = None  # the broken one audited without its domain

    @property
    def dtype_name(self) -> str:
        return str(self.dtype).removeprefix("torch.")


def zoo_cases() -> list[tuple[Specimen, torch.dtype]]:
    """Everything in float64 and float32, and the half-precision specimens in their own dtypes."""
    return [(s, dtype) for dtype in (torch.float64, torch.float32) for s in ZOO] + [(s, dtype) for s in HALF for dtype in s.dtypes]


def compare(cases: Sequence[tuple[Specimen, torch.dtype]], seeds: int) -> list[Case]:
    found = []
    for i, (specimen, dtype) in enumerate(cases):
        is_broken = dtype in specimen.dtypes
        case = Case(specimen, dtype, {}, {} if is_broken else None, [] if is_broken and specimen.domain is not None else None)
        for seed in range(seeds):
            for tool in TOOLS:
                case.right.setdefault(tool, []).append(judge(tool, specimen, "right", dtype, seed))
                if case.broken is not None:
                    case.broken.setdefault(tool, []).append(judge(tool, specimen, "broken", dtype, seed))
            if case.at_inputs is not None:
                case.at_inputs.append(judge("audit", specimen, "broken", dtype, seed, domain=False))
        found.append(case)
        progress("comparison", i + 1, len(cases))
    return found


def judge(tool: str, specimen: Specimen, make: str, dtype: torch.dtype, seed: int, *, domain: bool = True) -> Outcome:
    """The function and its inputs are made for each call: some edit them."""
    torch.compiler.reset()  # past a number of compilations torch runs a compiled function as it is
    fn, inputs = getattr(specimen, make)(), specimen.inputs(seed, dtype)
    if tool == "opcheck" and not hasattr(fn, "register_fake"):  # what torch.library.custom_op makes has it
        return Outcome(NOT_APPLICABLE)
    defect, calls = math.nan, 0
    with warnings.catch_warnings(record=True) as given, torch.random.fork_rng(devices=[]):
        warnings.simplefilter("always")
        torch.manual_seed(seed)
        started = time.process_time()
        try:
            if tool == "audit":
                report = audit(
                    fn,
                    inputs,
                    domain=specimen.domain if domain else None,
                    constraints=specimen.constraints,
                    dtype=dtype,
                    seed=seed,
                    consequences=False,
                    **specimen.options,
                )
                said, text, defect, calls = _said(report), _measured(report), report.defect, report.evaluations
            elif tool == "opcheck":
                said, text = _registered(fn, inputs)
            elif tool == JAX:
                said, text = _by_check_grads(*as_positional(fn, inputs, dtype))
            else:
                OTHERS[tool](*as_positional(fn, inputs, dtype))
                said, text = CLEARED, ""
        except GradcheckError as error:
            said, text = FLAGGED, _first_line(error)
        except NotWrapped:
            said, text = NOT_APPLICABLE, ""
        except Exception as error:  # whatever a tool stumbles over is listed on the page
            said, text = RAISED, f"{type(error).__name__}: {_first_line(error)}"
        seconds = time.process_time() - started
    return Outcome(said, text, seconds, calls, len(given), defect)


def _registered(op: Any, inputs: tuple[Any, ...]) -> tuple[str, str]:
    """What opcheck says: each of its tests is "SUCCESS" or an error."""
    failed = {test: error for test, error in opcheck(op, inputs, raise_exception=False).items() if error != "SUCCESS"}
    return (FLAGGED, "fails " + ", ".join(failed)) if failed else (CLEARED, "")


def _by_check_grads(fn: Callable[..., Any], inputs: tuple[Any, ...]) -> tuple[str, str]:
    """What check_grads says: it raises an AssertionError where it fails."""
    try:
        check_grads(fn, inputs)
    except AssertionError as error:
        return FLAGGED, _first_line(error)
    return CLEARED, ""


def _said(report: Report) -> str:
    if report.passed:
        return CLEARED
    return UNDECIDED if report.verdict is Verdict.INCONCLUSIVE else FLAGGED


def _measured(report: Report) -> str:
    if report.defect > 0:
        return f"{report.defect:.2g} ± {report.defect_error:.1g}"
    if report.verdict is Verdict.JUMP:
        return "jump of " + ", ".join(sorted({f"{f.numbers['size']:.2g}" for f in report.findings if f.kind == "jump"}))
    return ", ".join(sorted({finding.kind for finding in report.findings if finding.severity == "alarm"})) or report.verdict.value


def as_positional(fn: Callable[..., Any], inputs: Any, dtype: torch.dtype) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """As gradcheck takes it: keyword arguments by position, and the parameters of a module as further inputs."""
    keywords = list(inputs) if isinstance(inputs, dict) else []
    arguments = tuple(inputs.values()) if isinstance(inputs, dict) else inputs if isinstance(inputs, tuple) else (inputs,)
    if not any(isinstance(a, torch.Tensor) and a.requires_grad for a in arguments):
        arguments = tuple(a.requires_grad_() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in arguments)
    parameters: dict[str, torch.Tensor] = {}
    if isinstance(fn, torch.nn.Module):
        fn = fn.to(dtype)
        parameters = {name: parameter for name, parameter in fn.named_parameters() if parameter.requires_grad}
    count = len(arguments)

    def call(*everything: Any) -> Any:
        given, weights = everything[:count], everything[count:]
        positional, named = (() if keywords else given), dict(zip(keywords, given, strict=True)) if keywords else {}
        if isinstance(fn, torch.nn.Module) and parameters:
            return torch.func.functional_call(fn, dict(zip(parameters, weights, strict=True)), positional, named)
        return fn(*positional, **named)

    return call, (*arguments, *(parameter.detach().clone().requires_grad_() for parameter in parameters.values()))


def _first_line(error: BaseException) -> str:
    """Of what a tool says, without our name in front of it."""
    lines = str(error).strip().splitlines() or [""]
    return lines[len(lines) > 1 and lines[0].startswith("pairgrad.gradcheck: FAIL")][:160]


def share(cases: Iterable[Case], side: str, tool: str) -> tuple[int, int]:
    """(flagged, all) of the broken or the right functions."""
    outcomes = [outcome for case in cases for outcome in (getattr(case, side) or {}).get(tool, []) if outcome.said != NOT_APPLICABLE]
    return sum(outcome.said == FLAGGED for outcome in outcomes), len(outcomes)


def clean(cases: Sequence[Case]) -> bool:
    """Whether the audit found every broken function and cleared every right one."""
    found, broken = share(cases, "broken", "audit")
    cleared = all(outcome.said == CLEARED for case in cases for outcome in case.right["audit"])
    return found == broken and cleared


def declared(case: Case) -> bool:
    return "by intent" in case.specimen.kind


def row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def rule(columns: int) -> str:
    return "|" + "---|" * columns


def of(pair: tuple[int, int]) -> str:
    return f"{pair[0]} / {pair[1]}" if pair[1] else ""


def distinguished(cases: Iterable[Case], tool: str) -> tuple[int, int]:
    """(pairs of which a tool flags the broken function and clears the right one, all pairs that it applies to)."""
    pairs = [pair for case in cases if case.broken is not None for pair in zip(case.broken[tool], case.right[tool], strict=True)]
    pairs = [(broken, right) for broken, right in pairs if NOT_APPLICABLE not in (broken.said, right.said)]
    return sum(broken.said == FLAGGED and right.said == CLEARED for broken, right in pairs), len(pairs)


def missed_by_torch(cases: Sequence[Case]) -> str:
    """The broken functions that pass gradcheck, its fast mode and gradgradcheck, and how large their mistakes are."""
    missed = [
        case.specimen
        for case in cases
        if case.broken and any(all(case.broken[tool][k].said != FLAGGED for tool in CHECKS) for k in range(len(case.broken["audit"])))
    ]
    if not missed:
        return "Every broken function is flagged by at least one of torch's three gradient checks."
    elsewhere = [specimen for specimen in missed if specimen.domain is not None]
    sizes = sorted(specimen.defect for specimen in missed if specimen.domain is None)
    text = f"Broken functions that pass all three gradient checks of torch at some draw: {len(missed)}, {len(elsewhere)} wrong only away from the inputs"
    return text + (
        f", {len(sizes)} with mistakes of {sizes[0]:.0e} to {sizes[-1]:.0e} of the gradient, median {statistics.median(sizes):.0e}."
        if sizes
        else "."
    )


def on_common_ground(cases: Sequence[Case]) -> str:
    """The count without the pairs that gradcheck cannot distinguish by construction; beside each check, gradcheck and gradgradcheck taken together."""
    common = [case for case in cases if case.broken is not None and case.specimen.domain is None and not declared(case)]
    apart = {tool: distinguished(common, tool)[0] for tool in ("audit", *CHECKS)}
    pair, every, together = ("gradcheck", "gradgradcheck"), distinguished(common, "audit")[1], 0
    for case in common:
        assert case.broken is not None
        for k in range(len(case.broken["audit"])):
            flagged = any(case.broken[tool][k].said == FLAGGED for tool in pair)
            together += flagged and all(case.right[tool][k].said != FLAGGED for tool in pair)
    counts = ", ".join(f"{tool} {count}" for tool, count in apart.items())
    return (
        "Without the pairs that differ by a declaration and those wrong only away from the inputs, which gradcheck cannot distinguish by construction, "
        f"the pairs number {every}. Pairs distinguished: {counts}, gradcheck and gradgradcheck together {together}."
    )


def overall(groups: Mapping[str, Sequence[Case]]) -> list[str]:
    lines = [row("dtype", "tool", "broken found", "right flagged", "pairs distinguished"), rule(5)]
    for name, group in groups.items():
        lines += [
            row(name, tool, *(of(share(group, side, tool)) for side in ("broken", "right")), of(distinguished(group, tool)))
            for tool in TOOLS
            if any(outcome.said != NOT_APPLICABLE for case in group for outcome in case.right[tool])
        ]
    return lines


def by_kind(cases: Sequence[Case]) -> list[str]:
    """One column for each tool: broken functions found, and the right ones that it flags, if there are any."""
    lines = [row("kind", *TOOLS), rule(1 + len(TOOLS))]
    for kind in dict.fromkeys(case.specimen.kind for case in cases):
        group = [case for case in cases if case.specimen.kind == kind]
        lines.append(row(kind, *(counted(group, tool) for tool in TOOLS)))
    return lines


def counted(cases: Sequence[Case], tool: str) -> str:
    found, (flagged, _) = of(share(cases, "broken", tool)), share(cases, "right", tool)
    return ", ".join(part for part in (found, f"flags {flagged} right" if flagged else "") if part)


def looks_at(cases: Sequence[Case]) -> list[str]:
    """What each tool looks at: counts where the zoo has specimens of it, an option or a word elsewhere."""
    double = [case for case in cases if case.dtype == torch.float64]
    half = [case for case in cases if case.dtype in (torch.bfloat16, torch.float16)]

    def of_kind(*words: str) -> list[Case]:
        return [case for case in double if any(word in case.specimen.kind for word in words)]

    forward, mapped, compiled = of_kind("forward mode"), of_kind("vmap rule"), of_kind("compiled function differs")

    def both(group: Sequence[Case], option: str) -> str:
        return f"{counted(group, 'gradcheck')}; with `{option}` {counted(group, RULES)}"

    lines = [row("", "audit", "gradcheck", "opcheck", JAX), rule(5)]
    lines += [
        row(what, *cells)
        for what, group, *cells in (
            ("`jvp` rules", forward, counted(forward, "audit"), both(forward, "check_forward_ad"), "no", '`modes=["fwd"]`'),
            ("`vmap` rules", mapped, counted(mapped, "audit"), both(mapped, "check_batched_grad"), "no", "no"),
            (
                "compiled against eager",
                compiled,
                f"`compiled=` {counted(compiled, 'audit')}",
                counted(compiled, "gradcheck"),
                "of operators",
                counted(compiled, JAX),
            ),
            ("half precision", half, *(counted(half, tool) for tool in ("audit", "gradcheck")), "no gradients", counted(half, JAX)),
        )
        if group
    ]
    lines += [
        row(*cells)
        for cells in (
            ("many configurations at once", "`pg.sweep`", "no", "no", "no"),
            ("whole modules in float32", '`effort="whole"`', "no", "no", "no"),
            ("results cached for CI", "`cache=`", "no", "no", "no"),
            ("Triton kernels in the interpreter", "yes", "in float64", "yes", "no"),
            ("instead of gradcheck and opcheck", "`pg.gradcheck`, `pg.gradgradcheck`, `pg.opcheck`", "", "", "no"),
        )
    ]
    return lines


def said(outcomes: Sequence[Outcome]) -> str:
    flagged, every = sum(outcome.said == FLAGGED for outcome in outcomes), len(outcomes)
    if 0 < flagged < every:
        return f"{flagged} of {every}"
    if flagged:
        return "found"
    if any(outcome.said == NOT_APPLICABLE for outcome in outcomes):
        return ""
    return "raised" if any(outcome.said == RAISED for outcome in outcomes) else "**missed**"


def by_specimen(cases: Sequence[Case]) -> list[str]:
    lines = [row("specimen", "kind", "mistake", *TOOLS, "right one flagged by"), rule(4 + len(TOOLS))]
    for case in cases:
        wrongly = ", ".join(tool for tool in TOOLS if any(outcome.said == FLAGGED for outcome in case.right[tool])) or "none"
        name = case.specimen.name + (", over a domain" if case.specimen.domain is not None else "")
        if case.broken is None:
            cells = ("not broken in this dtype", *("" for _ in TOOLS))
        else:
            verdict, first = said(case.broken["audit"]), case.broken["audit"][0]
            measured = first.text if verdict == "found" else f"{verdict}: {first.text}"
            cells = (f"{case.specimen.defect:.0e}", measured, *(said(case.broken[tool]) for tool in TOOLS[1:]))
        lines.append(row(name, case.specimen.kind, *cells, wrongly))
    return lines


def raised(cases: Sequence[Case]) -> list[str]:
    """Errors other than a verdict, with where they came up, and audits that were inconclusive."""
    errors: dict[tuple[str, str], list[str]] = {}
    for case in cases:
        for side in ("broken", "right"):
            for tool, outcomes in (getattr(case, side) or {}).items():
                for text in dict.fromkeys(outcome.text for outcome in outcomes if outcome.said in (RAISED, UNDECIDED)):
                    errors.setdefault((tool, text), []).append(f"{case.specimen.name} ({side}, {case.dtype_name})")
    if not errors:
        return ["None."]
    return [f"- {tool}, {text if text else 'no message'}: {', '.join(dict.fromkeys(places))}" for (tool, text), places in errors.items()]


def times(cases: Sequence[Case]) -> list[str]:
    """Medians over the right functions, and of the ratios of calls that followed each other."""
    tools = ("audit", OURS, *CHECKS, JAX)
    lines = [row("", *tools), rule(1 + len(tools))]
    groups = {name: [case for case in cases if case.dtype_name == name] for name in dict.fromkeys(case.dtype_name for case in cases)}
    for name, group in groups.items():
        spent = {tool: [outcome.seconds for case in group for outcome in case.right[tool]] for tool in tools}
        lines.append(row(f"{name}: milliseconds", *(f"{1e3 * statistics.median(spent[tool]):.3g}" for tool in tools)))
        ratios = ((a / b for a, b in zip(spent["audit"], spent[tool], strict=True)) for tool in tools)
        lines.append(row(f"{name}: audit over this", *(f"{statistics.median(ratio):.3g}" for ratio in ratios)))
    return lines


def time_scalars() -> dict[str, list[Outcome]]:
    """{dtype: audits of the functions in SCALARS at one number, with every default}."""
    found: dict[str, list[Outcome]] = {}
    for dtype in (torch.float64, torch.float32):
        for name, fn in SCALARS.items():
            x = torch.tensor(0.7, dtype=dtype, requires_grad=True)
            started = time.process_time()
            report = audit(fn, x)
            seconds = time.process_time() - started
            outcome = Outcome(_said(report), f"{name}: {_measured(report)}", seconds, report.evaluations)
            found.setdefault(str(dtype).removeprefix("torch."), []).append(outcome)
    return found


def time_table(cases: Sequence[Case], scalars: dict[str, list[Outcome]]) -> list[str]:
    """Median and 90th percentile of the seconds and the calls of an audit."""
    header = ("", "audits", "seconds, median", "seconds, 90th percentile", "longest", "calls, median", "calls, 90th percentile")
    lines = [row(*header), rule(len(header))]
    groups: dict[str, list[Outcome]] = {}
    for case in cases:
        for side in ("right", "broken"):
            groups.setdefault(f"zoo, {case.dtype_name}, {side}", []).extend((getattr(case, side) or {}).get("audit", []))
    groups |= {f"{len(outcomes)} scalar functions of torch, {name}": outcomes for name, outcomes in scalars.items()}
    for name, outcomes in groups.items():
        seconds, calls = sorted(outcome.seconds for outcome in outcomes), sorted(outcome.calls for outcome in outcomes)
        if seconds:
            figures = (statistics.median(seconds), percentile(seconds, 0.9), seconds[-1])
            counts = (statistics.median(calls), percentile(calls, 0.9))
            lines.append(row(name, str(len(seconds)), *(f"{value:.2f}" for value in figures), *(f"{count:.0f}" for count in counts)))
    return lines


def scalars_not_cleared(scalars: dict[str, list[Outcome]]) -> list[str]:
    """The scalar functions that an audit does not clear; the evidence is on the page of torch's functions."""
    found = [f"{outcome.text} ({name})" for name, outcomes in scalars.items() for outcome in outcomes if outcome.said != CLEARED]
    if not found:
        return []
    return [
        f"Not cleared among the scalar functions: {', '.join(found)}. See [what the audit finds in torch itself](auditor-library.md).",
        "",
    ]


def percentile(ordered: Sequence[float], level: float) -> float:
    """The smallest of the numbers that at least this share of them does not exceed."""
    return ordered[max(0, math.ceil(level * len(ordered)) - 1)]


def not_clean(cases: Sequence[Case]) -> list[str]:
    """Every broken function that the audit did not flag, and every right one that it did not clear."""
    lines = []
    for case in cases:
        for side, wanted in (("broken", FLAGGED), ("right", CLEARED)):
            for seed, outcome in enumerate((getattr(case, side) or {}).get("audit", [])):
                if outcome.said != wanted:
                    lines.append(f"- {case.specimen.name} ({side}, {case.dtype_name}, draw {seed}): {outcome.said}, {outcome.text}")
    return lines or ["None: every broken function was flagged, and every right one cleared."]


def flagged_by_ours_alone(cases: Sequence[Case]) -> list[str]:
    """The right functions that pairgrad.gradcheck flags and gradcheck passes, with its reason."""
    lines = []
    for case in cases:
        for mine, theirs in zip(case.right[OURS], case.right["gradcheck"], strict=True):
            if mine.said == FLAGGED and theirs.said == CLEARED:
                known = _KNOWN.get(case.specimen.name, "")
                lines.append(f"- {case.specimen.name} ({case.dtype_name}): {mine.text}{f'. {known}' if known else ''}")
    return list(dict.fromkeys(lines)) or ["None."]


_KNOWN = {
    "ours-normalised-stack": "This is a fault of torch: given a weight that is not contiguous, its batch normalisation supplies another gradient on the CPU. "
    "The parameters are inputs of gradcheck here, so that they get other layouts."
}


def op_sentence(cases: Sequence[Case]) -> list[str]:
    """How many pairs opcheck applies to, and what it says of them."""
    double = [case for case in cases if case.dtype == torch.float64]
    (found, broken), (flagged, right) = share(double, "broken", "opcheck"), share(double, "right", "opcheck")
    return [
        "`torch.library.opcheck` takes only operators made with `torch.library`. It checks how they are registered (schema, autograd key, fake kernel, and",
        "that compiled and eager results agree); it does not check whether a gradient is right.",
        f"Of the {len(double)} pairs in float64 it applies to {right}: it flags {found} of {broken} broken functions and {flagged} of {right} right ones.",
        f"For the other {len(double) - right} pairs its cell is empty.",
    ]


def domains(cases: Sequence[Case]) -> list[str]:
    lines = [row("specimen", "dtype", "audit over the domain", "audit at the inputs", *CHECKS), rule(4 + len(CHECKS))]
    for case in cases:
        if case.broken is not None and case.at_inputs is not None:
            outcomes = (case.broken["audit"], case.at_inputs, *(case.broken[tool] for tool in CHECKS))
            lines += [row(case.specimen.name, case.dtype_name, *(said(o) for o in outcomes))]
    return lines


def page(cases: Sequence[Case], scalars: dict[str, list[Outcome]], costs: Sequence[Cost], spent: dict[str, float], command: str) -> str:
    groups = {name: [case for case in cases if case.dtype_name == name] for name in dict.fromkeys(case.dtype_name for case in cases)}
    warned = sum(outcome.warned > 0 for case in groups.get("float32", []) for tool in CHECKS for outcome in case.right[tool])
    checked = sum(len(case.right[tool]) for case in groups.get("float32", []) for tool in CHECKS)
    seeds = len(cases[0].right["audit"])
    names = {case.specimen.name for case in cases}
    kinds, draws = len({case.specimen.kind for case in cases}), f"{seeds} draws of each" if seeds > 1 else "one draw of each"
    blind, public = (sum(name.startswith(prefix) for name in names) for prefix in ("independent-", "reported-"))
    lines = [
        "# The auditor beside gradcheck",
        "",
        f"Measured by `{command}` on",
        f"{machine_line()}.",
        "",
        "## What each tool looks at",
        "",
        "Broken functions found, of all of a kind, and right ones that are flagged beside them; where the zoo has none of a kind, the option to use.",
        "",
        *looks_at(cases),
        "",
        "## All of the zoo",
        "",
        f"The zoo of `tests/coherence/zoo`: {len(names)} pairs of a right and a broken function, of {kinds} kinds; {blind} of the pairs",
        f"were written without knowing how the auditor works, {public} after public bug reports. Every tool gets the same functions at the same",
        f"inputs ({draws}), with its default tolerances: `pairgrad.audit` (without consequences, on which the verdict does not depend),",
        "`pairgrad.gradcheck`, and from `torch.autograd` `gradcheck`, `gradcheck(fast_mode=True)`, `gradgradcheck` and, as `gradcheck with rules`,",
        "`gradcheck` with `check_batched_grad` and, for functions that have a `jvp`, `check_forward_ad`. `check_grads` is that of `jax.test_util`, in",
        "reverse mode and first order: it gets each function as a `jax.custom_vjp` whose value is that of the torch forward and whose vjp is that of",
        "the torch backward (through `jax.pure_callback`). Parameters of modules are handed to the checks as further inputs. A `GradcheckError`, or an",
        "`AssertionError` of `check_grads`, counts as flagged; other errors are listed below and count as not flagged. A jump in the value is found by",
        "the audit as such. Where a function is defined on a part of its space alone, such as the symmetric matrices, the audit is given that as",
        "`constraints`; the checks have no such argument.",
        "",
        *overall(groups),
        "",
    ]
    for name, group in groups.items():
        if name in ("float64", "float32"):
            lines += [f"In {name}: {missed_by_torch(group)} {on_common_ground(group)}", ""]
    lines += [
        f"gradcheck is made for float64: in float32 it warned in {warned} of {checked} calls on right functions, and its differences of step 1e-6 are mostly",
        "rounding, so that it flags right and broken functions alike. It knows no declared intent; `pairgrad.intended` is what clears a straight-through",
        "estimator in the audit. gradgradcheck looks at second derivatives alone; it flags functions that refuse them, too, which the audit only notes.",
        "`pairgrad.gradcheck` passes nothing that gradcheck fails, so that it flags the same right functions; it looks at first derivatives, at the",
        "inputs alone.",
        "",
        *op_sentence(cases),
        "",
        "## Where the audit was wrong",
        "",
        *not_clean(cases),
        "",
        "Right functions that `pairgrad.gradcheck` flags where gradcheck passes:",
        "",
        *flagged_by_ours_alone(cases),
        "",
    ]
    if "float64" in groups:
        lines += [
            "## By kind, float64",
            "",
            "Broken functions found, of all; and how many right ones are flagged, if any are.",
            "",
            *by_kind(groups["float64"]),
            "",
        ]
    for name, group in groups.items():
        lines += [
            f"## By specimen, {name}",
            "",
            "The size of the mistake is the zoo's rough figure, the audit's the largest defect seen; both over the size of the gradient.",
            "",
            *by_specimen(group),
            "",
        ]
    if any(case.at_inputs is not None for case in cases):
        lines += [
            "## Mistakes in a part of the domain",
            "",
            "gradcheck looks at the given inputs and nowhere else: where the mistake is elsewhere, it cannot find it. Nor can the audit,",
            "unless it is given the domain.",
            "",
            *domains(cases),
            "",
        ]
    lines += [
        "## Errors and inconclusive audits",
        "",
        *raised(cases),
        "",
        "## Time for one function of the zoo",
        "",
        "Medians over right functions; the tools follow each other on every function. gradcheck makes two calls for each element of the inputs, which are",
        "small here; its fast mode and the audit make a number of calls that does not grow with them.",
        "",
        *times(cases),
        "",
        "## Time of an audit",
        "",
        "Seconds of processor time on one thread: on an idle core, the time on the clock. The zoo with the default effort, without consequences; the scalar",
        f"functions ({', '.join(SCALARS)}) at one number, with every default.",
        "",
        *time_table(cases, scalars),
        "",
        *scalars_not_cleared(scalars),
        "## Cost of an audit",
        "",
        cost_table(costs),
        f"## {MANY} small functions",
        "",
        many_table(spent),
    ]
    return "\n".join(lines).rstrip() + "\n"

"""Whether the compiled function gives what the eager one gives, and if not, which result differs, from which layer of the compiler on, in which graph."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from pairgrad.coherence.finding import Finding
from pairgrad.coherence.measure.limits import coarsest
from pairgrad.coherence.measure.path import OUTSIDE, random_cotangent
from pairgrad.coherence.measure.structure import SLACK, apart, floors_of
from pairgrad.coherence.subject.subject import Point, Subject
from pairgrad.ground._torch_private import compiler_backend, graph_breaks

CHECK = "compiled"
# The layers of torch.compile, each on top of the one before, and what it adds.
_LAYERS = {
    "eager": "tracing by Dynamo: Python code around a graph break, or state that the trace has frozen",
    "aot_eager": "tracing of the backward by AOTAutograd: a backward that it cannot follow, or the fake kernel of a custom operator",
    "inductor": "code generation by Inductor",
}
_LISTED = 3  # graph breaks that are named
_GRAPHS = 8  # graphs among which the one that differs is looked for
_LINE = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')


@dataclass(eq=False)
class Compiled:
    """What came of it: "right", "wrong", "refused" or "not judged", the findings, and why it was not judged."""

    result: str = "not judged"
    findings: list[Finding] = field(default_factory=list)
    why: str = ""


@dataclass(eq=False)
class _Backend:
    """A backend of torch.compile that counts graphs, and compiles one of them alone if it is told which; the others run as they are."""

    name: str
    only: int | None = None
    graphs: list[str] = field(default_factory=list)  # where each begins

    def __call__(self, graph: torch.fx.GraphModule, inputs: list[Any], **options: Any) -> Callable[..., Any]:
        self.graphs.append(_place(graph))
        if self.only is not None and len(self.graphs) - 1 != self.only:
            return graph.forward
        return compiler_backend(self.name)(graph, inputs, **options)


def examine_compiled(subject: Subject, backend: str, generator: torch.Generator, *, second: bool) -> Compiled:
    """Compares values, gradients and, with `second`, second derivatives at two states."""
    found = Compiled()
    if subject.random:
        found.why = "the function draws random numbers, and a compiled one draws others"
        return found
    cotangent = random_cotangent(subject.outputs, generator)
    made = _Backend(backend)
    try:
        different = _differs(subject, made, cotangent, second=second)
    except Exception as error:
        found.result, found.why = "refused", f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"
        return found
    finally:
        torch.compiler.reset()
    if not made.graphs:
        found.why = "nothing of it was compiled; torch._dynamo.explain says why"
        return found
    found.result = "right" if different is None else "wrong"
    breaks = _breaks(subject) if len(made.graphs) > 1 else []
    limit = _slack(subject)
    if different is None:
        text = f"compiled with {backend!r} in {_counted(made.graphs)}, value and gradient are the eager ones, to {limit:.2g} of their size"
        found.findings.append(Finding("note", "note", text, "", {"limit": limit, "graphs": len(made.graphs)}))
    else:
        off, what, where = different
        text = f"compiled with {backend!r}, {what} is another than in eager mode, off by {off:.2g} of its size{_diagnosis(subject, made, cotangent)}"
        found.findings.append(Finding("compiled", "alarm", text, where, {"relative": off, "error": limit, "graphs": len(made.graphs)}))
    if breaks:
        more = f"; and {len(breaks) - _LISTED} more" if len(breaks) > _LISTED else ""
        text = f"torch.compile breaks the graph in {len(breaks)} {'place' if len(breaks) == 1 else 'places'}: {'; '.join(breaks[:_LISTED])}{more}"
        found.findings.append(Finding("note", "note", text, "", {"breaks": breaks}))
    return found


def _slack(subject: Subject) -> float:
    return max(SLACK[coarsest([x.dtype for x in (*subject.tensors, *subject.outputs)])], 16 * subject.spread)


def _differs(subject: Subject, backend: _Backend, cotangent: Point, *, second: bool = False) -> tuple[float, str, str] | None:
    """The first result that is not the eager one: by how much, what it is, and the name of the argument if it is a gradient."""
    torch.compiler.reset()
    slack = _slack(subject)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of itself
        compiled = Subject(torch.compile(subject.fn, backend=backend), subject.arguments(), module=subject.module)
        with compiled:
            for point in (subject.tensors, tuple(x * (1 - 2.0**-6) for x in subject.tensors)):
                eager, got = subject.pull(point, cotangent), compiled.pull(point, cotangent)
                for off, name in _offs(got.outputs, eager.outputs, subject.output_names, [0.0] * len(eager.outputs)):
                    if off > slack:
                        return off, "the value" if name == "output" else name, ""
                for off, name in _offs(got.gradients, eager.gradients, subject.names, floors_of(subject, eager.gradients)):
                    if off > slack:
                        return off, "the gradient", name
            if second:
                return _differs_twice(subject, compiled, cotangent, slack)
    return None


def _differs_twice(subject: Subject, compiled: Subject, cotangent: Point, slack: float) -> tuple[float, str, str] | None:
    weights = tuple(torch.ones_like(x, dtype=torch.float64) for x in subject.tensors)
    try:
        got = compiled.pull_twice(subject.tensors, cotangent, weights)
    except OUTSIDE:
        return None  # AOTAutograd refuses to be differentiated twice, and so is not wrong in silence
    eager = subject.pull_twice(subject.tensors, cotangent, weights)
    count = len(subject.tensors)
    floors = floors_of(subject, eager.gradients[:count])
    for off, name in _offs(got.gradients[:count], eager.gradients[:count], subject.names, floors):
        if off > slack:
            return off, "the second derivative", name
    return None


def _offs(
    got: Sequence[torch.Tensor], expected: Sequence[torch.Tensor], names: Sequence[str], floors: Sequence[float]
) -> Iterator[tuple[float, str]]:
    for g, e, name, floor in zip(got, expected, names, floors, strict=True):
        yield (apart([g], [e], [floor]) if g.shape == e.shape and g.dtype == e.dtype else float("inf")), name


def _diagnosis(subject: Subject, made: _Backend, cotangent: Point) -> str:
    """From which layer of the compiler on results differ, and in which graph."""
    layers = [*list(_LAYERS)[: list(_LAYERS).index(made.name)], made.name] if made.name in _LAYERS else [made.name]
    guilty = next((layer for layer in layers[:-1] if _is_different(subject, _Backend(layer), cotangent)), made.name)
    text = f"; the difference comes with {_LAYERS.get(guilty, guilty)} (backend {guilty!r})"
    if guilty == "eager" and len(made.graphs) > 1:
        return (
            f"{text}, in one of {len(made.graphs)} graphs or between them; they begin at {', '.join(filter(None, made.graphs[:_GRAPHS]))}"
        )
    if 1 < len(made.graphs) <= _GRAPHS:
        for only, place in enumerate(made.graphs):
            if _is_different(subject, _Backend(guilty, only), cotangent):
                return f"{text}, in graph {only + 1} of {len(made.graphs)}{', at ' + place if place else ''}"
    return text


def _is_different(subject: Subject, backend: _Backend, cotangent: Point) -> bool:
    try:
        return _differs(subject, backend, cotangent) is not None
    except Exception:
        return False


def _breaks(subject: Subject) -> list[str]:
    """Why and where the graph is broken, each place once."""
    args = subject.arguments()
    args, kwargs = ((), args) if isinstance(args, dict) else (args, {})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reasons = graph_breaks(subject.fn, *args, **kwargs)
    return list(dict.fromkeys(f"{reason}{f' ({_short(file)}:{line})' if file else ''}" for reason, file, line in reasons))


def _place(graph: torch.fx.GraphModule) -> str:
    """File and line of the first operation of a graph."""
    for node in graph.graph.nodes:
        lines = _LINE.findall(node.stack_trace or "")
        if lines:
            return f"{_short(lines[-1][0])}:{lines[-1][1]}"
    return ""


def _short(file: str) -> str:
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


def _counted(graphs: Sequence[str]) -> str:
    return "one graph" if len(graphs) == 1 else f"{len(graphs)} graphs"

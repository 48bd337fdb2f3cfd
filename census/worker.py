"""Audits cases of one driver in this process, and prints a line of JSON before and after each: `python -m census.worker DRIVER CASE ...`.

It runs in the environment of the package's group. `run` starts it, watches time and memory, and starts another one after the case that broke it.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import platform
import re
import resource
import signal
import sys
import sysconfig
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.autograd.gradcheck import GradcheckError

import pairgrad as pg
from census.differences import Call, compare, walk
from pairgrad import coherence

SECONDS = 60.0  # of an audit, unless its case says otherwise
BESIDE_SECONDS = 60  # of each of gradcheck, opcheck and the differences


def main(argv: list[str]) -> int:
    """Audits the named cases."""
    driver, *cases = argv
    package = importlib.import_module(driver).package
    out = os.fdopen(os.dup(1), "w", buffering=1)  # what packages print goes to stderr
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    for case in cases:
        print(json.dumps({"begin": case}), file=out)
        print(json.dumps({"end": case, **audited(package.cases[case])}), file=out)
    return 0


def facts() -> dict[str, str]:
    """What a record says of where it was made."""
    made = {"pairgrad": pg.__version__, "torch": torch.__version__, "python": platform.python_version()}
    with contextlib.suppress(ImportError):
        import jax

        made["jax"] = jax.__version__
    return made


def audited(case: Any) -> dict[str, Any]:
    """Everything about one case."""
    torch.set_num_threads(1)
    row: dict[str, Any] = {"key": case.key, "options": {name: _told(value) for name, value in case.options.items()}}
    started = time.perf_counter()
    with pg.testing.triton_interpreter() if case.triton else contextlib.nullcontext():
        try:
            torch.manual_seed(0)
            fn, inputs = case.make()
            row["states"] = described(inputs)
        except Exception as error:
            return {**row, "raises": f"{type(error).__name__}: {error}"[:400], "seconds": round(time.perf_counter() - started, 2)}
        try:
            row["reached"] = reached(fn, inputs)
        except Exception:  # a backward that raises; the audit says so
            row["reached"] = []
        try:
            before = time.perf_counter()
            report = pg.audit(fn, inputs, **{"seconds": SECONDS, **case.options})
            row["audit"] = {
                "verdict": str(report.verdict),
                "passed": report.passed,
                "intent": report.intent,
                "complete": report.complete,
                "defect": finite(report.defect),
                "defect_error": finite(report.defect_error),
                "limit": finite(report.limit),
                "headline": report.headline,
                "summary": shortened(report.summary),
                "place": shortened(report.place or ""),
                "checks": dict(report.checks),
                "left_out": [shortened(str(left)) for left in report.left_out][:4],
                "findings": [[f.severity, f.kind, shortened(f.text)] for f in report.findings if f.severity != "note"][:8],
                "calls": report.evaluations,
                "dtype": report.dtype,
                "seconds": round(time.perf_counter() - before, 2),
            }
        except Exception as error:
            row["raises"] = f"audit: {type(error).__name__}: {error}"[:400]
        row["gradcheck"] = _timed(lambda: gradchecked(fn, inputs))
        row["differences"] = _timed(lambda: differenced(fn, inputs))
        if operator := row["reached"] and next((r["operator"] for r in row["reached"] if r.get("operator")), None):
            row["opcheck"] = _timed(lambda: opchecked(fn, inputs, operator))
    row["seconds"] = round(time.perf_counter() - started, 2)
    row["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return row


def reached(fn: Callable[..., Any], inputs: Any) -> list[dict[str, Any]]:
    """The custom backwards that a forward and a backward go through: name, place, and the name of an operator."""
    call = Call(fn, inputs)
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for visit in coherence.visits(call.step, limit=1):
        where = shortened(visit.location or "")
        found.setdefault(
            (visit.name, where), {"name": visit.name, "where": where} | ({"operator": visit.name} if "::" in visit.name else {})
        )
    for named, where in jax_rules(fn, call.tree):
        found.setdefault((named, where), {"name": named, "where": where})
    return list(found.values())


def jax_rules(fn: Callable[..., Any], tree: Any) -> Iterator[tuple[str, str]]:
    """The custom_vjp and custom_jvp functions in the trace of a function of `from_jax`."""
    jax, traced = sys.modules.get("jax"), getattr(fn, "__wrapped__", None)
    if jax is None or traced is None:
        return
    arguments, keywords = walk(tree, lambda t: jax.numpy.asarray(t.detach().numpy()))
    leaves, structure = jax.tree.flatten((arguments, keywords))
    numbers = [i for i, leaf in enumerate(leaves) if isinstance(leaf, jax.Array)]

    def called(*arrays: Any) -> Any:
        filled = list(leaves)
        for i, array in zip(numbers, arrays, strict=True):
            filled[i] = array
        args, kwargs = jax.tree.unflatten(structure, filled)
        return traced(*args, **kwargs)

    pending = [jax.make_jaxpr(called)(*(leaves[i] for i in numbers)).jaxpr]
    seen: set[int] = set()
    while pending:
        jaxpr = pending.pop()
        if id(jaxpr) in seen:
            continue
        seen.add(id(jaxpr))
        for equation in jaxpr.eqns:
            if equation.primitive.name.startswith(("custom_vjp_call", "custom_jvp_call")):
                inner = equation.params.get("call_jaxpr") or equation.params.get("fun_jaxpr")
                info = getattr(getattr(inner, "jaxpr", inner), "debug_info", None)
                said = getattr(info, "func_src_info", "") or equation.params.get("name", "")
                called_as, _, place = str(said).partition(" at ")
                yield called_as, shortened(place)
            for value in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda v: hasattr(v, "eqns") or hasattr(v, "jaxpr")):
                inner = getattr(value, "jaxpr", value)
                if hasattr(inner, "eqns"):
                    pending.append(inner)


def gradchecked(fn: Callable[..., Any], inputs: Any) -> dict[str, Any]:
    """torch's gradcheck with its defaults on the same inputs."""
    call = Call(fn, inputs)
    try:
        torch.autograd.gradcheck(lambda *given: tuple(call(*given)), call.leaves())
        return {"result": "passes"}
    except GradcheckError as error:
        return {"result": "fails", "says": first_line(error)}


def opchecked(fn: Callable[..., Any], inputs: Any, operator: str) -> dict[str, Any]:
    """torch's opcheck on the arguments that the operator gets."""
    visit = next(v for v in coherence.visits(Call(fn, inputs).step, limit=1) if v.name == operator)
    space, _, called = operator.partition("::")
    op = getattr(getattr(torch.ops, space), called.split(".")[0]).default
    try:
        torch.library.opcheck(op, visit.arguments, dict(visit.keywords))
        return {"result": "passes"}
    except Exception as error:
        return {"result": "fails", "says": first_line(error)}


def differenced(fn: Callable[..., Any], inputs: Any) -> dict[str, Any]:
    """The gradient beside differences."""
    return {name: finite(value) if isinstance(value, float) else value for name, value in compare(fn, inputs).items()}


def first_line(error: Exception) -> str:
    """What an error says, in short."""
    return shortened((str(error).strip().splitlines() or [type(error).__name__])[0])[:160]


class _TooLong(Exception):
    pass


def _timed(check: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What a check beside the audit says, within its time, and whatever it raises."""

    def ring(*_: Any) -> None:
        raise _TooLong

    started = time.perf_counter()
    previous = signal.signal(signal.SIGALRM, ring)
    signal.alarm(BESIDE_SECONDS)
    try:
        made = check()
    except _TooLong:
        made = {"result": "not finished", "agrees": None}
    except Exception as error:
        made = {"result": "raises", "agrees": None, "says": shortened(f"{type(error).__name__}: {error}")[:160]}
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)
    return {**made, "seconds": round(time.perf_counter() - started, 2)}


def described(inputs: Any) -> list[str]:
    """The arguments in words: shapes and dtypes of tensors, other things as they are."""
    pairs = (
        list(inputs.items())
        if isinstance(inputs, dict)
        else [(None, v) for v in (inputs if isinstance(inputs, (tuple, list)) else (inputs,))]
    )

    def said(value: Any) -> str:
        if isinstance(value, torch.Tensor):
            return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
        return repr(value)[:40] if isinstance(value, (int, float, str, bool, type(None), tuple, list)) else type(value).__name__

    return [f"{name}={said(value)}" if name else said(value) for name, value in pairs]


def shortened(text: str) -> str:
    """Without the folders of this machine: files from the folder of the installation on."""
    text = re.sub(r"[^\s'\"(]*site-packages/", "", text)
    for folder in (sysconfig.get_path("stdlib"), sys.prefix, str(Path(__file__).parents[1])):
        text = text.replace(f"{folder}/", "")
    return text


def finite(value: float) -> float | str:
    """As JSON has it."""
    return value if isinstance(value, (int, float)) and value == value and abs(value) != float("inf") else str(value)


def _told(value: Any) -> Any:
    return value if isinstance(value, (int, float, str, bool, type(None))) else str(value)[:80]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

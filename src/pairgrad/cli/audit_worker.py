"""The process in which `pairgrad audit` calls the user's code: it reads a request and tells what happens, one JSON object per line.

Run as `python -m pairgrad.cli.audit_worker CHANNEL`, with the request on its standard input, which stays open as long as the parent lives.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any

import torch

from pairgrad.cli import target as targets
from pairgrad.cli.spec import SpecError, make_inputs, make_sweep, parse_constraints, parse_domain
from pairgrad.cli.spec_values import DTYPES, tensors
from pairgrad.cli.target import Unusable, at, called, find, imported, place_in, saying, split, structured, way_of
from pairgrad.coherence import Progress, Report, Subject, SweepReport, SweepRow, Verdict, audit, sweep
from pairgrad.coherence.report.annotations import callable_location
from pairgrad.coherence.subject.signature import function_of, signature
from pairgrad.ground._torch_private import pytree
from pairgrad.ground.text import printable
from pairgrad.testing.interpreter import is_set, triton_interpreter

_PAUSE = 1.0  # seconds between two partial reports of one stage
_SHARE = 0.05  # of the time, at most, goes into them


def run(request: dict[str, Any], teller: Teller) -> None:
    """Make the audit that is asked for. Ends with an event "report" or "failed".

    Where TRITON_INTERPRET=1 is set, Triton kernels run in the interpreter as in `pairgrad.testing.triton_interpreter`.
    """
    send = teller.send
    place, _, path = request["target"].rpartition(":")
    try:
        with triton_interpreter() if is_set() else contextlib.nullcontext([]) as pitfalls:
            report = _audited(request, place, path, teller)
        for text in pitfalls:
            send({"event": "note", "text": text})
        send({"event": "report", "report": report.to_dict()})
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and teller.interrupted:
            raise
        failure = _explained(error, path)
        if failure["kind"] == "raised":
            teller.partial()
        send({"event": "failed", **failure})


def _audited(request: dict[str, Any], place: str, path: str, teller: Teller) -> Report | SweepReport:
    """The audit of a target, or of its configurations."""
    torch.manual_seed(request["seed"])  # of a module that is made here
    teller.stage(f"importing {place}")
    module = imported(place)
    found = find(module, path)
    fn = targets.as_callable(found, path)
    teller.send({"event": "ready", "location": callable_location(fn)})
    teller.stage("making the inputs")
    names = ("effort", "second_order", "transforms", "compiled", "consequences", "tolerance", "intent", "seed", "cache")
    given: dict[str, Any] = {name: request[name] for name in names} | {"seconds": request["seconds"] or None}
    if request["sweep"] is not None:
        return _swept(fn, found, module, path, request, given, teller)
    inputs, domain = _arguments(fn, found, module, path, request)
    dtype = None if request["dtype"] is None else DTYPES[request["dtype"]]
    teller.stage(f"calling {path} for the first time")
    constraints = _constraints(fn, inputs, request["constraints"])
    report = audit(fn, inputs, domain=domain, constraints=constraints, dtype=dtype, progress=teller.progress, **given)
    silent = report.verdict is Verdict.INCONCLUSIVE and all(state.verdict in ("unresolved", "outside") for state in report.states)
    if silent and _is_nan(fn, inputs, dtype):
        text = f"{path} returns nothing but NaN at the inputs: there is nothing to differentiate. Try other inputs."
        teller.send({"event": "note", "text": text})
    return report


def _explained(error: BaseException, path: str) -> dict[str, Any]:
    """A sentence on an exception: the user's, or that of the audit on what it was given."""
    if isinstance(error, Unusable | SpecError):
        return {"kind": "unusable", "message": str(error), "way": getattr(error, "way", "")}
    text, kind = " ".join(str(error).split()), "raised"
    if isinstance(error, SystemExit):
        text = f"{path} ends the program (sys.exit, code {error.code})"
    elif isinstance(error, TypeError | ValueError) and not at(error):
        kind, text = "unusable", f"{path}{text.removeprefix('fn')}" if text.startswith("fn must") else text
    else:
        text = f"{path} raised {saying(error)}{at(error)}"
    return {"kind": kind, "message": printable(text), "way": way_of(error)}


class Teller:
    """Sends stages, and partial reports now and then.

    Attributes:
        send: hands an event over.
        interrupted: whether a KeyboardInterrupt comes from the parent; the function may raise one itself.
    """

    def __init__(self, send: Callable[[dict[str, Any]], None]) -> None:
        self.send, self.interrupted = send, False
        self._last, self._stage = None, ""
        self._sent, self._pause = time.perf_counter(), _PAUSE

    def stage(self, name: str, step: int = 0, steps: int = 0, calls: int = 0, seconds: float = 0.0) -> None:
        """One of the audit, or, without a number, one of those before it."""
        self.send({"event": "stage", "stage": name, "step": step, "steps": steps, "calls": calls, "seconds": seconds})

    def progress(self, now: Progress) -> None:
        self._last = now
        self.stage(now.stage, now.step + 1, now.steps, now.calls, now.seconds)
        if now.stage != self._stage or time.perf_counter() - self._sent >= self._pause:
            self._stage = now.stage
            self.partial()

    def partial(self) -> None:
        """What was found so far, if the audit has begun."""
        if self._last is None:
            return
        begun = time.perf_counter()
        report = self._last.report()
        self.send({"event": "partial", "report": report.to_dict(), "calls": report.evaluations})
        self._sent = time.perf_counter()
        self._pause = max(_PAUSE, (self._sent - begun) / _SHARE)


def _swept(
    fn: Any, found: Any, module: ModuleType, path: str, request: dict[str, Any], given: dict[str, Any], teller: Teller
) -> SweepReport:
    """The sweep that is asked for; a function of the user's that makes inputs gets the values that it takes."""
    dtype = torch.float64 if request["dtype"] is None else DTYPES[request["dtype"]]
    grid = _made("--sweep", make_sweep, request, dtype)
    inputs: Any = None
    if request["inputs"] is not None:
        args, kwargs = _made("--inputs", make_inputs, request, dtype)
        inputs = targets.arranged(fn, path, args, kwargs)[0] if args and kwargs else kwargs or args
    elif request["inputs_from"] is not None:
        inputs = _named(request["inputs_from"], module)
    elif "shape" not in grid:
        held = _held(fn, found, module, path)
        if held is None:
            raise Unusable(_without_inputs(fn, path, request["target"]), lines=True)
        inputs = held[0]
    if request["constraints"] is not None:
        given["constraints"] = parse_constraints(request["constraints"])
    if request["dtype"] is not None:
        grid.setdefault("dtype", [dtype])
    begun = time.perf_counter()

    def told(row: SweepRow, number: int, total: int) -> None:
        calls = 0 if row.report is None else row.report.evaluations
        teller.stage(f"auditing configurations ({row.name}: {row.result})", number, total, calls, time.perf_counter() - begun)

    everything: dict[str, Any] = given | grid
    return sweep(fn, inputs, progress=told, **everything)


def _made(option: str, make: Callable[[str, int, torch.dtype], Any], request: dict[str, Any], dtype: torch.dtype) -> Any:
    """What an option describes. Whatever goes wrong with it is not the function's doing."""
    text = request[option.removeprefix("--")]
    try:
        return make(text, request["seed"], dtype)
    except SpecError as error:
        raise Unusable(f"{option}: {error}", lines=True) from None
    except Exception as error:
        raise Unusable(f"{option}: cannot make {text[:200]!r}: {saying(error)}") from None


def _arguments(fn: Any, found: Any, module: ModuleType, path: str, request: dict[str, Any]) -> tuple[Any, Any]:
    """What the callable is given, and the domain."""
    domain = None if request["domain"] is None else parse_domain(request["domain"])
    network = next((part for part in (fn, getattr(fn, "__self__", None)) if isinstance(part, torch.nn.Module)), None)
    parameters = [] if network is None else list(network.parameters())
    own = next((parameter.dtype for parameter in parameters if parameter.is_floating_point()), torch.float64)
    dtype = own if request["dtype"] is None else DTYPES[request["dtype"]]
    if request["inputs"] is not None:
        args, kwargs = _made("--inputs", make_inputs, request, dtype)
        if not parameters and not any(tensor.is_floating_point() for tensor in tensors((args, kwargs))):
            args, kwargs = pytree.tree_map_only(float, lambda number: torch.tensor(number, dtype=dtype), (args, kwargs))
    elif request["inputs_from"] is not None:
        args, kwargs = _from_callable(request["inputs_from"], module)
    else:
        held = _held(fn, found, module, path)
        if held is None and domain is None:
            raise Unusable(_without_inputs(fn, path, request["target"]), lines=True)
        args, kwargs = structured(*held) if held is not None else _middle(domain, dtype)
    return targets.arranged(fn, path, args, kwargs, domain)


def _constraints(fn: Any, inputs: tuple[Any, ...] | dict[str, Any], text: str | None) -> Any:
    """The constraints with the names that the inputs have in the audit."""
    given = None if text is None else parse_constraints(text)
    if isinstance(given, dict) and isinstance(inputs, tuple) and (expected := signature(fn)) is not None:
        places = {parameter: f"input {i}" for i, parameter in enumerate(expected.parameters)}
        return {places.get(name, name): value for name, value in given.items()}
    return dict(zip(inputs, given, strict=False)) if isinstance(given, tuple) and isinstance(inputs, dict) else given


def _from_callable(target: str, module: ModuleType) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What a function gives, of any module, or of that of the target if it is not named."""
    return structured(called(_named(target, module), target.rpartition(":")[2]), target)


def _named(target: str, module: ModuleType) -> Any:
    """The object that a target names, in the given module if it names none."""
    if ":" not in target:
        return find(module, target)
    place, path = split(target)
    return find(imported(place), path)


def _held(fn: Any, found: Any, module: ModuleType, path: str) -> tuple[Any, str] | None:
    """Inputs that the callable or its module has: an attribute `example_inputs`, or `<name>_inputs`; values, or functions that give them."""
    owners = [owner for owner in (found, fn, function_of(fn), type(fn)) if not isinstance(owner, ModuleType)]
    places = [(owner, "example_inputs", f"{path}.example_inputs") for owner in owners]
    places += [(module, f"{part}_inputs", f"{part}_inputs") for part in reversed(path.split("."))]
    for owner, name, source in places:
        given = getattr(owner, name, None)
        if given is not None:
            return called(given, name), source
    return None


def _middle(domain: Any, dtype: torch.dtype) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """One number in the middle of each interval."""

    def start(interval: Any) -> torch.Tensor:
        if interval is None:
            raise Unusable("--domain leaves an input out (_): give --inputs, which tell what it is")
        return torch.tensor(interval.middle, dtype=dtype)

    if isinstance(domain, dict):
        return (), {name: start(interval) for name, interval in domain.items()}
    return tuple(start(interval) for interval in (domain if isinstance(domain, tuple) else (domain,))), {}


def _without_inputs(fn: Any, path: str, target: str) -> str:
    expected = signature(fn)
    if expected is not None and not expected.parameters:
        return f"{path}() takes no arguments, so there is nothing to differentiate: let it take the tensors that it computes with"
    call = f"{path}{targets.shown(expected)}" if expected is not None else path
    line = f'pairgrad audit {target} --inputs "{targets.example(fn)}"'
    return (
        f"{printable(call)} needs inputs, for example:\n    {printable(line)}\n"
        f"or an interval to scan (--domain 0.1..4), or a function {path.partition('.')[0]}_inputs() beside it that returns them"
    )


def _is_nan(fn: Any, inputs: Any, dtype: torch.dtype | None) -> bool:
    """Whether the outputs hold nothing but NaN."""
    try:
        outputs = Subject(fn, inputs, dtype=dtype if not isinstance(fn, torch.nn.Module) else None).outputs
    except Exception:
        return False
    return all(bool(torch.isnan(output).all()) for output in outputs)


class _Channel:
    """Whole lines into the pipe to the parent, and what an interruption does."""

    def __init__(self, descriptor: int) -> None:
        self._pipe, self._writing, self._late = open(descriptor, "wb"), False, False  # noqa: SIM115 (for as long as the process lives)
        self.teller = Teller(self.send)

    def send(self, event: dict[str, Any]) -> None:
        self._writing = True
        try:
            self._pipe.write(json.dumps(event).encode() + b"\n")
            self._pipe.flush()
        except OSError:  # the parent is gone
            os._exit(2)
        self._writing = False
        if self._late:
            self._late = False
            self.interrupted(signal.SIGINT, None)

    def interrupted(self, number: int, frame: FrameType | None) -> None:
        """Tells what was found until now, then ends the audit; in the middle of a line, after it."""
        del number
        if self._writing:
            self._late = True
            return
        self.send({"event": "place", "place": place_in(frame)})
        self.teller.partial()
        self.teller.interrupted = True
        raise KeyboardInterrupt


def _watch_parent(descriptor: int) -> None:
    """Ends this process when the parent, which holds the other end, is gone."""
    try:
        while os.read(descriptor, 1):
            pass
    finally:
        os._exit(2)


def _opened(name: str) -> int:
    """The descriptor of the pipe to the parent, which is a handle on Windows."""
    if sys.platform == "win32":
        import msvcrt

        return msvcrt.open_osfhandle(int(name), os.O_WRONLY)
    os.set_inheritable(int(name), False)
    return int(name)


def main() -> None:
    """Read the request, keep standard input for the parent's sake only, and run."""
    channel = _Channel(_opened(sys.argv[1]))
    line = sys.stdin.readline()
    if not line:  # the parent is gone already
        return
    request = json.loads(line)
    sys.argv = [targets.file_of(request["target"].rpartition(":")[0])]  # a script that reads its arguments finds none
    parent = os.dup(0)
    sys.stdin = open(os.devnull)  # noqa: SIM115 (for as long as the process lives)
    os.dup2(sys.stdin.fileno(), 0)
    threading.Thread(target=_watch_parent, args=(parent,), daemon=True).start()
    if request.get("crash_file"):
        faulthandler.enable(open(request["crash_file"], "w"), all_threads=False)  # noqa: SIM115
    signal.signal(signal.SIGINT, channel.interrupted)
    channel.send({"event": "started"})
    try:
        with contextlib.suppress(KeyboardInterrupt):
            run(request, channel.teller)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        channel.send({"event": "end"})


if __name__ == "__main__":
    main()

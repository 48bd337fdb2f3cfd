"""The process in which `pairgrad audit` calls somebody's code: it reads a request and tells what happens, one JSON object per line.

Run as `python -m pairgrad.cli.audit_worker CHANNEL`, with the request on its standard input, which stays open as long as the parent lives.
"""

from __future__ import annotations

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
from torch.utils import _pytree as pytree

from pairgrad.cli.spec import SpecError, parse_domain, parse_inputs
from pairgrad.cli.spec_values import DTYPES, tensors
from pairgrad.cli.target import (
    Unusable,
    arranged,
    as_callable,
    example,
    file_of,
    find,
    function_of,
    imported,
    place_in,
    place_of,
    saying,
    shown,
    signature,
    split,
    structured,
    way_of,
)
from pairgrad.coherence import Progress, Report, Subject, Verdict, audit
from pairgrad.coherence.report.annotations import callable_location

Send = Callable[[dict[str, Any]], None]

_PAUSE = 1.0  # seconds between two partial reports of one stage
_SHARE = 0.05  # of the time, at most, goes into them


def run(request: dict[str, Any], send: Send, teller: Teller | None = None) -> None:
    """Make the audit that is asked for. Ends with an event "report" or "failed"."""
    teller = teller or Teller(send)
    place, _, path = request["target"].rpartition(":")
    try:
        torch.manual_seed(request["seed"])  # of a module that is made here
        teller.stage(f"importing {place}")
        module = imported(place)
        found = find(module, path)
        fn = as_callable(found, path)
        send({"event": "ready", "location": callable_location(fn)})
        teller.stage("making the inputs")
        inputs, domain = _arguments(fn, found, module, path, request)
        dtype = None if request["dtype"] is None else DTYPES[request["dtype"]]
        teller.stage(f"calling {path} for the first time")
        report = audit(
            fn,
            inputs,
            domain=domain,
            dtype=dtype,
            effort=request["effort"],
            second_order=request["second_order"],
            consequences=request["consequences"],
            tolerance=request["tolerance"],
            intent=request["intent"],
            seed=request["seed"],
            progress=teller.progress,
        )
        if _says_nothing(report) and _is_nan(fn, inputs, dtype):
            send(
                {
                    "event": "note",
                    "text": f"{path} returns nothing but NaN at the inputs: there is nothing to differentiate. Try other inputs.",
                }
            )
        send({"event": "report", "report": report.to_dict()})
    except (Unusable, SpecError) as error:
        send({"event": "failed", "kind": "unusable", "message": str(error), "way": getattr(error, "way", "")})
    except Exception as error:
        failure = _explained(error, path)
        if failure["kind"] == "raised":
            teller.partial()
        send({"event": "failed", **failure})
    except KeyboardInterrupt as error:
        if teller.interrupted:
            raise
        teller.partial()
        at = place_of(error)
        message = f"{path} raised KeyboardInterrupt{f' ({at})' if at else ''}"
        send({"event": "failed", "kind": "raised", "message": message, "way": way_of(error)})
    except SystemExit as error:
        teller.partial()
        message = f"{path} ends the program (sys.exit, code {error.code})"
        send({"event": "failed", "kind": "raised", "message": message, "way": way_of(error)})


def _explained(error: Exception, path: str) -> dict[str, Any]:
    """A sentence on an exception: the user's, or that of the audit on what it was given."""
    at = place_of(error)
    if at:
        return {"kind": "raised", "message": f"{path} raised {saying(error)} ({at})", "way": way_of(error)}
    text = " ".join(str(error).split())
    text = f"{path}{text.removeprefix('fn')}" if text.startswith("fn must") else text
    if isinstance(error, (TypeError, ValueError)):
        return {"kind": "unusable", "message": text, "way": way_of(error)}
    return {"kind": "raised", "message": f"{path} raised {saying(error)}", "way": way_of(error)}


class Teller:
    """Sends stages, and partial reports now and then.

    Attributes:
        interrupted: whether a KeyboardInterrupt comes from the parent; the function may raise one itself.
    """

    def __init__(self, send: Send) -> None:
        self.interrupted = False
        self._send, self._last = send, None
        self._stage = ""
        self._sent, self._pause = time.perf_counter(), _PAUSE

    def stage(self, name: str) -> None:
        """One of those before the audit."""
        self._send({"event": "stage", "stage": name, "step": 0, "steps": 0, "calls": 0, "seconds": 0.0})

    def progress(self, now: Progress) -> None:
        self._last = now
        event = {"event": "stage", "stage": now.stage, "step": now.step + 1, "steps": now.steps, "calls": now.calls, "seconds": now.seconds}
        self._send(event)
        if now.stage != self._stage or time.perf_counter() - self._sent >= self._pause:
            self._stage = now.stage
            self.partial()

    def partial(self) -> None:
        """What was found so far, if the audit has begun."""
        if self._last is None:
            return
        begun = time.perf_counter()
        report = self._last.report()
        self._send({"event": "partial", "report": report.to_dict(), "calls": report.evaluations})
        self._sent = time.perf_counter()
        self._pause = max(_PAUSE, (self._sent - begun) / _SHARE)


def _arguments(fn: Any, found: Any, module: ModuleType, path: str, request: dict[str, Any]) -> tuple[Any, Any]:
    """What the callable is given, and the domain."""
    domain = None if request["domain"] is None else parse_domain(request["domain"])
    network = next((part for part in (fn, getattr(fn, "__self__", None)) if isinstance(part, torch.nn.Module)), None)
    parameters = [] if network is None else list(network.parameters())
    own = next((parameter.dtype for parameter in parameters if parameter.is_floating_point()), torch.float64)
    dtype = own if request["dtype"] is None else DTYPES[request["dtype"]]
    if request["inputs"] is not None:
        args, kwargs = parse_inputs(request["inputs"]).make(request["seed"], dtype)
        if not parameters and not any(tensor.is_floating_point() for tensor in tensors((args, kwargs))):
            args, kwargs = pytree.tree_map_only(float, lambda number: torch.tensor(number, dtype=dtype), (args, kwargs))
    elif request["inputs_from"] is not None:
        args, kwargs = _from_callable(request["inputs_from"], module)
    else:
        held = _held(fn, found, module, path)
        if held is not None:
            args, kwargs = structured(*held)
        elif domain is not None:
            args, kwargs = _middle(domain, dtype)
        else:
            raise Unusable(_without_inputs(fn, path, request["target"]))
    return arranged(fn, path, args, kwargs, domain)


def _from_callable(target: str, module: ModuleType) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What a function gives, of any module, or of that of the target if it is not named."""
    if ":" in target:
        place, path = split(target)
        module = imported(place)
    else:
        path = target
    found = find(module, path)
    return structured(_called(found, path) if callable(found) else found, target)


def _held(fn: Any, found: Any, module: ModuleType, path: str) -> tuple[Any, str] | None:
    """Inputs that the callable or its module has: an attribute `example_inputs`, or `<name>_inputs`; values, or functions that give them."""
    for owner in (found, fn, function_of(fn), type(fn)):
        given = getattr(owner, "example_inputs", None)
        if given is not None and not isinstance(owner, ModuleType):
            return (_called(given, "example_inputs") if callable(given) else given), f"{path}.example_inputs"
    for part in reversed(path.split(".")):
        name = f"{part}_inputs"
        given = getattr(module, name, None)
        if given is not None:
            return (_called(given, name) if callable(given) else given), name
    return None


def _called(make: Callable[..., Any], name: str) -> Any:
    try:
        return make()
    except Exception as error:
        at = place_of(error)
        raise Unusable(f"{name}() raised {saying(error)}{f' ({at})' if at else ''}", way_of(error)) from None


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
    call = f"{path}{shown(expected)}" if expected is not None else path
    return (
        f'{call} needs inputs, for example:\n    pairgrad audit {target} --inputs "{example(fn)}"\n'
        f"or an interval to scan (--domain 0.1..4), or a function {path.partition('.')[0]}_inputs() beside it that returns them"
    )


def _says_nothing(report: Report) -> bool:
    return report.verdict is Verdict.INCONCLUSIVE and all(state.verdict in ("unresolved", "outside") for state in report.states)


def _is_nan(fn: Any, inputs: Any, dtype: torch.dtype | None) -> bool:
    try:
        outputs = Subject(fn, inputs, dtype=dtype if not isinstance(fn, torch.nn.Module) else None).outputs
    except Exception:
        return False
    return all(bool(torch.isnan(output).all()) for output in outputs)


class _Channel:
    """Whole lines into the pipe to the parent, and what an interruption does."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._writing, self._late = descriptor, False, False
        self.teller = Teller(self.send)

    def send(self, event: dict[str, Any]) -> None:
        data = json.dumps(event).encode() + b"\n"
        self._writing = True
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
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
        at = place_in(frame)
        if at:
            self.send({"event": "place", "place": at})
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
    sys.argv = [file_of(request["target"].rpartition(":")[0])]  # a script that reads its arguments finds none
    parent = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 (for as long as the process lives)
    threading.Thread(target=_watch_parent, args=(parent,), daemon=True).start()
    if request.get("crash_file"):
        faulthandler.enable(open(request["crash_file"], "w"), all_threads=False)  # noqa: SIM115
    signal.signal(signal.SIGINT, channel.interrupted)
    channel.send({"event": "started"})
    try:
        run(request, channel.send, channel.teller)
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        channel.send({"event": "end"})


if __name__ == "__main__":
    main()

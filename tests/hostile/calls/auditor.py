"""The auditor."""

from __future__ import annotations

import math
import warnings
from typing import Any

import torch

import pairgrad as pg
from pairgrad.coherence import Box, CoherenceWarning, LogRange
from tests.hostile.calls.given import (
    add,
    arg,
)
from tests.hostile.values import (
    CHOICE,
    DTYPE,
    FLAG,
    PATH,
    STRANGE,
    integer,
    number,
)


def _audited(**arguments: Any) -> Any:
    return pg.audit(
        **{
            "fn": torch.square,
            "inputs": torch.tensor(1.5, dtype=torch.float64),
            "effort": "glance",
            "consequences": False,
            "second_order": False,
            **arguments,
        }
    ).verdict.value


_AUDIT = {
    "fn": arg(torch.square, STRANGE),
    "inputs": arg(torch.tensor(1.5, dtype=torch.float64), STRANGE.or_none(), "fn"),
    "domain": arg((1.0, 2.0), STRANGE.or_none()),
    "dtype": arg(torch.float64, DTYPE.or_none()),
    "effort": arg("glance", CHOICE),
    "second_order": arg(False, FLAG),
    "consequences": arg(False, FLAG),
    "tolerance": arg(0.1, number(lambda v: 0 <= v < 1)),
    "intent": arg("straight-through", CHOICE.or_none()),
    "module": arg(None, STRANGE.or_none()),
    "seed": arg(0, integer(0, 2**63 - 1)),
    "progress": arg(None, STRANGE.or_none()),
}
_CALLABLES = ("a class", "a lambda")
# what fn and progress raise is raised, and callables of something else do
add(
    "audit",
    lambda **arguments: _audited(**arguments),
    {**_AUDIT, "fn": arg(torch.square, STRANGE, "<lambda>()"), "progress": arg(None, STRANGE.or_none(), "Progress", "<lambda>()")},
    takes={"inputs": ("a tensor of two",), "domain": ("a list of two",)},
)
add(
    "assert_coherent",
    lambda allow: pg.assert_coherent(torch.square, torch.tensor(1.5), effort="glance", allow=allow).verdict.value,
    {"allow": arg(("jump",), STRANGE)},
)
add("intended", lambda kind: pg.intended(kind)(lambda x: x), {"kind": arg("straight-through", CHOICE)})
add(
    "Box",
    lambda low, high: (Box(low, high).low, Box(low, high).high),
    {"low": arg(-1.0, number(lambda v: -1e307 < v < 2), "Box"), "high": arg(2.0, number(lambda v: -1 < v < math.inf), "Box")},
    fits=lambda low, high: -math.inf < low < high < math.inf,
)
add(
    "LogRange",
    lambda low, high: (LogRange(low, high).low, LogRange(low, high).high),
    {"low": arg(1.0, number(lambda v: 0 < v < 2), "LogRange"), "high": arg(2.0, number(lambda v: 1 < v < math.inf), "LogRange")},
    fits=lambda low, high: 0 < low < high < math.inf,
)
_RECORD = {"states": arg(3, integer(1)), "memory": arg(1000, integer(0)), "seed": arg(0, integer(0, 2**63 - 1))}


def _recorded(**arguments: Any) -> None:
    with pg.record(**arguments):
        torch.ones(2, requires_grad=True).sum().backward()


add("record", _recorded, {**_RECORD, "loss": arg(True, FLAG)})


def _monitored(**arguments: Any) -> None:
    with warnings.catch_warnings(), pg.CoherenceMonitor(**{"csv": None, **arguments}) as monitor:
        warnings.simplefilter("ignore", CoherenceWarning)  # a log that raises is told of, and the run goes on
        torch.ones(2, requires_grad=True).sum().backward()
        monitor.step()


add(
    "CoherenceMonitor",
    _monitored,
    {
        **_RECORD,
        "every": arg(1000, integer(1)),
        "share": arg(0.02, number(lambda v: 0 < v <= 1)),
        "csv": arg(None, PATH.or_none()),
        "writer": arg(None, STRANGE.or_none()),
        "log": arg(None, STRANGE.or_none()),
        "reaction": arg("warn", CHOICE),
    },
    takes={"log": ("a class", "a lambda")},
)
add(
    "compile",
    lambda target, mode: bool(pg.compile(target, mode=mode)),
    {"target": arg(torch.square, STRANGE), "mode": arg(None, CHOICE.or_none())},
    takes={"target": ("a lambda",)},
)

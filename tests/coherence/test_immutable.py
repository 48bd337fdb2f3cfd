"""What the engine hands round cannot be edited; what holds tensors or panels is equal to itself only, so that a comparison never asks a tensor for a truth."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from pairgrad.coherence import Box, LogRange
from pairgrad.coherence.audit import Progress
from pairgrad.coherence.consequences import Consistent, NodeVerdict
from pairgrad.coherence.differences import Difference
from pairgrad.coherence.panel import Panel
from pairgrad.coherence.path import Geometric, Path, Sample, Straight
from pairgrad.coherence.scan import Region, Scan
from pairgrad.coherence.state import Event, Reading
from pairgrad.coherence.straight import StraightThrough
from pairgrad.coherence.subject import Evaluation
from pairgrad.coherence.verdict import Finding

NUMBERS = torch.ones(2, dtype=torch.float64)


def record_of(kind: type) -> Any:
    """With the same content at every call."""
    content: Any = {Finding: "text", Straight: NUMBERS, Geometric: NUMBERS, Consistent: NUMBERS, Evaluation: NUMBERS}.get(kind, 1.0)
    required = [f for f in dataclasses.fields(kind) if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING]
    return kind(**({f.name: content for f in required} | ({"high": 2.0} if kind in INTERVALS else {})))


INTERVALS = [Box, LogRange]
KINDS = [
    Finding,
    Difference,
    Sample,
    StraightThrough,
    Panel,
    Path,
    Straight,
    Geometric,
    NodeVerdict,
    Progress,
    *INTERVALS,
    Event,
    Reading,
    Region,
    Scan,
]


@pytest.mark.parametrize("kind", KINDS)
def test_no_field_can_be_set(kind: type) -> None:
    record = record_of(kind)
    name = dataclasses.fields(kind)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign"):
        setattr(record, name, None)


@pytest.mark.parametrize("kind", KINDS)
def test_equality_is_by_content_for_numbers_and_by_identity_for_tensors(kind: type) -> None:
    one, two = record_of(kind), record_of(kind)
    assert one == one
    assert (one == two) == (kind not in (Panel, Path, Straight, Geometric, Reading, Scan))


@pytest.mark.parametrize("kind", [Consistent, Evaluation])
def test_results_that_hold_gradients_are_likewise(kind: type) -> None:
    one, two = record_of(kind), record_of(kind)
    assert one == one
    assert one != two
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign"):
        one.gradient = None

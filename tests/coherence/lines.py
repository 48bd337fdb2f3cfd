"""Lines for the tests of the engine's parts."""

from __future__ import annotations

import torch

from pairgrad.coherence.path import Line, Path, Straight
from pairgrad.coherence.subject import Subject


def number_line(fn, dtype=torch.float64, at=1.0):
    """A function of one number along its own axis: t is the argument."""
    subject = Subject(fn, torch.tensor(at, dtype=dtype))
    zero, one = torch.zeros((), dtype=dtype), torch.ones((), dtype=torch.float64)
    return Line(subject, Path((Straight(zero, one),)), (torch.ones((), dtype=dtype),), through_origin=True)

"""What the entries of all packages are made of: valid arguments, and the table that entries are added to."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.functional import normalize

import pairgrad as pg
from tests.hostile.engine import Argument, Entry
from tests.hostile.values import (
    FLAG,
    integer,
    number,
    reals,
)

B, P, K = 5, 4, 3


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


FEATURES, UNIT = draw(B, P), normalize(draw(B, P, seed=1), dim=-1)
LABELS = torch.tensor([0, 1, 2, 1, 0])
COUNTS = torch.tensor([5.0, 3.0, 2.0])
LOG_PRIOR = torch.log_softmax(torch.tensor([0.3, -0.2, 0.1]), 0)
LOGITS = draw(B, K, seed=2)
STATE = pg.ClassState(normalize(draw(K, P, seed=3), dim=-1), torch.tensor([2.0, 5.0, 9.0]))
SHARES = torch.softmax(draw(B, K, seed=4), 1)

CLASSES = integer(1, 2**40)
DIM = integer(2, 2**31)
UNIT_OR_MORE = number(lambda v: 1 <= v < math.inf)
VALIDATE = FLAG.or_none()


def arg(valid: Any, kind: Any, *also: str) -> Argument:
    return Argument(valid, kind, also)


def bank(**options: Any) -> pg.ClassBank:
    torch.manual_seed(0)
    made = pg.ClassBank(K, P, **options)
    made.update(UNIT, LABELS)
    return made


def proco_loss(**options: Any) -> pg.ProCoLoss:
    torch.manual_seed(0)
    made = pg.ProCoLoss(K, P, class_counts=COUNTS, **options)
    made(UNIT, LABELS)
    return made


def patt_loss() -> pg.PATTLoss:
    torch.manual_seed(0)
    made = pg.PATTLoss(K, P, class_counts=COUNTS)
    made.bank.update(UNIT, LABELS)
    return made


def changed(state: Any, call: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    """What a call returns, and what it makes of the state."""
    result = call(*arguments, **keywords)
    return [result, state.state_dict()]


ANYWHERE = reals(ranks=False, rows=False, nan=True, inf=True, minus_inf=True, wide=False)
ANY_SHAPE = frozenset({"transposed", "no columns", "one column less", "one column"})
ON_META = frozenset({"on meta"})
LENGTHS = torch.tensor([[0.0, 0.1, 0.3], [0.7, 0.9, 0.99]], dtype=torch.float64)

ENTRIES: list[Entry] = []


def add(name: str, call: Callable[..., Any], arguments: dict[str, Argument], **options: Any) -> None:
    """One more callable, with a valid call of it."""
    ENTRIES.append(Entry(name, call, arguments, **options))

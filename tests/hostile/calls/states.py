"""Class state."""

from __future__ import annotations

from typing import Any

import torch

import pairgrad as pg
from tests.hostile.calls.given import (
    CLASSES,
    DIM,
    FEATURES,
    LABELS,
    STATE,
    UNIT,
    VALIDATE,
    K,
    P,
    add,
    arg,
    bank,
    changed,
)
from tests.hostile.values import (
    CHOICE,
    DEVICE,
    DTYPE,
    GENERATOR,
    POSITIVE,
    labels,
    number,
    reals,
)

_BANK = {
    "num_classes": arg(K, CLASSES),
    "dim": arg(P, DIM),
    "estimator": arg("closed-form", CHOICE),
    "cap": arg(1e5, POSITIVE),
    "on_resultant_above_one": arg("cap", CHOICE),
    "unseen": arg("random", CHOICE),
    "small_samples": arg("plain", CHOICE),
    "decay": arg(0.5, number(lambda v: 0 < v < 1).or_none()),
    "memory": arg("cumulative", CHOICE),
    "validate": arg(None, VALIDATE),
    "generator": arg(None, GENERATOR.or_none()),
    "device": arg(None, DEVICE.or_none()),
    "dtype": arg(torch.float32, DTYPE.or_none()),
}


def _used_bank(**options: Any) -> Any:
    """Made, and used: an argument may be taken and do harm later."""
    made = pg.ClassBank(**options)
    if made.num_classes == K and made.dim == P and made.sums.device.type == "cpu":
        made.update(UNIT, LABELS)
        return [made, made.concentration, made.mean_direction, pg.vmf_scores(UNIT, made)]
    return made


add("ClassBank", _used_bank, _BANK)
_FEATURES = reals(ranks=True, rows=True)
add(
    "ClassBank.update",
    lambda state_, features, labels: [
        changed(state_, state_.update, features, labels),
        state_.concentration,
        state_.mean_direction,
        state_.mean,
    ],
    {"features": arg(FEATURES, _FEATURES, "labels"), "labels": arg(LABELS, labels(), "features")},
    state=bank,
)
add(
    "ClassBank.update(normalize)",
    lambda state_, features, labels: [
        changed(state_, state_.update, features, labels),
        state_.concentration,
        state_.mean_direction,
        state_.mean,
    ],
    {"features": arg(FEATURES, _FEATURES, "labels"), "labels": arg(LABELS, labels(), "features")},
    state=lambda: bank(on_resultant_above_one="normalize", dtype=torch.float64),
)
add(
    "ClassBank.reset",
    lambda state_, generator: changed(state_, state_.reset, generator=generator),
    {"generator": arg(None, GENERATOR.or_none())},
    state=bank,
)
add(
    "ClassBank.start_epoch",
    lambda state_, generator: changed(state_, state_.start_epoch, generator=generator),
    {"generator": arg(None, GENERATOR.or_none())},
    state=lambda: bank(memory="two-epochs"),
)
add(
    "ClassState",
    lambda **arguments: pg.vmf_scores(UNIT, pg.ClassState(**arguments)),
    {
        "mean_direction": arg(STATE.mean_direction, reals(), "concentration", "features"),
        "concentration": arg(STATE.concentration, reals(low=0), "mean_direction"),
    },
)

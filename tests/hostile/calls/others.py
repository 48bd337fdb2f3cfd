"""Planning, and the signatures of other libraries."""

from __future__ import annotations

import torch

from pairgrad.compat import MetricLearningLoss, TimmLoss, proco, read_proco_checkpoint
from pairgrad.distributed import shard
from pairgrad.sphere import expected_squared_resultant
from tests.hostile.calls.given import (
    CLASSES,
    COUNTS,
    DIM,
    FEATURES,
    LABELS,
    LOGITS,
    SHARES,
    UNIT,
    K,
    P,
    add,
    arg,
    changed,
    proco_loss,
)
from tests.hostile.values import (
    CHOICE,
    NONNEGATIVE,
    PATH,
    POSITIVE,
    STRANGE,
    integer,
    labels,
    number,
    reals,
)

add("distributed.shard", shard, {"num_classes": arg(10, integer(1)), "ranks": arg(3, integer(2)), "rank": arg(1, integer(0, 2))})
add(
    "expected_squared_resultant",
    expected_squared_resultant,
    {
        "count": arg(5, integer(1)),
        "mean_length": arg(0.2, number(lambda v: 0 <= v <= 1e150)),
        "covariance_trace": arg(0.5, NONNEGATIVE.or_none()),
    },
)


def compat() -> proco.ProCoLoss:
    torch.manual_seed(0)
    return proco.ProCoLoss(P, 0.1, K)


add(
    "compat.proco.ProCoLoss",
    lambda **arguments: proco.ProCoLoss(**arguments),
    {
        "contrast_dim": arg(P, DIM, "dim"),
        "temperature": arg(0.1, POSITIVE),
        "num_classes": arg(K, CLASSES),
        "realization": arg("paired", CHOICE),
    },
)
add(
    "compat.proco.ProCoLoss.forward",
    lambda state_, features, labels: changed(state_, state_, features, labels),
    {"features": arg(FEATURES, reals(), "labels"), "labels": arg(LABELS, labels().or_none(), "features")},
    state=compat,
)
add(
    "compat.proco.ProCoLoss.loss",
    lambda state_, **arguments: changed(state_, state_.loss, **arguments),
    {
        "features": arg(FEATURES, reals(), "labels"),
        "labels": arg(LABELS, labels(), "features"),
        "class_counts": arg(COUNTS, reals(low=0, lists=True, arrays=True, ints=True).or_none()),
    },
    state=compat,
    takes={"features": ("one more dimension in front",)},
)
add(
    "compat.proco.ProCoLoss.cal_weight_for_classes",
    lambda state_, cls_num_list: [state_.cal_weight_for_classes(cls_num_list), state_.weight],
    {"cls_num_list": arg(COUNTS, reals(low=0, lists=True, arrays=True, ints=True))},
    state=compat,
)
add(
    "compat.proco.LogitAdjust",
    lambda **arguments: proco.LogitAdjust(**arguments)(LOGITS, LABELS),
    {
        "cls_num_list": arg(COUNTS, reals(low=0, lists=True, arrays=True, ints=True, rows=False), "class_counts", "logits"),
        "tau": arg(1.0, NONNEGATIVE, "strength"),
        "weight": arg(None, reals(low=0, lists=True, arrays=True, ints=True).or_none()),
    }
    | {"weight": arg(COUNTS, reals(low=0, lists=True, arrays=True, ints=True).or_none())},
)
add(
    "compat.proco.LogitAdjust.forward",
    lambda x, target: proco.LogitAdjust(COUNTS)(x, target),
    {"x": arg(LOGITS, reals(minus_inf=True), "logits", "labels"), "target": arg(LABELS, labels(), "labels", "logits")},
)
add(
    "compat.proco.load_checkpoint",
    lambda state_, path: proco.load_checkpoint(state_, path),
    {"path": arg("nosuch.pth", PATH)},
    state=compat,
    errors=(FileNotFoundError, IsADirectoryError),
)
add(
    "compat.read_proco_checkpoint",
    lambda path: read_proco_checkpoint(path),
    {"path": arg("nosuch.pth", PATH)},
    errors=(FileNotFoundError, IsADirectoryError),
)
add(
    "compat.MetricLearningLoss",
    lambda loss, views: MetricLearningLoss(loss, views),
    {"loss": arg(proco_loss(), STRANGE), "views": arg(2, integer(1))},
)
add(
    "compat.MetricLearningLoss.forward",
    lambda state_, embeddings, labels: changed(state_, MetricLearningLoss(state_, 2), embeddings, labels),
    {
        "embeddings": arg(torch.cat([UNIT, UNIT]), reals(), "features", "labels"),
        "labels": arg(LABELS.repeat(2), labels(), "embeddings", "features"),
    },
    state=proco_loss,
)
add(
    "compat.MetricLearningLoss.forward(one view)",
    lambda state_, embeddings, labels: changed(state_, MetricLearningLoss(state_), embeddings, labels),
    {"embeddings": arg(UNIT, reals(), "features", "labels"), "labels": arg(LABELS, labels(), "embeddings", "features")},
    state=proco_loss,
    rounding=True,  # some processors have another matrix product for a small transposed factor
)
add(
    "compat.TimmLoss.forward",
    lambda state_, x, target: changed(state_, TimmLoss(state_), x, target),
    {"x": arg(UNIT, reals(), "features", "labels"), "target": arg(LABELS, labels(), "labels", "features")},
    state=proco_loss,
    takes={"x": ("one more dimension in front",)},
)
add(
    "compat.TimmLoss.forward(probabilities)",
    lambda state_, x, target: changed(state_, TimmLoss(state_), x, target),
    {"x": arg(UNIT, reals(), "features", "labels"), "target": arg(SHARES, reals(low=0), "labels", "features")},
    state=proco_loss,
    takes={"target": ()},
)

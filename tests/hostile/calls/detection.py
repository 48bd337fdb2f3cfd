"""Detection of what is out of distribution."""

from __future__ import annotations

from typing import Any

import torch

import pairgrad as pg
from tests.hostile.calls.given import (
    ANY_SHAPE,
    ANYWHERE,
    COUNTS,
    FEATURES,
    LABELS,
    LOG_PRIOR,
    LOGITS,
    ON_META,
    STATE,
    K,
    P,
    add,
    arg,
    draw,
)
from tests.hostile.values import (
    CHOICE,
    POSITIVE,
    STRANGE,
    integer,
    labels,
    reals,
)

INSIDE, OUTSIDE = torch.tensor([0.1, 0.2, 0.5]), torch.tensor([0.5, 0.9])
_SCORE_ARRAY = reals(rows=False, inf=True, minus_inf=True, arrays=True, ints=True)
for _name in ("auroc", "aupr_in", "aupr_out", "fpr95", "ood_metrics"):
    _call = getattr(pg.ood, _name)
    _arguments = {"id_scores": arg(INSIDE, _SCORE_ARRAY), "ood_scores": arg(OUTSIDE, _SCORE_ARRAY)}
    if _name.startswith("aupr"):
        _arguments["rule"] = arg("average-precision", CHOICE)
    if _name == "fpr95":
        _arguments["convention"] = arg("patt", CHOICE)
    if _name == "ood_metrics":
        _arguments["aupr"] = arg("average-precision", CHOICE)
    add(
        f"ood.{_name}",
        lambda _call=_call, **arguments: _plain(_call(**arguments)),
        _arguments,
        takes=dict.fromkeys(_arguments, ("float8",)),
    )


def _plain(result: Any) -> Any:
    return result.to_dict() if hasattr(result, "to_dict") else result


add(
    "ood.sc_ood",
    lambda **arguments: _plain(pg.ood.sc_ood(**arguments)),
    {"id_scores": arg(INSIDE, _SCORE_ARRAY), "sources": arg({"far": (OUTSIDE, None)}, STRANGE), "aupr": arg("average-precision", CHOICE)},
    takes={"id_scores": ("float8",)},
)
add(
    "ood.sc_ood(scores)",
    lambda scores: _plain(pg.ood.sc_ood(INSIDE, {"far": (scores, None)})),
    {"scores": arg(OUTSIDE, _SCORE_ARRAY, "sources")},
    takes={"scores": ("float8",)},
)
add(
    "ood.sc_ood(mask)",
    lambda mask: _plain(pg.ood.sc_ood(INSIDE, {"far": (OUTSIDE, mask)})),
    {"mask": arg(torch.tensor([False, True]), STRANGE.or_none(), "sources")},
)
add(
    "ood.mean_metrics",
    lambda metrics: _plain(pg.ood.mean_metrics(metrics)),
    {"metrics": arg([pg.ood.ood_metrics(INSIDE, OUTSIDE)], STRANGE)},
)
_PREDICTIONS = torch.tensor([0, 1, 1, 2, 0])
for _name in ("accuracy", "per_class_accuracy", "balanced_accuracy", "accuracy_report"):
    _call = getattr(pg.ood, _name)
    _arguments = {
        "predictions": arg(_PREDICTIONS, labels(arrays=True, negative=True), "labels"),
        "labels": arg(LABELS, labels(arrays=True, negative=_name == "accuracy"), "predictions"),
    }
    if _name in ("per_class_accuracy", "balanced_accuracy"):
        _arguments["num_classes"] = arg(K, integer(3, 10**6), "labels")
    if _name == "accuracy_report":
        _arguments["class_counts"] = arg([50, 20, 5], STRANGE, "labels")
    add(f"ood.{_name}", lambda _call=_call, **arguments: _plain(_call(**arguments)), _arguments)
add(
    "ood.shot_groups",
    pg.ood.shot_groups,
    {"class_counts": arg(torch.tensor([50, 20, 5]), labels(arrays=True, rows=False))},
    takes={"class_counts": ("the largest integer", "a large int8", "a list")},
)
add(
    "ood.class_balanced_indices",
    pg.ood.class_balanced_indices,
    {"labels": arg(LABELS, labels(arrays=True, rows=False)), "size": arg(4, integer(0, 10**6)), "seed": arg(0, integer(0, 2**32 - 1))},
    takes={"labels": ("a large int8",)},
)
for _name in ("msp", "energy", "max_logit"):
    add(f"ood.{_name}", getattr(pg.ood, _name), {"logits": arg(LOGITS, ANYWHERE)}, takes={"logits": ANY_SHAPE | ON_META}, nonfinite=True)
add("ood.energy(temperature)", lambda temperature: pg.ood.energy(LOGITS, temperature), {"temperature": arg(1.5, POSITIVE)})
add(
    "ood.vmf",
    pg.ood.vmf,
    {
        "scores": arg(LOGITS, ANYWHERE, "log_prior"),
        "log_prior": arg(LOG_PRIOR, reals(nan=True, inf=True, minus_inf=True).or_none(), "scores"),
    },
    nonfinite=True,
)


def calibration() -> Any:
    return pg.ood.FeatureCalibration(STATE.mean_direction, torch.zeros(K), COUNTS)


add(
    "ood.FeatureCalibration",
    pg.ood.FeatureCalibration,
    {
        "weight": arg(STATE.mean_direction, reals(rows=False), "prior", "bias"),
        "bias": arg(torch.zeros(K), reals(wide=False).or_none()),
        "prior": arg(COUNTS, reals(low=0, lists=True, arrays=True, ints=True)),
        "accumulation": arg("mean", CHOICE),
    },
    nonfinite=True,
    takes={"weight": ("one column less",)},
)
add(
    "ood.FeatureCalibration.update",
    lambda state_, **arguments: [state_.update(**arguments), state_.finish().scale, state_.score(FEATURES)],
    {
        "id_features": arg(FEATURES, reals(), "id_labels"),
        "id_labels": arg(LABELS, labels(), "id_features"),
        "outlier_features": arg(draw(2, P, seed=11), reals(rows=False), "id_features"),
    },
    state=calibration,
)
add(
    "ood.FeatureCalibration.update(labels)",
    lambda state_, outlier_labels: [state_.update(FEATURES, LABELS, draw(2, P, seed=11), outlier_labels), state_.finish().scale],
    {"outlier_labels": arg(torch.tensor([2, 0]), labels().or_none())},
    state=calibration,
)
add(
    "ood.FeatureCalibration.update(logits)",
    lambda state_, outlier_labels: [state_.update(FEATURES, LABELS, draw(2, P, seed=11), outlier_labels), state_.finish().scale],
    {"outlier_labels": arg(draw(2, K, seed=12), reals(inf=True, minus_inf=True).or_none())},
    state=calibration,
)


def _fitted_calibration() -> Any:
    made = calibration()
    made.update(FEATURES, LABELS, draw(2, P, seed=11))
    return made.finish()


for _name in ("logits", "score"):
    add(
        f"ood.FeatureCalibration.{_name}",
        lambda state_, features, _name=_name: getattr(state_, _name)(features),
        {"features": arg(FEATURES, reals(rows=False, nan=True, inf=True, minus_inf=True))},
        state=_fitted_calibration,
        nonfinite=True,
    )

"""Scores and losses."""

from __future__ import annotations

from typing import Any

import torch

import pairgrad as pg
from tests.hostile.calls.given import (
    CLASSES,
    COUNTS,
    DIM,
    FEATURES,
    LABELS,
    LOG_PRIOR,
    LOGITS,
    SHARES,
    STATE,
    UNIT,
    VALIDATE,
    B,
    K,
    P,
    add,
    arg,
    changed,
    draw,
    patt_loss,
    proco_loss,
)
from tests.hostile.values import (
    CHOICE,
    DEVICE,
    DTYPE,
    FINITE,
    FLAG,
    GENERATOR,
    NONNEGATIVE,
    POSITIVE,
    SHARE,
    STRANGE,
    integer,
    labels,
    reals,
)

_REALIZATION = CHOICE
_SCORES = {
    "features": arg(FEATURES, reals(rows=False)),
    "state": arg(STATE, STRANGE),
    "temperature": arg(0.1, POSITIVE),
    "realization": arg("paired", _REALIZATION),
    "geometry": arg("factorised", CHOICE),
    "geometry_dtype": arg(None, DTYPE.or_none()),
    "scalar_dtype": arg(None, DTYPE.or_none()),
    "validate": arg(None, VALIDATE),
}
add("vmf_scores", pg.vmf_scores, _SCORES, takes={"features": ("one more dimension in front",)})
_ENTROPY = {
    **_SCORES,
    "features": arg(FEATURES, reals(), "labels"),
    "labels": arg(LABELS, labels(), "features"),
    "log_prior": arg(LOG_PRIOR, reals(minus_inf=True).or_none()),
    "reduction": arg("mean", CHOICE),
    "weight": arg(COUNTS, reals(low=0).or_none()),
    "ignore_index": arg(-100, integer()),
    "label_smoothing": arg(0.1, SHARE),
    "max_norm": arg(20.0, POSITIVE.or_none(), "features"),
    "tile": arg(2, integer(1).or_none()),
}
add("vmf_cross_entropy", pg.vmf_cross_entropy, _ENTROPY)
add(
    "vmf_cross_entropy(probabilities)",
    pg.vmf_cross_entropy,
    {"features": arg(FEATURES, reals(), "labels"), "labels": arg(SHARES, reals(low=0), "features"), "state": arg(STATE, STRANGE)},
    takes={"labels": ("integers",)},
)
_FIELD = {
    name: value
    for name, value in _ENTROPY.items()
    if name in ("features", "labels", "state", "temperature", "log_prior", "realization", "geometry_dtype", "validate")
}
add(
    "update_field",
    lambda **arguments: _of_field(pg.update_field(**arguments)),
    {**_FIELD, "strength": arg(1.0, FINITE)},
)
FIELD = pg.update_field(FEATURES, LABELS, STATE, realization="original")


def _of_field(field: Any) -> list[Any]:
    return [field.loss, field.supplied, field.consistent, field.antisymmetry_norm]


add("UpdateField.with_strength", lambda strength: FIELD.with_strength(strength).supplied, {"strength": arg(0.5, FINITE)})
add("UpdateField.supplied_at", FIELD.supplied_at, {"features": arg(FEATURES, reals())})
for _name in ("antisymmetry_along", "differentiated_along"):
    add(
        f"UpdateField.{_name}",
        getattr(FIELD, _name),
        {"first": arg(draw(P), reals(wide=False)), "second": arg(draw(P, seed=5), reals(wide=False))},
        takes={"first": ("one more dimension in front",), "second": ("one more dimension in front",)},
    )
add(
    "certify",
    lambda **arguments: _of_certificate(pg.certify(**arguments)),
    {**_FIELD, "realization": arg("paired", _REALIZATION), "groups": arg({"all": torch.arange(B)}, STRANGE.or_none())},
    nonfinite=True,
)


def _of_certificate(certificate: Any) -> list[Any]:
    return [certificate.mean_loss, certificate.loss.total, certificate.score.total, certificate.gradient.total]


_LOSS = {
    "num_classes": arg(K, CLASSES),
    "dim": arg(P, DIM),
    "temperature": arg(0.1, POSITIVE),
    "class_counts": arg(COUNTS, reals(low=0, lists=True, arrays=True, ints=True).or_none(), "num_classes"),
    "prior_strength": arg(1.0, FINITE),
    "normalize": arg(True, FLAG),
    "realization": arg("paired", _REALIZATION),
    "score": arg("after-update", CHOICE),
    "geometry": arg("factorised", CHOICE),
    "geometry_dtype": arg(None, DTYPE.or_none()),
    "scalar_dtype": arg(None, DTYPE.or_none()),
    "reduction": arg("mean", CHOICE),
    "execution": arg("eager", CHOICE),
    "compile_mode": arg(None, CHOICE.or_none()),
    "weight": arg(1.0, FINITE),
    "cap": arg(1e5, POSITIVE),
    "validate": arg(None, VALIDATE),
}


def _used_loss(**options: Any) -> Any:
    made = pg.ProCoLoss(**options)
    return [made, made(UNIT, LABELS, LOGITS), made.scores(UNIT)]


add("ProCoLoss", _used_loss, _LOSS)
_VIEWS = reals(rows=False)
_FORWARD = {"features": arg(torch.stack([FEATURES, UNIT]), _VIEWS, "labels"), "labels": arg(LABELS, labels(), "features")}
for _options in ({}, {"normalize": False}, {"geometry": "expanded", "score": "before-update"}, {"dtype": torch.float64}):
    add(
        f"ProCoLoss.forward({_options})",
        lambda state_, **arguments: changed(state_, state_, **arguments),
        {**_FORWARD, "logits": arg(LOGITS, reals(minus_inf=True).or_none(), "labels")},
        state=lambda _options=_options: proco_loss(**_options),
        takes={"features": ("one row",)},
    )
add(
    "ProCoLoss.forward(view)",
    lambda state_, **arguments: changed(state_, state_, **arguments),
    {"features": arg(FEATURES, reals(), "labels"), "labels": arg(LABELS, labels(), "features")},
    state=proco_loss,
    takes={"features": ("one more dimension in front",)},
)
add(
    "ProCoLoss.rows",
    lambda state_, **arguments: changed(state_, state_.rows, **arguments),
    _FORWARD,
    state=proco_loss,
    takes={"features": ("one row",)},
)
add(
    "ProCoLoss.scores",
    lambda state_, features: state_.scores(features),
    {"features": arg(FEATURES, reals(rows=False))},
    state=proco_loss,
    takes={"features": ("one more dimension in front",)},
)
add(
    "ProCoLoss.scores(plain)",
    lambda state_, features: state_.scores(features),
    {"features": arg(FEATURES, reals(rows=False))},
    state=lambda: proco_loss(normalize=False),
    takes={"features": ("one more dimension in front",)},
)
add(
    "ProCoLoss.soft",
    lambda state_, features, probabilities: state_.soft(features, probabilities),
    {"features": arg(FEATURES, reals(), "labels", "probabilities"), "probabilities": arg(SHARES, reals(low=0), "labels")},
    state=proco_loss,
)
add(
    "ProCoLoss.set_prior",
    lambda state_, class_counts: [*changed(state_, state_.set_prior, class_counts), state_.log_prior],
    {"class_counts": arg(COUNTS, reals(low=0, lists=True, arrays=True, ints=True))},
    state=proco_loss,
)
add(
    "ProCoLoss.start_epoch",
    lambda state_, generator: changed(state_, state_.start_epoch, generator=generator),
    {"generator": arg(None, GENERATOR.or_none())},
    state=lambda: proco_loss(memory="two-epochs"),
)


def _used_patt(**options: Any) -> Any:
    made = pg.PATTLoss(**options)
    return [made, *made.terms(UNIT, LABELS, LOGITS, LOGITS)]


add(
    "PATTLoss",
    _used_patt,
    {
        **{name: _LOSS[name] for name in ("num_classes", "dim", "normalize", "temperature", "prior_strength")},
        "class_counts": arg(COUNTS, reals(low=0, lists=True, arrays=True, ints=True), "num_classes"),
        "preset": arg("cifar", CHOICE),
        "adjustment_weight": arg(0.5, FINITE.or_none()),
        "outlier_weight": arg(0.5, FINITE.or_none()),
        "logit_temperature": arg(0.5, POSITIVE.or_none(), "temperature"),
    },
)
add(
    "PATTLoss.terms",
    lambda state_, **arguments: changed(state_, state_.terms, **arguments),
    {
        **_FORWARD,
        "logits": arg(LOGITS, reals(minus_inf=True), "labels"),
        "outlier_logits": arg(draw(2, K, seed=8), reals(rows=False).or_none(), "logits"),
    },
    state=patt_loss,
    takes={"features": ("one row",), "outlier_logits": ()},
)
add(
    "PATTLoss.scores",
    lambda state_, features: state_.scores(features),
    {"features": arg(FEATURES, reals(rows=False))},
    state=patt_loss,
    takes={"features": ("one more dimension in front",)},
)
for _class, _extra in ((pg.LogitAdjust, {}), (pg.TemperatureLogitAdjust, {"temperature": arg(0.9, POSITIVE)})):
    add(
        _class.__name__,
        lambda _class=_class, **options: [_class(**options), _class(**options)(LOGITS, LABELS)],
        {
            "class_counts": arg(COUNTS, reals(low=0, lists=True, arrays=True, ints=True, rows=False), "logits", "weight"),
            "strength": arg(1.0, NONNEGATIVE),
            "weight": arg(COUNTS, reals(low=0, lists=True, arrays=True, ints=True).or_none()),
            "label_smoothing": arg(0.1, SHARE),
            "ignore_index": arg(-100, integer()),
            "reduction": arg("mean", CHOICE),
            "dtype": arg(torch.float32, DTYPE.or_none()),
            **_extra,
        },
    )
    add(
        f"{_class.__name__}.forward",
        lambda state_, logits, labels: state_(logits, labels),
        {"logits": arg(LOGITS, reals(minus_inf=True), "labels"), "labels": arg(LABELS, labels(), "logits")},
        state=lambda _class=_class: _class(COUNTS),
    )
    add(
        f"{_class.__name__}.forward(probabilities)",
        lambda state_, logits, labels: state_(logits, labels),
        {"logits": arg(LOGITS, reals(minus_inf=True), "labels"), "labels": arg(SHARES, reals(low=0), "logits")},
        state=lambda _class=_class: _class(COUNTS, weight=COUNTS),
    )
    add(
        f"{_class.__name__}.adjusted",
        lambda state_, logits: state_.adjusted(logits),
        {"logits": arg(LOGITS, reals(minus_inf=True, rows=False))},
        state=lambda _class=_class: _class(COUNTS),
        nonfinite=True,
    )
add("OutlierExposure", lambda reduction: pg.OutlierExposure(reduction)(LOGITS), {"reduction": arg("mean", CHOICE)})
add(
    "OutlierExposure.forward",
    lambda logits: pg.OutlierExposure()(logits),
    {"logits": arg(LOGITS, reals(rows=False))},
    takes={"logits": ("one column", "one column less", "transposed", "on meta")},
)
for _score in ("marginal", "density"):
    add(
        f"VMFClassifier({_score})",
        lambda _score=_score, **options: _used_classifier(score=_score, **options),
        {
            "dim": arg(P, DIM),
            "num_classes": arg(K, CLASSES),
            "temperature": arg(0.1, POSITIVE),
            "concentration": arg(4.0, POSITIVE.or_none()),
            "learn_temperature": arg(False, FLAG),
            "realization": arg("paired", _REALIZATION),
            "device": arg(None, DEVICE.or_none()),
            "dtype": arg(torch.float32, DTYPE.or_none()),
        },
    )
    add(
        f"VMFClassifier({_score}).forward",
        lambda state_, features: state_(features),
        {"features": arg(FEATURES, reals(rows=False))},
        state=lambda _score=_score: _classifier(_score),
        takes={"features": ("one more dimension in front",)},
    )
    add(
        f"VMFClassifier({_score}).loss",
        lambda state_, **arguments: state_.loss(**arguments),
        {
            "features": arg(FEATURES, reals(), "labels"),
            "labels": arg(LABELS, labels(), "features"),
            "log_prior": arg(LOG_PRIOR, reals(minus_inf=True).or_none()),
            "reduction": arg("mean", CHOICE),
            "weight": arg(COUNTS, reals(low=0).or_none()),
            "label_smoothing": arg(0.1, SHARE),
            "ignore_index": arg(-100, integer()),
        },
        state=lambda _score=_score: _classifier(_score),
    )
add("VMFClassifier(score)", lambda score: pg.VMFClassifier(K, P, score=score), {"score": arg("marginal", CHOICE)})


def _classifier(score: str) -> pg.VMFClassifier:
    torch.manual_seed(0)
    return pg.VMFClassifier(K, P, score=score)


def _used_classifier(**options: Any) -> Any:
    made = pg.VMFClassifier(**options)
    return [made, made(UNIT.to(made.weight.dtype)).detach()] if made.dim == P and made.weight.device.type == "cpu" else made


add(
    "VMFRegressionLoss",
    lambda **options: pg.VMFRegressionLoss(**options),
    {"dim": arg(P, DIM), "realization": arg("paired", CHOICE), "reduction": arg("mean", CHOICE)},
)
add(
    "VMFRegressionLoss.forward",
    lambda prediction, target: pg.VMFRegressionLoss(P)(prediction, target),
    {"prediction": arg(FEATURES, reals(), "target"), "target": arg(UNIT, reals(), "prediction")},
)
add(
    "VMFRegressionLoss.forward(concentration)",
    lambda **arguments: pg.VMFRegressionLoss(P)(**arguments),
    {
        "prediction": arg(FEATURES, reals(), "target"),
        "target": arg(UNIT, reals(), "prediction"),
        "concentration": arg(torch.tensor([0.0, 1.0, 2.0, 3.0, 1e5]), reals(low=0, scalars=True).or_none(), "prediction"),
    },
    takes={"concentration": ("no dimension",)},
)

"""The public callables, each with a valid call and the kind of every argument."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import torch
from sklearn.exceptions import ConvergenceWarning
from torch.nn.functional import normalize

import pairgrad as pg
from pairgrad.coherence import Box, CoherenceWarning, LogRange
from pairgrad.compat import MetricLearningLoss, TimmLoss, proco, read_proco_checkpoint
from pairgrad.distributed import plan as planning
from pairgrad.distributed import shard
from pairgrad.sphere import expected_squared_resultant
from tests.hostile.engine import Argument, Entry
from tests.hostile.values import (
    CHOICE,
    DEVICE,
    DTYPE,
    FINITE,
    FLAG,
    GENERATOR,
    NONNEGATIVE,
    PATH,
    POSITIVE,
    SHAPE,
    SHARE,
    STRANGE,
    integer,
    labels,
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


# Potentials ---------------------------------------------------------------------------------------------------------------

POTENTIAL = pg.potential(dim=8)
X = torch.tensor([[0.0, 0.3, 2.0], [9.0, 40.0, 1e4]], dtype=torch.float64)
ANYWHERE = reals(ranks=False, rows=False, nan=True, inf=True, minus_inf=True, wide=False)
LENGTHS = torch.tensor([[0.0, 0.1, 0.3], [0.7, 0.9, 0.99]], dtype=torch.float64)


def _elementwise(method: str) -> Entry:
    # any shape and any real number is an argument here; NaN in, NaN out
    return Entry(
        f"Potential.{method}", getattr(POTENTIAL, method), {"x": arg(X, ANYWHERE)}, nonfinite=True, takes={"x": _ANY_SHAPE | _META}
    )


_ANY_SHAPE = frozenset({"transposed", "no columns", "one column less", "one column"})
_META = frozenset({"on meta"})

ENTRIES: list[Entry] = []


def add(name: str, call: Callable[..., Any], arguments: dict[str, Argument], **options: Any) -> None:
    ENTRIES.append(Entry(name, call, arguments, **options))


_METHODS = ("value", "slope", "pair", "curvature", "derivative", "defect", "complement", "deficit", "legendre")
ENTRIES.extend(_elementwise(method) for method in _METHODS)
for _method, _second in (("bregman", "b"), ("difference", "b"), ("secant", "b"), ("increment", "squared")):
    add(
        f"Potential.{_method}",
        getattr(POTENTIAL, _method),
        {"a": arg(X, ANYWHERE, _second), _second: arg(X + 1, ANYWHERE, "a")},
        nonfinite=True,
        takes={"a": _ANY_SHAPE, _second: _ANY_SHAPE},
    )
_CONCENTRATION = reals(ranks=False, rows=False, nan=True, wide=False)
add(
    "Potential.concentration",
    POTENTIAL.concentration,
    {"resultant_length": arg(LENGTHS, _CONCENTRATION), "method": arg("newton", CHOICE)},
    nonfinite=True,
    takes={"resultant_length": _ANY_SHAPE | _META},
)
add(
    "Potential.concentration(complement)",
    POTENTIAL.concentration,
    {"resultant_length": arg(LENGTHS, _CONCENTRATION), "complement": arg(1 - LENGTHS, ANYWHERE.or_none(), "resultant_length")},
    nonfinite=True,
    takes={"resultant_length": _ANY_SHAPE, "complement": _ANY_SHAPE},
)
for _method in ("ratio_bound", "formulas", "ratio_certificate", "compute_dtype"):
    add(f"Potential.{_method}", getattr(POTENTIAL, _method), {"dtype": arg(torch.float64, DTYPE)}, nonfinite=True)
add("potential", pg.potential, {"dim": arg(8, DIM, "nu"), "realization": arg("paired", CHOICE), "order": arg("auto", CHOICE)})
# orders with a thousand digits behind the point are taken, and take their time
add(
    "potential(nu)",
    lambda nu: (isinstance(nu, float) and nu == 5e-324) or pg.potential(nu=nu).offset,
    {"nu": arg(2.5, number(lambda v: 0 <= v <= 1e9), "dim")},
)
add("potential(arfr)", lambda order: pg.potential(8, "arfr", order).offset, {"order": arg(2, integer(0, 64))})
for _realization in ("original", "log-miller", "consistent"):
    _options = {"start": arg(6, integer(4, 10**6).or_none()), "clip": arg(0.5, NONNEGATIVE.or_none()), "epsilon": arg(1e-6, NONNEGATIVE)}
    _takes = {r.name: r.options for r in pg.realizations()}[_realization]
    add(
        f"potential({_realization})",
        lambda _realization=_realization, **options: pg.potential(8, _realization, **options).value(X.abs()),
        {name: value for name, value in _options.items() if name in _takes},
        nonfinite=True,
        takes={"clip": ("True", "False")},
    )

# Class state --------------------------------------------------------------------------------------------------------------

_BANK = {
    "num_classes": arg(K, CLASSES),
    "dim": arg(P, DIM),
    "concentration": arg("closed-form", CHOICE),
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

# Scores and losses --------------------------------------------------------------------------------------------------------

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
    "compile": arg(False, FLAG),
    "weight": arg(1.0, FINITE),
    "cap": arg(1e5, POSITIVE),
    "validate": arg(None, VALIDATE),
}


def _used_loss(**options: Any) -> Any:
    made = pg.ProCoLoss(**options)
    return [made, made(UNIT, LABELS, LOGITS), made.scores(UNIT)]


add("ProCoLoss", _used_loss, _LOSS, takes={"compile": ("1",)})
_VIEWS = reals(rows=False)
_FORWARD = {"features": arg(torch.stack([FEATURES, UNIT]), _VIEWS, "labels"), "labels": arg(LABELS, labels(), "features", "target")}
for _options in ({}, {"normalize": False}, {"geometry": "expanded", "score": "before-update"}, {"dtype": torch.float64}):
    add(
        f"ProCoLoss.forward({_options})",
        lambda state_, **arguments: changed(state_, state_, **arguments),
        {**_FORWARD, "logits": arg(LOGITS, reals(minus_inf=True).or_none(), "labels", "target")},
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
        "preset": arg("paper", CHOICE),
        "benchmark": arg("cifar", CHOICE),
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
        "logits": arg(LOGITS, reals(minus_inf=True), "labels", "target"),
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
        lambda state_, logits, target: state_(logits, target),
        {"logits": arg(LOGITS, reals(minus_inf=True), "target"), "target": arg(LABELS, labels(), "logits")},
        state=lambda _class=_class: _class(COUNTS),
    )
    add(
        f"{_class.__name__}.forward(probabilities)",
        lambda state_, logits, target: state_(logits, target),
        {"logits": arg(LOGITS, reals(minus_inf=True), "target"), "target": arg(SHARES, reals(low=0), "logits")},
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
add("VMFClassifier(score)", lambda score: pg.VMFClassifier(P, K, score=score), {"score": arg("marginal", CHOICE)})


def _classifier(score: str) -> pg.VMFClassifier:
    torch.manual_seed(0)
    return pg.VMFClassifier(P, K, score=score)


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

# Distributions ------------------------------------------------------------------------------------------------------------

KAPPA = torch.tensor([0.0, 1.0, 3.0, 10.0, 1e3])


def _of_distribution(distribution: Any) -> list[Any]:
    generator = torch.Generator().manual_seed(0)
    moments = [distribution.mean, distribution.variance, distribution.covariance, distribution.entropy()]
    drawn = distribution.sample((3,), generator=generator)  # in another dtype other numbers are drawn
    return [*moments, drawn.shape, distribution.log_prob(distribution.mean_direction)]


def vmf() -> pg.VonMisesFisher:
    return pg.VonMisesFisher(UNIT, KAPPA)


add(
    "VonMisesFisher",
    lambda **arguments: _of_distribution(pg.VonMisesFisher(**arguments)),
    {
        "mean_direction": arg(UNIT, reals(rows=False), "concentration"),
        "concentration": arg(KAPPA, reals(low=0, scalars=True), "mean_direction"),
        "validate_args": arg(None, VALIDATE),
    },
    takes={
        "mean_direction": ("one more dimension in front", "one row"),
        "concentration": ("one row", "no dimension", "one more dimension in front", "one more dimension at the end"),
    },
)
add(
    "VonMisesFisher.log_prob",
    lambda value: vmf().log_prob(value),
    {"value": arg(normalize(draw(B, P, seed=9), dim=-1), reals(), "mean_direction")},
    takes={"value": ("one more dimension in front", "one row", "no dimension")},
)
for _name in ("sample", "rsample"):
    add(
        f"VonMisesFisher.{_name}",
        lambda _name=_name, **arguments: getattr(vmf(), _name)(**arguments),
        {"sample_shape": arg((2,), SHAPE), "generator": arg(None, GENERATOR.or_none())},
    )
    add(
        f"HypersphericalUniform.{_name}",
        lambda _name=_name, **arguments: getattr(pg.HypersphericalUniform(4), _name)(**arguments),
        {"sample_shape": arg((2,), SHAPE), "generator": arg(None, GENERATOR.or_none())},
    )
add("VonMisesFisher.expand", lambda batch_shape: vmf().expand(batch_shape).mean, {"batch_shape": arg((2, B), SHAPE)})
add(
    "HypersphericalUniform.expand",
    lambda batch_shape: pg.HypersphericalUniform(4).expand(batch_shape).mean,
    {"batch_shape": arg((2, B), SHAPE)},
)
add("VonMisesFisher.cross_entropy", lambda other: vmf().cross_entropy(other), {"other": arg(pg.HypersphericalUniform(P), STRANGE)})
add(
    "VonMisesFisher.fit",
    lambda **arguments: _of_fit(pg.VonMisesFisher.fit(**arguments)),
    {
        "x": arg(UNIT, reals(rows=False), "weights"),
        "weights": arg(torch.tensor([1.0, 2.0, 3.0, 1.0, 2.0]), reals(low=0, ints=True).or_none(), "x"),
        "estimator": arg("mle", CHOICE),
    },
    takes={"x": ("one more dimension in front",), "weights": ("one more dimension in front", "booleans", "float8")},
)


def _of_fit(fitted: Any) -> list[Any]:
    return [fitted.mean_direction, fitted.concentration, *fitted.estimate]


add(
    "HypersphericalUniform",
    lambda **arguments: _uniform(**arguments),
    {
        "dim": arg(P, DIM),
        "dtype": arg(torch.float32, DTYPE.or_none()),
        "device": arg(None, DEVICE.or_none()),
        "validate_args": arg(None, VALIDATE),
    },
)


def _uniform(**arguments: Any) -> list[Any]:
    made = pg.HypersphericalUniform(**arguments)
    return [made.entropy(), made.mean if made.dim < 100 else None]


add(
    "HypersphericalUniform.log_prob",
    lambda value: pg.HypersphericalUniform(P).log_prob(value),
    {"value": arg(UNIT, reals(rows=False))},
    takes={"value": ("one more dimension in front", "no dimension")},
)

# Mixture ------------------------------------------------------------------------------------------------------------------

ROWS = draw(12, P, seed=10).double()
_WEIGHTS = torch.ones(12, dtype=torch.float64)


def mixture(**options: Any) -> Any:
    return pg.VMFMixture(**{"n_components": 2, "random_state": 0, "max_iter": 5, "tol": math.inf, **options})


def quiet(call: Callable[..., Any]) -> Callable[..., Any]:
    """Without the warnings of an EM that is stopped early."""

    def called(**arguments: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return call(**arguments)

    return called


def _of_mixture(model: Any) -> list[Any]:
    return [model.weights_, model.mean_directions_, model.concentrations_, model.log_likelihood_]


_MIXTURE = {
    "n_components": arg(2, integer(1, 12)),
    "e_step": arg("soft", CHOICE),
    "concentration": arg("free", CHOICE),
    "init": arg("k-means++", CHOICE),
    "n_init": arg(1, integer(1, 8)),
    "max_iter": arg(5, integer(1)),
    "tol": arg(1.0, number(lambda v: v >= 0)),
    "min_weight": arg(0.01, number(lambda v: 0 <= v < 0.5)),
    "max_concentration": arg(1e5, number(lambda v: 0 < v <= 1e30).or_none()),
    "normalize": arg(True, FLAG),
    "warm_start": arg(False, FLAG),
    "learning_decay": arg(0.7, number(lambda v: 0.5 < v <= 1)),
    "learning_offset": arg(10.0, NONNEGATIVE),
    "chunk_size": arg(4, integer(1).or_none()),
    "verbose": arg(0, integer(0)),
    "verbose_interval": arg(10, integer(1)),
}
add(
    "VMFMixture",
    quiet(lambda **options: _of_mixture(mixture(**options).fit(ROWS))),
    _MIXTURE,
    elsewhere=("sklearn",),
    takes={"verbose": ("True", "False")},
    unasked=("an integer tensor",),
)
_ROWS = reals(arrays=True, lists=True, ints=True, rows=False)
_TAKES = ("sparse", "sparse by rows", "transposed", "one column less", "booleans")
for _name in ("fit", "partial_fit", "fit_predict"):
    add(
        f"VMFMixture.{_name}",
        quiet(lambda _name=_name, **arguments: _fitted(_name, **arguments)),
        {
            "X": arg(ROWS, _ROWS, "x", "features", "feature", "sample", "n_samples", "Input"),
            "sample_weight": arg(_WEIGHTS, reals(low=0, arrays=True, lists=True, ints=True).or_none(), "Sample weights"),
        },
        elsewhere=("sklearn",),
        rounding=True,
        takes={"X": _TAKES, "sample_weight": ("booleans",)},
    )


def _fitted(name: str, **arguments: Any) -> list[Any]:
    model = mixture()
    getattr(model, name)(**arguments)
    return _of_mixture(model)


FITTED = mixture().fit(ROWS)
for _name in ("predict", "predict_proba", "score_samples", "score", "aic", "bic"):
    add(
        f"VMFMixture.{_name}",
        getattr(FITTED, _name),
        {"X": arg(ROWS, _ROWS, "x", "features", "feature", "sample", "n_samples", "Input")},
        elsewhere=("sklearn",),
        rounding=True,
        takes={"X": ("sparse", "sparse by rows", "booleans", "one row", "one row less")},
    )
add("VMFMixture.sample", FITTED.sample, {"n_samples": arg(2, integer(1, 10**6))})

# Detection ----------------------------------------------------------------------------------------------------------------

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
    add(f"ood.{_name}", getattr(pg.ood, _name), {"logits": arg(LOGITS, ANYWHERE)}, takes={"logits": _ANY_SHAPE | _META}, nonfinite=True)
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

# The auditor --------------------------------------------------------------------------------------------------------------


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
)
add(
    "LogRange",
    lambda low, high: (LogRange(low, high).low, LogRange(low, high).high),
    {"low": arg(1.0, number(lambda v: 0 < v < 2), "LogRange"), "high": arg(2.0, number(lambda v: 1 < v < math.inf), "LogRange")},
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

# Planning and other libraries' signatures -----------------------------------------------------------------------------------

add("distributed.shard", shard, {"num_classes": arg(10, integer(1)), "ranks": arg(3, integer(2)), "rank": arg(1, integer(0, 2))})
add(
    "distributed.plan.Workload",
    lambda **arguments: planning.estimate(planning.Workload(**arguments), planning.Cluster(4), data=2, classes=2).seconds,
    {
        "classes": arg(1000, integer(1)),
        "dim": arg(64, integer(2)),
        "batch": arg(32, integer(1)),
        "views": arg(2, integer(1)),
        "dtype": arg(torch.float32, DTYPE),
        "two_epochs": arg(False, FLAG),
        "prior": arg(False, FLAG),
        "sample": arg(0.5, number(lambda v: 0 < v <= 1)),
        "exchange": arg("auto", CHOICE),
        "inputs": arg("sharded", CHOICE),
        "bounded": arg(True, FLAG),
        "static": arg(False, FLAG),
    },
)
add(
    "distributed.plan.Cluster",
    lambda **arguments: planning.plan_layouts(planning.Workload(1000, 64, 32), planning.Cluster(**arguments)).layouts[0].seconds,
    {
        "ranks": arg(4, integer(1, 32)),
        "bandwidth": arg(1e9, POSITIVE),
        "latency": arg(1e-5, NONNEGATIVE),
        "flops": arg(1e13, POSITIVE),
        "memory": arg(1e12, POSITIVE.or_none()),
        "elementwise": arg(2000.0, NONNEGATIVE),
        "process": arg(10**8, NONNEGATIVE),
    },
)
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
    {"x": arg(LOGITS, reals(minus_inf=True), "logits", "target"), "target": arg(LABELS, labels(), "logits")},
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

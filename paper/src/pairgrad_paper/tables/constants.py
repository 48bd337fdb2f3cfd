"""Single numbers of the paper: the fitted slope, the two-class construction, the captured defect, and where the clip sets in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pairgrad.ground import BallArithmetic, working_precision
from pairgrad_paper.finite_start import FiniteStart
from pairgrad_paper.tables import published
from pairgrad_paper.tables.defect import Defect, clip_onset, finite_start_defect
from pairgrad_paper.tables.fidelity import arfr_ratio_error
from pairgrad_paper.tables.published import DIMENSIONS, Printed
from pairgrad_paper.tables.table import Check, Column, Row, Table, Tick, compared, compared_columns
from pairgrad_paper.tables.two_class import two_class_antisymmetry

_BITS = 256


@dataclass(frozen=True)
class _Constant:
    quantity: str
    ours: float
    printed: Printed | None = None


def fitted_slopes() -> tuple[float, float]:
    """Least-squares slopes of log(largest error of AR/FR): against log nu and against log p."""
    errors = np.log([arfr_ratio_error(dim) for dim in DIMENSIONS])
    dims = np.array(DIMENSIONS, dtype=float)
    by_nu, by_dim = (float(np.polyfit(np.log(against), errors, 1)[0]) for against in (dims / 2 - 1, dims))
    return by_nu, by_dim


def _fit() -> Iterator[_Constant]:
    by_nu, by_dim = fitted_slopes()
    yield _Constant("slope of the largest AR/FR error, log-log, against p", by_dim, published.FITTED_SLOPE)
    yield _Constant("the same against nu", by_nu, None)


def _two_classes() -> Iterator[_Constant]:
    case = FiniteStart(63)
    with working_precision(_BITS):
        ops = BallArithmetic()
        for kappa in published.TWO_CLASS_RAW_RATIO:
            yield _Constant(f"two classes: raw ratio at {kappa}", float(case.ratio(ops, kappa)), published.TWO_CLASS_RAW_RATIO[kappa])
        for kappa in published.TWO_CLASS_DERIVATIVE:
            yield _Constant(f"two classes: F' at {kappa}", float(case.derivative(ops, kappa)), published.TWO_CLASS_DERIVATIVE[kappa])
    yield _Constant("two classes: antisymmetry J12 - J21", two_class_antisymmetry(), published.TWO_CLASS_ANTISYMMETRY)


def _captured() -> Iterator[_Constant]:
    nu, (low, high) = published.CAPTURED_DIMENSION // 2 - 1, published.CAPTURED_RANGE
    largest, smallest = (defect.absolute for defect in _captured_defects())
    yield _Constant(f"captured radii: largest coherence defect (r/nu = {low})", largest, published.CAPTURED_DEFECT)
    yield _Constant("the same, beside the other table", largest, published.COUNTERFACTUAL_DEFECT)
    yield _Constant(f"captured radii: smallest coherence defect (r/nu = {high})", smallest, None)
    with working_precision(_BITS):
        error = float(FiniteStart(nu).ratio_error(BallArithmetic(), low * nu, clipped=True))
    yield _Constant("captured radii: largest |clipped ratio - exact ratio|", error, published.CAPTURED_RATIO_ERROR)


def _captured_defects() -> list[Defect]:
    """At the ends of the captured interval; the clip is active there, and the defect decreases."""
    nu = published.CAPTURED_DIMENSION // 2 - 1
    return [finite_start_defect(nu, 2 * nu, ratio * nu) for ratio in published.CAPTURED_RANGE]


_CLIPPED_ORDERS = (63, 255)  # the orders of the paper's PATT runs, dimensions 128 and 512


def _onsets() -> Iterator[_Constant]:
    for nu in _CLIPPED_ORDERS:
        yield _Constant(f"clip onset x*, nu = {nu}, M = {2 * nu}", clip_onset(nu))


_GROUPS = (_fit, _two_classes, _captured, _onsets)
STEPS = len(_GROUPS)


def constants(tick: Tick = lambda: None) -> Table:
    """All of them; one tick per group."""
    rows: list[Row] = []
    for group in _GROUPS:
        rows.extend(map(_row, group()))
        tick()
    missed = [row for row in rows if row["value_same_digits"] is False]
    stated = [row for row in rows if row["value_same_digits"] is not None]
    return Table(
        name="constants",
        title="Single numbers",
        caption="Numbers that the paper prints outside its large tables, computed anew in ball arithmetic and set beside the printed ones.",
        label="fig:dimension-error, app:curl-proof, app:mechanism-protocol, tab:captured-audit, tab:backward-counterfactual",
        columns=(
            Column("quantity", "quantity"),
            *compared_columns("value", "ours", ".7g", printed="published"),
            Column("label", "in the paper"),
        ),
        rows=tuple(rows),
        checks=(Check(f"equal to the published value in all printed digits: {len(stated) - len(missed)} of {len(stated)}", not missed),),
        notes=_notes(),
    )


def _notes() -> tuple[str, ...]:
    by_nu, by_dim = fitted_slopes()
    largest, smallest = (defect.absolute for defect in _captured_defects())
    low, high = published.CAPTURED_RANGE
    return (
        f"The published slope {published.FITTED_SLOPE.text} agrees with the regression against p ({by_dim:.4f}); against nu, the variable of the certificate "
        f"nu^-3, the same errors give {by_nu:.4f}.",
        f"Captured defect: over the interval r/nu in [{low}, {high}], which the paper prints for one captured state "
        f"(app:mechanism-protocol), it falls from {largest:.4e} to {smallest:.4e}. The paper's {published.CAPTURED_DEFECT.text} "
        f"({published.CAPTURED_DEFECT.label}) is a maximum over six views and its {published.COUNTERFACTUAL_DEFECT.text} "
        f"({published.COUNTERFACTUAL_DEFECT.label}) one over each of two; their radii are not printed, so agreement is to be expected to "
        "about two digits. The other two numbers of the first table are of scores: table captured-audit sets states from training beside "
        "them.",
        "The clip onsets, where the raw ratio reaches 1, are not printed in the paper, which shows that there is one.",
    )


def _row(constant: _Constant) -> Row:
    if constant.printed is None:
        blank = {"value_published": None, "value_ratio": None, "value_same_digits": None}
        return {"quantity": constant.quantity, "value": constant.ours, **blank, "label": ""}
    return {"quantity": constant.quantity, **compared("value", constant.ours, constant.printed), "label": constant.printed.label}

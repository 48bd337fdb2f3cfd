"""The two-class construction (app:curl-proof): how far the supplied field is from having a potential, by concentration ratio and by strength."""

from __future__ import annotations

import math

import torch

import pairgrad as pg
from pairgrad.ground import BallArithmetic, working_precision
from pairgrad.losses import UpdateField, update_field
from pairgrad_paper.finite_start import FiniteStart
from pairgrad_paper.tables import published
from pairgrad_paper.tables.table import Check, Column, Row, Table, Tick, number

DIM = 128
CONCENTRATION = 4032.0  # of the first class
RATIOS = tuple(2.0 ** (k / 7) for k in range(-14, 15))  # of the second to the first: 1/4 to 4, with 1 and 2
STRENGTHS = tuple(k / 4 for k in range(9))  # 0 to 2
MATCH = 1e-9  # relative: of the differentiated field to the prediction, and of that to ball arithmetic
_ROUNDING = 1e-14  # an antisymmetry or a gap that is zero in exact arithmetic stays below this
_RELATIVE = 1e-12  # and the same over an antisymmetry of some 1e-3, or of 1e-4 near equal concentrations
_BITS = 256
_UNIT = 2.0**-53


def two_class_antisymmetry(concentrations: tuple[float, float] = (4032, 8064), nu: int = 63) -> float:
    """J_12 - J_21 of the two-class construction at the origin: (F'(k1) g(k2) - g(k1) F'(k2)) / 4, temperature 1; in balls."""
    case = FiniteStart(nu)
    with working_precision(_BITS):
        ops = BallArithmetic()
        (f1, f2), (g1, g2) = (
            [of(k) for k in concentrations] for of in (lambda k: case.derivative(ops, k), lambda k: case.ratio(ops, k, clipped=True))
        )
        return float((f1 * g2 - g1 * f2) / 4)


def construction(ratio: float = 2.0) -> UpdateField:
    """The field of `"original"` at the origin: two classes along the first two axes, temperature 1, float64."""
    state = pg.ClassState(torch.eye(2, DIM, dtype=torch.float64), CONCENTRATION * torch.tensor([1.0, ratio], dtype=torch.float64))
    return update_field(torch.zeros(1, DIM, dtype=torch.float64), torch.tensor([0]), state, temperature=1.0)


def axes() -> tuple[torch.Tensor, torch.Tensor]:
    """The two orthogonal directions that the classes have."""
    first, second = torch.eye(2, DIM, dtype=torch.float64)
    return first, second


def rounding(field: UpdateField) -> float:
    """What J_12 - J_21 may differ from 0 by rounding: two products of gradients of scores, below 1 / 2 each, with some 16 roundings."""
    return 16 * _UNIT * float(field.probabilities.max())


def two_class(tick: Tick = lambda: None) -> Table:
    """J_12 - J_21 at 29 ratios of the concentrations: predicted, differentiated, in balls, and of the consistent field; one tick per ratio."""
    rows: list[Row] = []
    tolerance = 0.0
    for ratio in RATIOS:
        field = construction(ratio)
        concentration = CONCENTRATION * ratio
        raw = pg.potential(DIM, "original", clip=False).slope(torch.tensor(concentration, dtype=torch.float64))
        predicted, differentiated = (of(*axes()).item() for of in (field.antisymmetry_along, field.differentiated_along))
        exact = two_class_antisymmetry((CONCENTRATION, concentration), DIM // 2 - 1)
        rows.append(
            {
                "ratio": ratio,
                "concentration": concentration,
                "raw_ratio": raw.item(),
                "supplied": field.slope[0, 1].item(),
                "derivative": field.derivative[0, 1].item(),
                "predicted": predicted,
                "differentiated": differentiated,
                "difference": None if ratio == 1 else abs(differentiated / predicted - 1),
                "exact": exact,
                "prediction_error": None if ratio == 1 else abs(predicted / exact - 1),
                "consistent": field.with_strength(0).differentiated_along(*axes()).item(),
                "loss": field.loss.item(),
            }
        )
        tolerance = max(tolerance, rounding(field))
        tick()
    table = tuple(rows)
    return Table(
        name="two-class",
        title="Two classes: the antisymmetric Jacobian by ratio of the concentrations",
        caption=(
            f"J_12 - J_21 of the field that the finite recurrence supplies at f = 0 (dim {DIM}, temperature 1, start 2 nu, clipped at 1), "
            f"for a first concentration of {CONCENTRATION:.0f} and a second one from a quarter to four times that. Predicted: from the "
            "two mean vectors (eq. ce-curl-obstruction); differentiated: by forward-mode differentiation of the field; exact: the closed "
            "form of the construction in ball arithmetic; consistent: the field that differentiates its own forward, differentiated "
            "likewise."
        ),
        label="fig:mechanism-controls, app:curl-proof",
        columns=(
            Column("ratio", "kappa_2 / kappa_1", ".5g"),
            Column("concentration", "kappa_2", ".6g"),
            Column("raw_ratio", "raw ratio", ".6g"),
            Column("supplied", "supplied g", ".6f"),
            Column("derivative", "F'", ".6f"),
            Column("predicted", "predicted", ".6e", floor=_ROUNDING),
            Column("differentiated", "differentiated", ".6e", floor=_ROUNDING),
            Column("difference", "relative difference", ".1e", floor=_RELATIVE),
            Column("exact", "exact", ".6e", floor=_ROUNDING),
            Column("prediction_error", "relative error of the prediction", ".1e", floor=_RELATIVE),
            Column("consistent", "consistent", ".1e", floor=_ROUNDING),
            Column("loss", "loss", ".6f", shown=False),
        ),
        rows=table,
        checks=(
            Check(
                f"differentiated and predicted agree to {MATCH:g}, relative, wherever the concentrations differ",
                _all_below(table, "difference", MATCH),
            ),
            Check(
                f"predicted and exact agree to {MATCH:g}, relative, wherever the concentrations differ",
                _all_below(table, "prediction_error", MATCH),
            ),
            Check(
                "zero to rounding at equal concentrations, predicted and differentiated",
                all(
                    abs(number(row, key)) <= tolerance
                    for row in table
                    if row["ratio"] == 1
                    for key in ("predicted", "differentiated", "exact")
                ),
            ),
            Check(
                "the consistent field: zero to rounding at every ratio", all(abs(number(row, "consistent")) <= tolerance for row in table)
            ),
            Check("loss log 2 at every ratio", all(abs(number(row, "loss") - math.log(2)) <= 4 * _UNIT for row in table)),
            *_published(table),
        ),
        notes=(
            "Where both classes are clipped the supplied slopes are 1 and the sign is that of F'(kappa_1) - F'(kappa_2); below the onset "
            "of the clip the second class is nearly coherent, and the defect of the first alone decides. Zero at equal concentrations is "
            "a statement about that point, not about its neighbourhood.",
        ),
    )


def _published(table: tuple[Row, ...]) -> tuple[Check, ...]:
    """The printed numbers of the construction, at the ratios 1 and 2."""
    at = {number(row, "ratio"): row for row in table}
    checks = []
    for kappa, ratio in ((4032, 1.0), (8064, 2.0)):
        for key, name, printed in (
            ("raw_ratio", "raw ratio", published.TWO_CLASS_RAW_RATIO[kappa]),
            ("derivative", "F'", published.TWO_CLASS_DERIVATIVE[kappa]),
        ):
            checks.append(Check(f"{name} at kappa = {kappa}: the published {printed.text}", printed.same_digits(number(at[ratio], key))))
    printed = published.TWO_CLASS_ANTISYMMETRY
    keys = ("predicted", "differentiated", "exact")
    return (*checks, *(Check(f"{key} at ratio 2: the published {printed.text}", printed.same_digits(number(at[2.0], key))) for key in keys))


def mismatch_strength(tick: Tick = lambda: None) -> Table:
    """Gradient gap and antisymmetry at nine strengths of the mismatch, with the line through 0 and the value at 1; one tick per strength."""
    supplied = construction()
    features = torch.zeros(1, DIM, dtype=torch.float64)
    origin = supplied.with_strength(0).supplied_at(features)
    gap_at_one = torch.linalg.vector_norm(supplied.gap).item()
    antisymmetry_at_one = supplied.antisymmetry_along(*axes()).item()
    rows: list[Row] = []
    for strength in STRENGTHS:
        field = supplied.with_strength(strength)
        moved = field.supplied_at(features) - origin  # of two fields computed on their own
        rows.append(
            {
                "strength": strength,
                "gap": torch.linalg.vector_norm(moved).item(),
                "gap_line": strength * gap_at_one,
                "antisymmetry": field.differentiated_along(*axes()).item(),
                "antisymmetry_line": strength * antisymmetry_at_one,
                "departure": torch.linalg.vector_norm(moved - strength * supplied.gap).item(),
                "loss": field.loss.item(),
            }
        )
        tick()
    table, tolerance = tuple(rows), rounding(supplied)
    return Table(
        name="mismatch-strength",
        title="Two classes: gradient gap and antisymmetry grow with the strength of the mismatch",
        caption=(
            "The two-class construction with the slope F' + lambda (g - F'): lambda = 0 differentiates the forward, lambda = 1 is what "
            "is supplied. Gap: length of G_lambda - G_0, each field computed on its own; antisymmetry: J_12 - J_21 by differentiating "
            "G_lambda; predicted: lambda times the value that the mean vectors give at 1."
        ),
        label="fig:mechanism-controls, app:curl-proof",
        columns=(
            Column("strength", "lambda", ".2f"),
            Column("gap", "gradient gap", ".6e"),
            Column("gap_line", "predicted gap", ".6e"),
            Column("antisymmetry", "antisymmetry", ".6e", floor=_ROUNDING),
            Column("antisymmetry_line", "predicted antisymmetry", ".6e", floor=_ROUNDING),
            Column("departure", "departure of the gap from the line", ".1e", floor=_ROUNDING),
            Column("loss", "loss", ".6f"),
        ),
        rows=table,
        checks=(
            Check("G_lambda - G_0 is lambda (G_1 - G_0) to rounding", all(number(row, "departure") <= tolerance for row in table)),
            Check(
                "the antisymmetry is lambda times that at 1 to rounding",
                all(abs(number(row, "antisymmetry") - number(row, "antisymmetry_line")) <= tolerance for row in table),
            ),
            Check("loss log 2 at every strength", all(abs(number(row, "loss") - math.log(2)) <= 4 * _UNIT for row in table)),
        ),
    )


def _all_below(rows: tuple[Row, ...], key: str, bound: float) -> bool:
    cells = [number(row, key) for row in rows if row[key] is not None]
    return len(cells) == len(rows) - 1 and max(cells) <= bound

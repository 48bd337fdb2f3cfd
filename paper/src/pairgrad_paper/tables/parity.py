"""Finite-recurrence asymptotics by parity of the order: Table parity-counterfactual."""

from __future__ import annotations

from pairgrad.ground import BallArithmetic, working_precision
from pairgrad_paper.finite_start import FiniteStart
from pairgrad_paper.tables import published
from pairgrad_paper.tables.table import Check, Column, Row, Table, Tick, compared, compared_columns, same_digits

_ORDERS = (63, 64, 255, 256)
_AT = 10**9
_BITS = 400  # 120 digits; the paper has 100


def parity(tick: Tick = lambda: None) -> Table:
    """Raw ratio, scaled ratio and its limit at x = 1e9; one row and one tick per order."""
    rows: list[Row] = []
    for nu in _ORDERS:
        case = FiniteStart(nu)
        with working_precision(_BITS):
            ops = BallArithmetic()
            raw, limit = case.ratio(ops, _AT), ops.constant(case.ratio_coefficient)
            above = raw > case.exact_ratio(ops, _AT)
            scaled = raw / _AT if case.sign > 0 else raw * _AT
            error = abs(scaled / limit - 1)
        rows.append(
            {
                "nu": nu,
                "dim": 2 * nu + 2,
                **compared("raw", float(raw), published.PARITY_RAW[nu]),
                "sign": "+" if above else "-",
                "sign_published": published.PARITY_SIGN[nu],
                "phase": "linear" if case.sign > 0 else "inverse",
                "phase_published": published.PARITY_PHASE[nu],
                **compared("scaled", float(scaled), published.PARITY_SCALED[nu]),
                **compared("limit", float(limit), published.PARITY_LIMIT[nu]),
                **compared("relative", float(error), published.PARITY_ERROR[nu], error="_error"),
            }
        )
        tick()
    table = tuple(rows)
    return Table(
        name="parity",
        title="The raw ratio at x = 1e9: odd orders grow, even orders vanish",
        caption=(
            f"The raw ratio of the recurrence from M = 2 nu at x = 1e9, in balls of {_BITS} bits (120 digits). Scaled: raw / x for odd nu, x raw for even nu; "
            "limit: its value at infinity, an exact fraction; sign: of raw - R."
        ),
        label=published.PARITY_RAW.label,
        columns=(
            Column("nu", "nu", "d"),
            Column("dim", "dim", "d"),
            *compared_columns("raw", "raw ratio", ".3e"),
            Column("sign", "sign"),
            Column("sign_published", "sign, published", shown=False),
            Column("phase", "phase"),
            Column("phase_published", "phase, published", shown=False),
            *compared_columns("scaled", "scaled", ".3e"),
            *compared_columns("limit", "limit", ".3e"),
            *compared_columns("relative", "relative error", ".1e", error="_error"),
        ),
        rows=table,
        checks=(
            *(same_digits(name, table, key) for name, key in _COMPARED),
            Check(
                "signs and phases are the published ones", all(row[k] == row[f"{k}_published"] for row in table for k in ("sign", "phase"))
            ),
        ),
    )


_COMPARED = (("raw ratio", "raw"), ("scaled", "scaled"), ("limit", "limit"), ("relative error", "relative"))

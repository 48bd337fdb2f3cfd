"""Figure dimension-error: the error of AR/FR against nu, below the certificate and below the bound proven here."""

from __future__ import annotations

from typing import Any

from pairgrad_paper.figures.style import BLUE, GREEN, VERMILION, open_axes
from pairgrad_paper.tables import published
from pairgrad_paper.tables.constants import fitted_slopes
from pairgrad_paper.tables.fidelity import POINTS, arfr_ratio_error, certificate, proven_bound
from pairgrad_paper.tables.published import DIMENSIONS
from pairgrad_paper.tables.table import Check, Column, Row, Table, Tick, compared, compared_columns, same_digits


def data(tick: Tick = lambda: None) -> Table:
    rows: list[Row] = []
    for dim in DIMENSIONS:
        rows.append(
            {
                "dim": dim,
                "nu": dim // 2 - 1,
                **compared("arfr", arfr_ratio_error(dim), published.RATIO_ARFR[dim], error="_error"),
                "certificate": certificate(dim),
                "proven": proven_bound(dim),
            }
        )
        tick()
    table = tuple(rows)
    by_nu, by_dim = fitted_slopes()
    return Table(
        name="cubic-decay",
        title="The error of AR/FR decays like the cube of the order",
        caption=(
            f"Largest error of the ratio over {POINTS} concentrations per dimension (p = {DIMENSIONS[0]} to {DIMENSIONS[-1]}), in balls; the values printed in "
            "the paper as hollow circles; the paper's certificate nu^-3, which holds on the whole axis; and the bound proven here, `ratio_bound()`. "
            "Right: the same times nu^3; the published values have three digits, which is what their circles scatter by. "
            f"Least-squares slopes in log-log: {by_nu:.3f} against nu, {by_dim:.3f} against p = 2 nu + 2; the paper prints {published.FITTED_SLOPE.text}."
        ),
        label=published.FITTED_SLOPE.label,
        columns=(
            Column("dim", "dim", "d"),
            Column("nu", "nu", "d"),
            *compared_columns("arfr", "AR/FR", ".2e", error="_error"),
            Column("certificate", "certificate nu^-3", ".2e"),
            Column("proven", "proven here", ".2e", upwards=True),
        ),
        rows=table,
        checks=(
            same_digits("AR/FR", table, "arfr"),
            Check(
                f"slope against p: {by_dim:.4f}, equal to the published {published.FITTED_SLOPE.text}",
                published.FITTED_SLOPE.same_digits(by_dim),
            ),
        ),
    )


def draw(plt: Any, table: Table) -> Any:
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.0, 4.4))
    nu = table.numbers("nu")
    left.loglog(nu, table.numbers("certificate"), color=VERMILION, ls="--", lw=1.8, label=r"certificate $\nu^{-3}$, all $x \geq 0$")
    left.set(ylabel=r"$\max\,|A_R(x) - R(x)|$", title="AR/FR: cubic decay of the ratio error")
    right.set(ylabel=r"$\nu^3\,\max\,|A_R(x) - R(x)|$", title=r"The same, times $\nu^3$; the certificate is at 1")
    for axes, scale in ((left, [1.0 for _ in nu]), (right, [n**3 for n in nu])):
        for key, style in _CURVES.items():
            axes.plot(nu, [s * value for s, value in zip(scale, table.numbers(key), strict=True)], **style)
        axes.set_xscale("log")
        axes.set_xticks(nu, [f"{n:.0f}" for n in nu])
        axes.minorticks_off()
        axes.set_xlabel(r"Bessel order $\nu = p/2 - 1$")
    by_nu, by_dim = fitted_slopes()
    slopes = f"fitted slope of the error:\n{by_nu:.3f} against $\\nu$\n{by_dim:.3f} against $p = 2\\nu + 2$\n(published: {published.FITTED_SLOPE.text})"
    left.text(0.03, 0.05, slopes.replace("-", "\u2212"), transform=left.transAxes, fontsize=9)
    left.legend(loc="upper right")
    open_axes(left, right)
    figure.tight_layout()
    return figure


_CURVES: dict[str, dict[str, Any]] = {
    "proven": {"color": GREEN, "ls": "-.", "lw": 1.8, "marker": "^", "ms": 6, "label": r"proven here, all $x \geq 0$"},
    "arfr_error": {"color": BLUE, "ls": "-", "lw": 1.4, "marker": ".", "ms": 7, "label": "AR/FR, largest error measured"},
    "arfr_published": {"ls": "none", "marker": "o", "ms": 11, "mfc": "none", "mec": BLUE, "mew": 1.2, "label": "the same, as published"},
}

"""The figures: what is drawn, and that it is written."""

from __future__ import annotations

import csv
import itertools
import math
from pathlib import Path

import mpmath
import numpy
import pytest

from pairgrad_paper.catalogue import FIGURES, TABLES, FigureRecipe, UnknownName, chosen
from pairgrad_paper.figures import SMALLEST, WIDEST, same_on_every_cpu
from pairgrad_paper.records import Records
from pairgrad_paper.tables import Table

from .finite import finite_start, relative_defect
from .made import counted, read
from .words import inches, points


@pytest.fixture(scope="module")
def depth_map() -> Table:
    return counted("concentration-depth")


@pytest.fixture(scope="module")
def defects() -> Table:
    return counted("clipped-defect")


@pytest.fixture(scope="module")
def plane() -> Table:
    return counted("theoretical-field")


@pytest.fixture(scope="module")
def controls() -> Table:
    return counted("mechanism-controls")


def test_map_has_every_condition(depth_map: Table) -> None:
    conditions = {(row["dim"], row["start_over_nu"], row["x_over_nu"]) for row in depth_map.rows}
    assert len(depth_map.rows) == len(conditions) == 260
    assert {c[0] for c in conditions} == {128, 256, 512, 1024}
    assert {c[1] for c in conditions} == {2, 3, 4, 6, 8}
    assert {c[2] for c in conditions} == {0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024}


@pytest.mark.parametrize(
    ("dim", "depth", "concentration", "digits"),
    [
        (128, 2, 0.25, 400),
        (128, 3, 1024, 60),
        (256, 2, 64, 60),
        (512, 2, 512, 60),
        (512, 4, 128, 60),
        (1024, 8, 1024, 60),
        (1024, 2, 16, 90),
    ],
)
def test_map_against_mpmath(depth_map: Table, dim: int, depth: int, concentration: float, digits: int) -> None:
    (row,) = [r for r in depth_map.rows if (r["dim"], r["start_over_nu"], r["x_over_nu"]) == (dim, depth, concentration)]
    nu = dim // 2 - 1
    wanted = float(relative_defect(nu, depth * nu, concentration * nu, digits))
    assert row["log10_relative_defect"] == pytest.approx(wanted, abs=1e-12 * max(1, abs(wanted)))
    assert row["drawn"] == pytest.approx(max(wanted, -16), abs=1e-12)


def test_map_deeper_is_not_always_better(depth_map: Table) -> None:
    """What the figure is for: at p = 128 and x = 1024 nu, depth 3 nu is worse than 2 nu."""
    at = {row["start_over_nu"]: row["log10_relative_defect"] for row in depth_map.rows if row["dim"] == 128 and row["x_over_nu"] == 1024}
    assert float(str(at[3])) > float(str(at[2])) + 2


def test_clipped_defect_conditions(defects: Table) -> None:
    assert len(defects.rows) == 130
    for nu, onset in ((63, 2717.9), (255, 34906.3)):
        rows = [row for row in defects.rows if row["nu"] == nu]
        assert len(rows) == 65
        ratios = [float(str(row["x_over_nu"])) for row in rows]
        assert ratios[0] == pytest.approx(0.25, rel=1e-12)
        assert ratios[-1] == pytest.approx(1e5, rel=1e-12)
        steps = [b / a for a, b in itertools.pairwise(ratios)]
        assert max(steps) == pytest.approx(min(steps), rel=1e-9)
        for row in rows:
            x, raw = float(str(row["x"])), float(str(row["raw_ratio"]))
            assert row["clipped"] is (raw > 1) is (x > onset)
            assert float(str(row["asymptote"])) == pytest.approx((nu + 1.5) / x, rel=1e-14)
        last = rows[-1]
        # the next term of the asymptote is smaller by nu / x = 1e-5, times a constant of size 1
        assert float(str(last["defect"])) == pytest.approx(float(str(last["asymptote"])), rel=2e-5)
        assert float(str(rows[0]["log10_defect"])) < -100
        biggest = max(rows, key=lambda row: float(str(row["defect"])))
        assert 0.8 < float(str(biggest["x"])) / onset < 1.3


def test_cubic_decay_data() -> None:
    table = counted("cubic-decay")
    assert table.column("nu") == [31, 63, 127, 255, 511, 1023, 2047]
    assert [f"{v:.2e}" for v in table.numbers("arfr_error")] == table.column("arfr_published")
    assert all(check.held for check in table.checks)
    assert "-2.996 against nu" in table.caption
    assert "-3.016 against p" in table.caption


def test_value_and_slope_data() -> None:
    table = counted("value-and-slope")
    rows = {float(str(row["x_over_nu"])): row for row in table.rows}
    assert {16.0, 48.0, 80.0} <= set(rows)
    assert rows[16.0]["supplied_complement"] == pytest.approx(rows[16.0]["own_complement"], rel=1e-3)
    assert rows[80.0]["supplied_complement"] == 0
    with mpmath.mp.workdps(40):
        x = mpmath.mpf(80 * 63)
        finite, exact = finite_start(63, 126, x), mpmath.besseli(64, x) / mpmath.besseli(63, x)
        own, complement, value = float(1 - finite.derivative), float(1 - exact), float(finite.value - x)
    assert rows[80.0]["own_complement"] == pytest.approx(own, rel=1e-12)
    assert rows[80.0]["exact_complement"] == pytest.approx(complement, rel=1e-14)
    assert rows[80.0]["value_minus_x"] == pytest.approx(value, rel=1e-12)
    assert "43.1" in table.caption


def test_theoretical_field_has_one_surface_and_two_fields(plane: Table) -> None:
    """At the origin, where the loss is least, from I_1 / I_0 - 2 x / (8 + x^2) and x / 4; elsewhere the checks of the table."""
    assert all(check.held for check in plane.checks)
    assert len(plane.checks) == 3
    (origin,) = [row for row in plane.rows if row["part"] == "grid" and row["f1"] == row["f2"] == 0]
    angles, concentrations, shares = (30, 75, 130), (13.5, 6.5, 2.25), (0.25, 0.5, 0.25)
    v, w = [0.0, 0.0], [0.0, 0.0]
    for angle, kappa, share in zip(angles, concentrations, shares, strict=True):
        own = float(mpmath.besseli(1, kappa) / mpmath.besseli(0, kappa)) - 2 * kappa / (8 + kappa**2)
        for k, axis in enumerate((math.cos(math.radians(angle)), math.sin(math.radians(angle)))):
            v[k] += share * own * axis
            w[k] += share * kappa / 4 * axis
    assert origin["supplied_rotation"] == pytest.approx(v[1] * w[0] - w[1] * v[0], rel=1e-13)
    assert origin["loss"] == pytest.approx(-sum(p * math.log(p) for p in shares), rel=1e-14)
    for key in ("consistent_1", "consistent_2", "supplied_1", "supplied_2"):
        assert abs(float(str(origin[key]))) < 1e-15
    assert min(plane.numbers("loss")) == origin["loss"]


def test_theoretical_field_is_the_gradient_on_the_left_only(plane: Table) -> None:
    """Central differences of the loss over the grid: second order in the spacing, 0.16, and a third derivative below 1."""
    grid = {(row["f1"], row["f2"]): row for row in plane.rows if row["part"] == "grid"}
    side = sorted({float(str(f1)) for f1, _ in grid})
    apart = {"consistent": 0.0, "supplied": 0.0}
    for below, at, above in zip(side, side[1:], side[2:], strict=False):
        difference = (float(str(grid[above, at]["loss"])) - float(str(grid[below, at]["loss"]))) / (above - below)
        for name in apart:
            apart[name] = max(apart[name], abs(float(str(grid[at, at][f"{name}_1"])) - difference))
    assert apart["consistent"] < 0.16**2 / 6 < 0.1 < apart["supplied"]


def test_work_around_the_circle(plane: Table) -> None:
    """By the trapezoidal rule in the angle, which is exact to rounding for a smooth periodic function."""
    loop = [{key: float(str(cell)) for key, cell in row.items() if isinstance(cell, float)} for row in plane.rows if row["part"] == "loop"]
    work = {
        name: 2 * math.pi / (len(loop) - 1) * sum(row[f"{name}_2"] * row["f1"] - row[f"{name}_1"] * row["f2"] for row in loop[1:])
        for name in ("consistent", "supplied")
    }
    assert abs(work["consistent"]) < 1e-14
    assert work["supplied"] == pytest.approx(1.150, abs=5e-4)
    assert "1.150 on the right" in plane.caption


def test_controls_are_the_two_tables_and_a_curve(controls: Table) -> None:
    parts = {part: [row for row in controls.rows if row["part"] == part] for part in ("ratio", "curve", "strength")}
    assert [len(rows) for rows in parts.values()] == [29, 281, 9]
    assert all(check.held for check in controls.checks)
    assert len(controls.checks) == 8
    curve = {f"{float(str(row['ratio'])):.9g}": float(str(row["predicted"])) for row in parts["curve"]}
    for row in parts["ratio"]:  # every tenth point of the curve is a state
        assert curve[f"{float(str(row['ratio'])):.9g}"] == pytest.approx(float(str(row["predicted"])), rel=1e-9, abs=1e-12)
    assert {row["consistent"] is None for row in parts["curve"]} == {True}


QUICK = ("theoretical-field", "mechanism-controls")  # the pictures of the others are drawn by test_evidence_pages
COMPUTED = [name for name, recipe in FIGURES.items() if isinstance(recipe, FigureRecipe)]


@pytest.mark.parametrize("name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in COMPUTED])
def test_files(name: str, tmp_path: Path) -> None:
    table = counted(name)
    paths = FIGURES[name].save(table, tmp_path)
    assert [path.name for path in paths] == [f"{name}.{kind}" for kind in ("svg", "png", "pdf", "csv", "md")]
    svg, png, pdf, data, page = paths
    assert "<svg" in svg.read_text()
    assert table.title in svg.read_text()
    assert png.read_bytes().startswith(b"\x89PNG")
    assert len(png.read_bytes()) > 10_000  # not an empty frame
    assert pdf.read_bytes().startswith(b"%PDF")
    assert b"CreationDate" not in pdf.read_bytes()
    rows = list(csv.DictReader(data.read_text().splitlines()))
    assert len(rows) == len(table.rows)
    for stored, row in zip(rows, table.rows, strict=True):
        assert all(float(stored[key]) == cell for key, cell in row.items() if isinstance(cell, float) and math.isfinite(cell))
    assert f"]({name}.png)" in page.read_text()
    assert inches(svg.read_text()) <= WIDEST
    assert points(svg.read_text())[0] >= SMALLEST


def test_equal_figures_are_equal_files_and_settings_stay(tmp_path: Path) -> None:
    import matplotlib.pyplot as plt

    table = read("complexity-certificate", Records())
    before = dict(plt.rcParams)
    first, second = (FIGURES["complexity-certificate"].save(table, tmp_path / name) for name in "ab")
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert dict(plt.rcParams) == before
    assert plt.get_fignums() == []


def test_places_on_logarithmic_axes_have_no_last_bits(tmp_path: Path) -> None:
    """A unit in the last place of a logarithm, by which CPUs differ, moves nothing."""
    from matplotlib.scale import LogTransform

    plain = LogTransform.transform_non_affine
    values = numpy.array([0.3, 2.0, 7.0, 1e9 / 3])
    with same_on_every_cpu():
        placed = numpy.asarray(LogTransform(10).transform_non_affine(values))
        assert LogTransform(10).transform_non_affine(numpy.array([1e-7, 1.0, 1e5])).tolist() == [-7, 0, 5]
    assert (placed * 2**20 == numpy.round(placed * 2**20)).all()
    assert numpy.abs(placed - numpy.log10(values)).max() <= 2.0**-21
    assert LogTransform.transform_non_affine is plain


def test_choosing() -> None:
    assert list(chosen(TABLES, None, "table")) == list(TABLES)
    assert list(chosen(TABLES, [], "table")) == list(TABLES)
    assert list(chosen(TABLES, ["parity", "ratio-fidelity"], "table")) == ["ratio-fidelity", "parity"]
    with pytest.raises(UnknownName, match=r"no table is called 'x', 'y'; there are ratio-fidelity, .*complexity"):
        chosen(TABLES, ["x", "parity", "y"], "table")


def test_tables_and_figures_can_share_a_directory() -> None:
    """No file of a table has the name of a file of a figure."""
    assert not set(TABLES) & set(FIGURES)

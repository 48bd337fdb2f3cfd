"""The figures of visited states: what is drawn, from which lines of a record."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pairgrad_paper.catalogue import FIGURES
from pairgrad_paper.figures import SETTINGS, SMALLEST, WIDEST, pyplot
from pairgrad_paper.records import Records
from pairgrad_paper.tables import NotRun, Table, to_csv
from paper.tests.made import made
from paper.tests.records_fakes import changed, everything, fork, frozen, states, stored
from paper.tests.words import inches, points

VERMILION, PURPLE = "#D55E00", "#CC79A7"  # of the Okabe-Ito palette
NAMES = ("patt-trajectory", "patt-measured-field", "regime-scaling", "proco-state-distribution")


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Records:
    return everything(tmp_path_factory.mktemp("records"))


@pytest.fixture(scope="module")
def tables(records: Records) -> dict[str, Table]:
    return {name: FIGURES[name].table(lambda: None, records) for name in NAMES}


@pytest.fixture
def plt() -> Iterator[Any]:
    found = pyplot()
    with found.rc_context(SETTINGS):
        yield found
        found.close("all")


@pytest.mark.parametrize("name", NAMES)
def test_checks_hold_and_the_caption_says_what_stands_in(name: str, tables: dict[str, Table]) -> None:
    table = tables[name]
    assert table.name == name
    assert all(check.held for check in table.checks), table.checks
    assert "the paper" in table.caption.lower()
    assert "Scaled down: it stands in for the paper's" in table.notes[0]


@pytest.mark.parametrize("name", NAMES)
def test_without_a_record(name: str, tmp_path: Path) -> None:
    with pytest.raises(NotRun, match=r"pairgrad (fork|train)"):
        FIGURES[name].table(lambda: None, Records(tmp_path))


def drawn(plt: Any, table: Table) -> Any:
    return FIGURES[table.name].draw(plt, table)


def test_trajectory_draws_both_starts(plt: Any, tables: dict[str, Table]) -> None:
    table = tables["patt-trajectory"]
    figure = drawn(plt, table)
    titles = [axes.get_title() for axes in figure.axes]
    assert [title.split(":")[0] for title in titles] == ["Random start"] * 2 + ["Trained start"] * 2
    assert all("equal in every bit at 43 of 43" in title for title in titles[::2])
    gaps, distances = figure.axes[:2]
    feature = next(line for line in gaps.lines if line.get_label() == "gap, features")
    assert list(feature.get_ydata()) == [line["feature_gap"] for line in fork("random").of("probe")]
    assert {axes.get_yscale() for axes in figure.axes} == {"log"}
    thick = [line for line in distances.lines if line.get_linewidth() == 2.2 and line.get_color() == VERMILION]
    wanted = [line for line in fork("random").of("distance") if line["branch"] == "consistent" and line["step"] > 0]
    assert list(thick[0].get_xdata()) == [line["step"] for line in wanted]
    assert list(thick[0].get_ydata()) == [line["parameter"] for line in wanted]
    assert list(thick[1].get_ydata()) == [line["feature"] for line in wanted]
    legend = [text.get_text() for text in figure.axes[-1].get_legend().get_texts()]
    assert legend == ["paired", "arfr", "consistent", "control: arfr from consistent", "parameters", "features"]


def test_trajectory_of_several_seeds_draws_means_and_bands(plt: Any, tmp_path: Path) -> None:
    forks = [fork("random", seed=seed) for seed in (1, 2, 3)]
    table = FIGURES["patt-trajectory"].table(lambda: None, stored(tmp_path, *forks))
    figure = drawn(plt, table)
    feature = next(line for line in figure.axes[0].lines if line.get_label() == "gap, features")
    gaps = list(zip(*([line["feature_gap"] for line in each.of("probe")] for each in forks), strict=True))
    assert list(feature.get_ydata()) == pytest.approx([sum(each) / 3 for each in gaps])
    band = figure.axes[0].collections[0].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == pytest.approx((min(map(min, gaps)), max(map(max, gaps))))
    assert "equal in every bit at 129 of 129" in figure.axes[0].get_title()
    assert "bands from the smallest to the largest" in table.caption


def test_trajectory_draws_curves_that_coincide_once(plt: Any, tables: dict[str, Table]) -> None:
    table = tables["patt-trajectory"]
    arfr = {(row["start"], row["step"]): row for row in table.rows if row["branch"] == "arfr"}
    same = tuple({**arfr[row["start"], row["step"]], "branch": "paired"} if row["branch"] == "paired" else row for row in table.rows)
    figure = drawn(plt, replace(table, rows=same))
    legend = [text.get_text() for text in figure.axes[-1].get_legend().get_texts()]
    assert legend == ["arfr = paired (one curve)", "consistent", "control: arfr from consistent", "parameters", "features"]
    assert not [line for line in figure.axes[1].lines if line.get_color() == PURPLE]


def test_trajectory_of_one_start_and_a_probe_that_differs(plt: Any, tmp_path: Path) -> None:
    table = FIGURES["patt-trajectory"].table(lambda: None, stored(tmp_path, changed(fork("trained"), "probe", 3, scores_equal=False)))
    figure = drawn(plt, table)
    assert [axes.get_title().split("\n")[0] for axes in figure.axes] == [
        "Trained start: gradient gaps at shared states",
        "Trained start: distance from the original branch",
    ]
    assert "42 of 43" in figure.axes[0].get_title()
    assert [check.held for check in table.checks] == [True, False, True, True]


def test_field_draws_sixty_four_arrows_on_one_scale(plt: Any, tables: dict[str, Table]) -> None:
    from matplotlib.quiver import Quiver

    table = tables["patt-measured-field"]
    figure = drawn(plt, table)
    own, supplied, apart = (next(item for item in axes.collections if isinstance(item, Quiver)) for axes in figure.axes[:3])
    assert own.N == supplied.N == apart.N == 64
    assert own.scale == supplied.scale == apart.scale
    inside = {2 + 3 * k for k in range(8)}
    points = [line for line in frozen().of("field") if {line["i"], line["j"]} <= inside]
    assert [tuple(xy) for xy in own.get_offsets()] == [(line["x"], line["y"]) for line in points]
    assert list(own.U) == [-line["consistent"][0] for line in points]
    assert list(supplied.V) == [-line["supplied"][1] for line in points]
    wanted = [-400 * (line["supplied"][0] - line["consistent"][0]) for line in points]
    assert list(apart.U) == pytest.approx(wanted, rel=1e-9)
    values, shares = figure.axes[3].lines[0].get_data()
    assert len(values) == 626
    assert (shares[0], shares[-1]) == (0, 1)
    assert values[313] == pytest.approx(100 * sorted(line["mismatch"] for line in frozen().of("field"))[312])
    assert "published median 0.2561 %" in [text.get_text() for text in figure.axes[3].get_legend().get_texts()]


def test_field_contours_are_not_transposed(plt: Any, tables: dict[str, Table]) -> None:
    """The bowl of the fake is least at (0.8, -0.5), and its contours are closed around there."""
    figure = drawn(plt, tables["patt-measured-field"])
    lines = next(each for each in figure.axes[0].collections if hasattr(each, "levels"))
    inner = next(path for path in lines.get_paths() if len(path.vertices) > 0)
    x, y = inner.vertices.T
    assert (x.mean(), y.mean()) == pytest.approx((0.8, -0.5), abs=0.1)


@pytest.mark.parametrize(
    ("kind", "cells", "off"),
    [("field_facts", {"scores_equal": False}, 0), ("field_facts", {"losses_equal": False}, 0)],
)
def test_field_sees_what_is_off(kind: str, cells: dict[str, Any], off: int, tmp_path: Path) -> None:
    table = FIGURES["patt-measured-field"].table(lambda: None, stored(tmp_path, changed(frozen(), kind, **cells)))
    assert [check.held for check in table.checks] == [number != off for number in range(3)]


def test_scaling_has_computed_conditions_and_recorded_queries(plt: Any, tables: dict[str, Table]) -> None:
    table = tables["regime-scaling"]
    assert table.column("panel") == ["a"] * 130 + ["b"] * 256
    computed = made("clipped-defect")[0]
    assert [row["defect"] for row in table.rows[:130]] == computed.column("defect")
    assert {row["before"] for row in table.rows[:130]} == {None}
    figure = drawn(plt, table)
    before, after = figure.axes[1].lines
    assert list(before.get_xdata())[1:] == sorted(line["before"] for line in frozen().of("query"))
    assert list(after.get_xdata())[1:] == sorted(line["after"] for line in frozen().of("query"))


def test_scaling_sees_a_query_that_is_turned(tmp_path: Path) -> None:
    table = FIGURES["regime-scaling"].table(lambda: None, stored(tmp_path, changed(frozen(), "query", 9, after=1e-3)))
    assert [check.held for check in table.checks] == [True, False]
    assert "255 of 256" in table.checks[1].text


def test_states_draws_a_box_for_every_capture(plt: Any, tables: dict[str, Table]) -> None:
    figure = drawn(plt, tables["proco-state-distribution"])
    queries, bank = figure.axes
    assert len(queries.patches) == len(bank.patches) == 5
    assert [text.get_text() for text in queries.texts] == ["23.1%", "", "", "", ""]
    assert "2,560 per capture" in queries.get_title()
    assert [label.get_text() for label in bank.get_xticklabels()] == ["first\nbatch", "epoch 1", "epoch 5", "epoch 15", "epoch 30"]
    bottom, top = queries.patches[0].get_path().vertices[:, 1].min(), queries.patches[0].get_path().vertices[:, 1].max()
    first = states().of("capture")[0]
    assert (bottom, top) == (first["lower"], first["upper"])
    assert queries.patches[4].get_path().vertices[:, 1].min() == 1e-16  # its lower quartile is below the floor


@pytest.mark.parametrize("captures", [5, 31])
def test_shares_above_boxes_stand_inside_the_axes(plt: Any, tables: dict[str, Table], captures: int) -> None:
    table = tables["proco-state-distribution"]
    by_panel = [[row for row in table.rows if row["what"] == what] for what in ("queries", "bank")]
    many = tuple({**rows[min(number, 1)], "above": 0.222} for rows in by_panel for number in range(captures))
    figure = drawn(plt, replace(table, rows=many))
    figure.canvas.draw()
    for axes in figure.axes:
        frame = axes.get_window_extent()
        boxes = [text.get_window_extent() for text in axes.texts]
        assert len(boxes) == captures
        assert frame.x0 < boxes[0].x0
        assert boxes[-1].x1 < frame.x1


def test_equal_figures_are_equal_bytes(plt: Any, tables: dict[str, Table]) -> None:
    def svg() -> bytes:
        buffer = io.BytesIO()
        drawn(plt, tables["proco-state-distribution"]).savefig(buffer, format="svg", metadata={"Date": None})
        return buffer.getvalue()

    assert svg() == svg()


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_files(name: str, tables: dict[str, Table], tmp_path: Path) -> None:
    first, second = (FIGURES[name].save(tables[name], tmp_path / where) for where in "ab")
    assert [path.name for path in first] == [f"{name}.{kind}" for kind in ("svg", "png", "pdf", "csv", "md")]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert first[3].read_text() == to_csv(tables[name])
    assert inches(first[0].read_text()) <= WIDEST
    assert points(first[0].read_text())[0] >= SMALLEST

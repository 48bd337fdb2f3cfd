"""Pictures of the study, of the costs and of the whole: what they are made of, and what is written in them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import matplotlib
import pytest

from pairgrad_paper.catalogue import FIGURES
from pairgrad_paper.figures import pyplot
from pairgrad_paper.tables import Table, number

from . import run_fakes
from .made import counted, read
from .records_fakes import stored


@pytest.fixture(scope="module")
def whole() -> Table:
    return counted("overview")


def texts(table: Table, tmp_path: Path) -> str:
    """What stands in a picture, after it was saved."""
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        svg, png, *_ = FIGURES[table.name].save(table, tmp_path)
    assert len(png.read_bytes()) > 10_000  # not an empty frame
    return " ".join(re.findall(r">([^<>]+)</(?:text|tspan)>", svg.read_text()))


def test_overview_is_computed(whole: Table) -> None:
    assert all(check.held for check in whole.checks)
    assert len(whole.checks) == 3
    first, second = [row for row in whole.rows if row["part"] == "descent" and row["update"] == 0]
    assert first["loss"] == second["loss"]  # one loss
    ends = {row["branch"]: number(row, "x_over_nu") for row in whole.rows if row["update"] == 60}
    # the same descent with the recurrences in plain Python ends at 67.0 and 37.4; the derivative of the value is about 1 - (nu + 1/2) / x
    assert ends["consistent"] == pytest.approx(63.5 / 0.015 / 63, rel=0.01)
    assert ends["original"] == pytest.approx(37.4, abs=0.1)  # where the ratio is not clipped any more
    slopes = [row for row in whole.rows if row["part"] == "slopes"]
    assert max(number(row, "supplied") for row in slopes) == 1
    for row in slopes:
        assert number(row, "defect") == number(row, "supplied") - number(row, "derivative")


def test_overview(whole: Table, tmp_path: Path) -> None:
    found = texts(whole, tmp_path)
    for words in ("(a) One loss, two updates", "(b) The defect tells them apart", "(c) Built as a pair", "supplied to"):
        assert words in found


def test_learning_curves(tmp_path: Path) -> None:
    arms = ("original", "consistent", "arfr")
    records = stored(tmp_path / "records", *(run_fakes.run(arm, seed, epochs=8) for arm in arms for seed in (1, 2)))
    found = texts(read("learning-curves", records), tmp_path)
    for words in (
        "Training loss",
        "Its vMF term",
        "Coherence defect during training",
        "coherent: no defect found",
        "AR/FR: built as a pair",
    ):
        assert words in found
    assert re.search(r"2\.55e-03", found)


def test_learning_curves_are_means_over_the_seeds_of_one_version(tmp_path: Path) -> None:
    runs = [run_fakes.run("original", seed, epochs=8, shift=seed / 100, commit="0" * 9) for seed in (1, 2, 3)]
    table = read("learning-curves", stored(tmp_path, *runs, run_fakes.run("original", 4, epochs=8, commit="1" * 9)))
    assert {row["seed"] for row in table.rows} == {1, 2, 3}
    assert f"two versions of the code: {run_fakes.CPU}-original-seed4 (commit 1111111)" in table.notes[0]
    assert "lines are means over seeds, bands one standard deviation to each side" in table.caption
    plt = pyplot()
    figure = FIGURES["learning-curves"].draw(plt, table)
    accuracy = figure.axes[2]
    last = [100 * run.of("epoch")[-1]["test_accuracy"] for run in runs]
    assert accuracy.lines[0].get_ydata()[-1] == pytest.approx(sum(last) / 3)
    band = accuracy.collections[0].get_paths()[0].vertices
    assert band[band[:, 0] == 8, 1].max() == pytest.approx(sum(last) / 3 + 1)  # shifts of 1, 2 and 3 percent
    plt.close(figure)


def test_a_run_stopped_in_its_first_epoch_has_no_curve(tmp_path: Path) -> None:
    short = run_fakes.run("arfr", 1, epochs=8)
    short = replace(short, lines=tuple(line for line in short.lines if line["kind"] != "epoch"))
    table = read("learning-curves", stored(tmp_path, run_fakes.run("original", 1, epochs=8), short))
    assert set(table.column("realization")) == {"original"}


def test_efficiency(tmp_path: Path) -> None:
    table = read("efficiency-compact", stored(tmp_path / "records", run_fakes.costs()))
    found = texts(table, tmp_path)
    assert "54.4× faster" in found
    assert "together: 1,293× faster, 15.8× less memory" in found
    assert "1.3× faster" in found
    assert "together: 217× faster, 401× less memory" in found


def test_efficiency_draws_a_gpu_that_was_measured(tmp_path: Path) -> None:
    table = read("efficiency-compact", stored(tmp_path / "records", run_fakes.costs(), run_fakes.costs("cuda", original=2488.0)))
    assert "a CPU, 2026-01-02; a GPU, 2026-01-02" in table.caption
    assert len(table.notes) == 1
    found = texts(table, tmp_path)
    for words in ("Published: one H100", "Ours: a CPU", "Ours: a GPU", "together: 217× faster", "together: 435× faster"):
        assert words in found


def test_efficiency_says_what_to_type_for_a_gpu(tmp_path: Path) -> None:
    note = read("efficiency-compact", stored(tmp_path, run_fakes.costs())).notes[-1]
    assert "Ours on the GPU: not run" in note
    assert "`python -m benchmarks.learning --protocol paper" in note


def test_efficiency_with_a_method_that_was_not_measured(tmp_path: Path) -> None:
    record = run_fakes.costs()
    lines = tuple({**line, "median_ms": None} if line["published_name"] == "AR/FR" else line for line in record.lines)
    table = read("efficiency-compact", stored(tmp_path / "records", type(record)(**{**vars(record), "lines": lines})))
    assert len(table.rows) == 9
    assert "together: 217× faster" in texts(table, tmp_path)

"""`pairgrad plan` as a user runs it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from pairgrad.distributed import Cluster, Workload, calibration, plan_layouts

from .command import invoke, pairgrad

LARGE = ("--classes", "1e7", "--dim", "512", "--ranks", "64", "--batch", "8192")
NETWORK = ("--bandwidth", "25e9", "--latency", "2e-5", "--flops", "1e13")
SMALL = ("--classes", "1000", "--dim", "64", "--ranks", "4", "--batch", "32")


def test_ten_million_classes(tmp_path: Path) -> None:
    path = tmp_path / "new" / "plan.json"
    done = pairgrad("plan", *LARGE, *NETWORK, "--memory", "40e9", "--views", "2", "--json", str(path))
    assert done.returncode == 0, done.stderr
    plan = plan_layouts(Workload(10**7, 512, 8192, views=2), Cluster(64, 25e9, 2e-5, 1e13, 40e9))
    assert json.loads(path.read_text()) == plan.to_dict()
    assert plan.best is not None
    rows = [line for line in done.stdout.splitlines() if re.match(r" +\d+ x \d+ +[\d.]+ [MG]B ", line)]
    assert [tuple(map(int, line[:9].split(" x "))) for line in rows] == [(e.data, e.classes) for e in plan.layouts]
    assert rows[0].endswith("best")
    assert [line.endswith("too big") for line in rows] == [not e.fits(plan.cluster) for e in plan.layouts]
    for call in plan.best.calls:
        assert f"{call.name:<20} {call.operation}" in done.stdout
    assert f"A rank holds {plan.best.class_rows:,} classes" in done.stdout
    assert "Slower by less than 1 %, with less memory:" in done.stdout


@pytest.mark.parametrize(
    "more",
    [
        (),
        ("--memory", "40G"),
        ("--memory", "1G"),
        ("--views", "2", "--sample", "0.1", "--two-epochs", "--replicated-inputs", "--dtype", "float64", "--prior"),
        ("--exchange", "reduce", "--static", "--unbounded"),
    ],
)
@pytest.mark.parametrize("base", [LARGE, SMALL, ("--classes", "1e9", "--dim", "4096", "--ranks", "4096", "--batch", "1e6")])
def test_eighty_columns_without_colour(base: tuple[str, ...], more: tuple[str, ...]) -> None:
    done = invoke("plan", *base, *more)
    assert done.exit_code in (0, 1), done.stderr
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert done.stdout.isascii()


def test_options_reach_the_plan(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    options = ("--views", "2", "--sample", "0.25", "--two-epochs", "--prior", "--replicated-inputs", "--dtype", "float64", "--static")
    more = ("--exchange", "reduce", "--unbounded", "--elementwise", "10", "--process", "1M", "--bandwidth", "1G", "--latency", "0")
    done = invoke("plan", *SMALL, *options, *more, "--flops", "2T", "--json", str(path))
    assert done.exit_code == 0, done.stderr
    data = json.loads(path.read_text())
    assert data["workload"] == {
        **{"classes": 1000, "dim": 64, "batch": 32, "views": 2, "dtype": "float64", "two_epochs": True, "prior": True, "sample": 0.25},
        **{"exchange": "reduce", "inputs": "replicated", "bounded": False, "static": True},
    }
    assert data["cluster"] == {
        **{"ranks": 4, "bandwidth": 1e9, "latency": 0.0, "flops": 2e12, "memory": None, "elementwise": 10.0, "process": 10**6}
    }


def test_where_nothing_fits_it_says_how_many_ranks_do() -> None:
    done = invoke("plan", *LARGE[:4], "--ranks", "4", "--batch", "8192", "--memory", "8G")
    assert done.exit_code == 1
    needed = plan_layouts(Workload(10**7, 512, 8192), Cluster(4, memory=8e9)).needed
    assert needed is not None
    assert f"It would fit on {needed.data * needed.classes} ranks" in done.stdout
    done = invoke("plan", *LARGE, "--memory", "100M")
    assert done.exit_code == 1
    assert "More ranks alone do not help: a process takes 270 MB" in done.stdout


def test_one_rank() -> None:
    done = invoke("plan", "--classes", "10", "--dim", "8", "--ranks", "1", "--batch", "4")
    assert done.exit_code == 0
    assert "No collectives: there is one rank." in done.stdout


def test_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {}

    def measured(dim, **options):
        asked.update(options, dim=dim)
        return calibration.Rate(1.25e11, 1234.0)

    monkeypatch.setattr("pairgrad.cli.plan.calibrated", measured)
    done = invoke("plan", *SMALL, "--views", "2", "--measure")
    assert done.exit_code == 0, done.stderr
    assert "1.25e+11 flop/s; elementwise, 1234 flop per score (measured)" in done.stdout
    assert (asked["dim"], asked["rows"], str(asked["device"])) == (64, 64, "cpu")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("1e7", 10**7), ("10_000_000", 10**7), ("10M", 10**7), ("2.5k", 2500), (" 3 ", 3), ("1.5G", 15 * 10**8), ("2T", 2 * 10**12)),
        ("1.001k", 1001),  # in floating point 1.001 times 1000 is not a whole number
    ],
)
def test_numbers_are_exact(text: str, value: int, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    done = invoke("plan", *SMALL, "--classes", text, "--json", str(path))
    assert done.exit_code == 0, done.stderr
    assert json.loads(path.read_text())["workload"]["classes"] == value


@pytest.mark.parametrize("text", ["", "ten", "1e", "1 000", "0x10", "nan", "inf", "1e7e", "5m", "1,000", "_1"])
def test_no_numbers(text: str) -> None:
    done = invoke("plan", *SMALL, "--classes", text)
    assert done.exit_code == 2
    assert f"--classes must be a number, with k, M, G or T behind it if you like, got {text!r}" in done.stderr


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (("--classes", "ten"), "--classes must be a number, with k, M, G or T behind it if you like, got 'ten': write e.g. 1e7"),
        (("--classes", "1.5"), "--classes must be a whole number from 1 to 1e+15, got '1.5': write e.g. 1e7"),
        (("--dim", "1"), "--dim must be a whole number from 2 to 1e+15, got '1'"),
        (("--ranks", "0"), "--ranks must be a whole number from 1 to 1e+15, got '0'"),
        (("--classes", "1e400"), "--classes must be a whole number from 1 to 1e+15, got '1e400'"),
        (("--bandwidth", "1e999"), "--bandwidth must be from 1e-30 to 1e+30 bytes per second, got '1e999'"),
        (("--bandwidth", "1e-999"), "--bandwidth must be from 1e-30 to 1e+30 bytes per second, got '1e-999'"),
        (("--batch", "-3"), "--batch must be a whole number from 1 to 1e+15, got '-3'"),
        (("--views", "0"), "--views must be a whole number from 1 to 1e+15, got '0'"),
        (("--bandwidth", "0"), "--bandwidth must be from 1e-30 to 1e+30 bytes per second, got '0': write e.g. 25e9"),
        (("--latency", "-1"), "--latency must be from 0 to 1e+30 seconds, got '-1'"),
        (("--memory", "40GB"), "--memory must be a number, with k, M, G or T behind it if you like, got '40GB': write e.g. 40G"),
        (("--sample", "2"), "--sample must be from 1e-30 to 1 of the classes, got '2'"),
        (("--dtype", "float16"), "--dtype must be one of float32, float64, got 'float16'"),
        (("--exchange", "ring"), "--exchange must be one of auto, gather, reduce, got 'ring'"),
        (("--measure", "--flops", "1e13"), "--flops says what --measure would find out, got both"),
        (("--device", "cpu"), "--device says where --measure is to run"),
        (("--measure", "--device", "gpu"), "--device must be one that torch can use with float32, got 'gpu'"),
    ],
)
def test_wrong_usage(changed: tuple[str, ...], message: str) -> None:
    done = invoke("plan", *SMALL, *changed)
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stderr.startswith("pairgrad plan: ")


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    done = invoke("plan", *SMALL, "--json", str(tmp_path / "file" / "plan.json"))
    assert done.exit_code == 2
    assert "pairgrad plan: --json: cannot write" in done.stderr


def test_the_page_shows_what_is_printed() -> None:
    page = (Path(__file__).parents[2] / "docs" / "planning.md").read_text()
    shown = re.findall(r"^```text\n\$ pairgrad (.*?)\n(.*?)\n```", page, re.DOTALL | re.MULTILINE)
    assert len(shown) == 2
    for command, output in shown:
        assert invoke(*command.split()).stdout.rstrip() == output, f"run pairgrad {command} again and put its output into docs/planning.md"


def test_what_must_be_given() -> None:
    done = pairgrad("plan", "--classes", "1e7")
    assert done.returncode == 2
    assert "--dim" in done.stderr
    assert "Traceback" not in done.stderr

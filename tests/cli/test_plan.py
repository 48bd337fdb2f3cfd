"""`pairgrad plan` as a user runs it: its page, its data, and its numbers against sums done by hand, real banks and real steps."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch

import pairgrad as pg
from pairgrad.distributed import shard, step_calls, wire_bytes

from .command import invoke, pairgrad

LARGE = ("--classes", "1e7", "--dim", "512", "--batch", "8192", "--ranks", "64")
SMALL = ("--classes", "1000", "--dim", "64", "--batch", "32", "--ranks", "4")


def planned(folder: Path, *arguments: str, code: int = 0) -> dict[str, Any]:
    done = invoke("plan", *arguments, "--json", str(folder / "plan.json"))
    assert done.exit_code == code, done.stderr
    return json.loads((folder / "plan.json").read_text())


def sized(batch: int, classes: int, dim: int, views: int = 2) -> tuple[str, ...]:
    return ("--batch", str(batch), "--classes", str(classes), "--dim", str(dim), "--views", str(views))


@pytest.mark.parametrize(
    ("size", "microseconds"),
    [
        ((32, 1000, 1024), {"traffic": 1.7, "elementwise": 0.14, "float32": 3.9, "3xtf32": 1.6, "tf32": 0.53}),
        ((1024, 100_000, 512), {"traffic": 69, "elementwise": 450, "float32": 6300, "3xtf32": 2500, "tf32": 850}),
        ((128, 1_000_000, 128), {"traffic": 153, "elementwise": 560, "float32": 2000, "3xtf32": 790, "tf32": 260}),
    ],
)
def test_the_floor_on_an_h100(tmp_path: Path, size: tuple[int, int, int], microseconds: dict[str, float]) -> None:
    """A roofline that was computed before this command existed, printed to two or three digits."""
    found = planned(tmp_path, *sized(*size))["floor"]
    for part, expected in microseconds.items():
        assert 1e6 * found["seconds"][part] == pytest.approx(expected, rel=0.03), part


def test_a_floor_by_hand(tmp_path: Path) -> None:
    plan = planned(tmp_path, *sized(10, 300, 64, views=3), "--gpu", "a100")
    assert plan["floor"]["traffic"] == 4 * 64 * (300 + 2 * 30 + 8 * 10)
    assert plan["floor"]["flops"] == 4 * 30 * 300 * 64
    assert plan["floor"]["seconds"]["traffic"] == plan["floor"]["traffic"] / plan["gpu"]["bandwidth"]
    assert plan["floor"]["seconds"]["bf16"] == plan["floor"]["flops"] / plan["gpu"]["bf16"]
    assert plan["gpu"]["name"] == "A100 80GB SXM"


@pytest.mark.parametrize("gpu", ["a100", "h100", "h200", "b200", "mi300x"])
def test_no_execution_is_below_the_floor(tmp_path: Path, gpu: str) -> None:
    for size in ((32, 1000, 1024), (1024, 100_000, 512), (128, 1_000_000, 128), (1, 1, 2), (8192, 10**7, 512)):
        plan = planned(tmp_path, *sized(*size), "--gpu", gpu, "--memory", "1T")
        assert set(plan["predicted"]) == {"eager", "compiled", "triton"}
        for cost in plan["predicted"].values():
            assert cost["moved"] >= plan["floor"]["traffic"]
            assert cost["seconds"]["at_least"] == max(cost["seconds"][part] for part in ("launching", "moving", "computing"))
            assert cost["seconds"]["computing"] >= plan["floor"]["seconds"][cost["precision"]]


def test_predictions_are_near_what_was_counted(tmp_path: Path) -> None:
    """`tests/device` counts again."""
    for counted in planned(tmp_path, *SMALL)["counted"]:
        size = counted["size"]
        predicted = planned(tmp_path, *sized(size["batch"], size["classes"], size["dim"], size["views"]))["predicted"][counted["execution"]]
        assert predicted["launches"] == pytest.approx(counted["launches"], rel=0.15)
        assert predicted["allocated"] == pytest.approx(counted["allocated"], rel=0.15)


@pytest.mark.parametrize(("options", "flags"), [({}, ()), ({"memory": "two-epochs"}, ("--two-epochs",))])
def test_the_bank_is_that_of_a_real_one(tmp_path: Path, options: dict[str, Any], flags: tuple[str, ...]) -> None:
    bank = pg.ClassBank(250, 48, device="meta", **options)
    held = sum(buffer.nbytes for buffer in bank.buffers() if buffer.dim())
    plan = planned(tmp_path, "--classes", "1000", "--dim", "48", "--batch", "8", "--ranks", "1x4", *flags)
    assert plan["layouts"][0]["bank"] == held


def test_layouts_by_hand(tmp_path: Path) -> None:
    plan = planned(tmp_path, "--classes", "1001", "--dim", "64", "--batch", "30", "--views", "2", "--ranks", "6")
    assert [(layout["data"], layout["classes"]) for layout in plan["layouts"]] == [(6, 1), (3, 2), (2, 3), (1, 6)]
    layout = plan["layouts"][1]
    assert layout["size"] == {"views": 2, "batch": 10, "classes": 501, "dim": 64}
    calls = step_calls(data=3, classes=2, class_rows=501, dim=64, itemsize=4, local_rows=5, scored_rows=10, distinct=5, views=2)
    assert [(c["name"], c["operation"], c["payload"], c["ranks"]) for c in layout["calls"]] == [
        (c.name, c.operation, c.payload, c.ranks) for c in calls
    ]  # 5 distinct classes: 501 (1 - (1000/1001)^10) = 4.98
    assert layout["sent"] == float(wire_bytes(calls)) == sum(call["sent"] for call in layout["calls"])
    assert layout["memory"] > layout["bank"] + 2 * 4 * 2 * 10 * 64


def test_classes_that_occur_are_those_of_random_labels(tmp_path: Path) -> None:
    """2000 draws of 40 labels from 51 classes, of which 17 are held: the mean is within 5 standard errors (one false alarm in 2 million)."""
    held = torch.stack([torch.bincount(torch.randint(51, (40,)), minlength=51)[:17] > 0 for _ in range(2000)]).sum(1).double()
    exact = 17 * (1 - (1 - 1 / 51) ** 40)
    assert abs(held.mean() - exact) <= 5 * held.std() / 2000**0.5
    (layout,) = planned(tmp_path, "--classes", "51", "--dim", "64", "--batch", "80", "--ranks", "2x3")["layouts"]
    (statistics,) = (call for call in layout["calls"] if call["name"] == "data: statistics")
    assert statistics["payload"] == math.ceil(exact) * (64 * 4 + 16)


def test_the_layout_that_sends_least_of_those_that_fit(tmp_path: Path) -> None:
    plan = planned(tmp_path, *LARGE, "--memory", "4G")
    fitting = [layout for layout in plan["layouts"] if layout["problem"] is None]
    assert 0 < len(fitting) < len(plan["layouts"])
    assert all((layout["memory"] <= 4e9) == (layout["problem"] is None) for layout in plan["layouts"])
    least = min(fitting, key=lambda layout: layout["sent"])
    assert plan["shown"] == {"data": least["data"], "classes": least["classes"], "fits": True}
    printed = invoke("plan", *LARGE, "--memory", "4G").stdout
    assert re.search(rf"{least['data']} x {least['classes']} .* sends least\n", printed)
    assert printed.count("does not fit\n") == len(plan["layouts"]) - len(fitting)


def test_where_nothing_fits(tmp_path: Path) -> None:
    arguments = (*LARGE[:-1], "4", "--memory", "8G")
    plan = planned(tmp_path, *arguments, code=1)
    assert plan["shown"] == {"data": 1, "classes": 4, "fits": False}
    assert "Nothing fits. The bank alone needs 6 shards." in invoke("plan", *arguments).stdout  # 41.2 GB


def test_shards_that_the_bank_refuses(tmp_path: Path) -> None:
    for classes, ranks in ((10, 6), (10, 4), (29, 12), (7, 4)):
        layouts = planned(tmp_path, "--classes", str(classes), "--dim", "8", "--batch", "4", "--ranks", str(ranks))["layouts"]
        for layout in layouts:
            first, last = shard(classes, layout["classes"], layout["classes"] - 1)
            assert (layout["problem"] == "leaves ranks without classes") == (first == last)
    done = invoke("plan", *LARGE[2:6], "--classes", "10", "--ranks", "1x6")
    assert done.exit_code == 2
    assert "--ranks must leave no rank without classes, got '1x6' for 10 classes: take fewer shards" in done.stderr


def test_as_data(tmp_path: Path) -> None:
    plan = planned(tmp_path / "new", *SMALL)
    assert plan["schema"] == "pairgrad.plan/2"
    assert set(plan) == {"schema", "gpu", "memory", "layouts", "shown", "floor", "predicted", "counted", "published"}
    assert set(plan["layouts"][0]) == {"data", "classes", "size", "bank", "memory", "sent", "calls", "problem"}
    assert set(plan["predicted"]["eager"]) == {"launches", "moved", "allocated", "products", "precision", "seconds"}
    assert plan["published"]["seconds"] == 206e-6
    assert plan["published"]["size"] == {"views": 2, "batch": 32, "classes": 1000, "dim": 1024}


@pytest.mark.parametrize("more", [(), ("--memory", "40G"), ("--memory", "1"), ("--views", "1e15", "--two-epochs", "--gpu", "mi300x")])
@pytest.mark.parametrize("base", [LARGE, SMALL, ("--classes", "1e9", "--dim", "4096", "--ranks", "4096", "--batch", "1e6")])
def test_eighty_columns_without_colour(base: tuple[str, ...], more: tuple[str, ...]) -> None:
    done = invoke("plan", *base, *more)
    assert done.exit_code in (0, 1), done.stderr
    assert "\x1b" not in done.stdout
    assert done.stdout.isascii()
    if "1e15" not in more:
        assert max(map(len, done.stdout.splitlines())) <= 80


def test_every_prediction_is_called_one() -> None:
    printed = invoke("plan", *LARGE).stdout
    for words in ("memory and bytes sent are predicted", "predicted from data-sheet peaks", "Executions, predicted", "are assumed"):
        assert words in printed
    assert "Nothing of ours was timed on a GPU." in printed


@pytest.mark.parametrize(
    ("text", "value"), [("1e7", 10**7), ("10_000_000", 10**7), ("10M", 10**7), (" 2.5k ", 2500), (".5M", 500_000), ("+3", 3)]
)
def test_numbers(tmp_path: Path, text: str, value: int) -> None:
    plan = planned(tmp_path, "--dim", "64", "--batch", "32", "--classes", text)
    assert plan["layouts"][0]["size"]["classes"] == value


@pytest.mark.parametrize("text", ["", "ten", "1e", "1 000", "0x10", "nan", "inf", "1e7e", "5m", "1,000", "_1"])
def test_no_numbers(text: str) -> None:
    done = invoke("plan", *SMALL, "--classes", text)
    assert done.exit_code == 2
    assert f"--classes must be a number, with k, M, G or T behind it if you like, got {text!r}" in done.stderr


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (("--classes", "1.5"), "--classes must be a whole number from 1 to 1e+15, got '1.5': write e.g. 1e7"),
        (("--classes", "1e400"), "--classes must be a whole number from 1 to 1e+15, got '1e400'"),
        (("--dim", "1"), "--dim must be a whole number from 2 to 1e+15, got '1'"),
        (("--batch", "-3"), "--batch must be a whole number from 1 to 1e+15, got '-3'"),
        (("--views", "0"), "--views must be a whole number from 1 to 1e+15, got '0'"),
        (("--ranks", "0"), "--ranks must be a whole number from 1 to 1e+06, got '0': write e.g. 64, or 8x8 for one layout"),
        (("--ranks", "8x"), "--ranks must be a number, with k, M, G or T behind it if you like, got ''"),
        (("--ranks", "8x8x8"), "--ranks must be a number, with k, M, G or T behind it if you like, got '8x8'"),
        (("--memory", "40GB"), "--memory must be a number, with k, M, G or T behind it if you like, got '40GB': write e.g. 40G"),
        (("--gpu", "v100"), "--gpu must be one of a100, h100, h200, b200, mi300x, got 'v100': choose one of them, or the nearest"),
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
    assert shown
    for command, output in shown:
        assert invoke(*command.split()).stdout.rstrip() == output, f"run pairgrad {command} again and put its output into docs/planning.md"


def test_what_must_be_given() -> None:
    done = pairgrad("plan", "--classes", "1e7")
    assert done.returncode == 2
    assert "--dim" in done.stderr
    assert "Traceback" not in done.stderr

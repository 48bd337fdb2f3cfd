"""The benchmark of several ranks: a smoke run, the fit of loopback, the collectives of a case, and the page and figure made from a record."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from benchmarks.distributed import figure, measure, record, report
from benchmarks.distributed.cases import Case, Sizes
from benchmarks.distributed.network import fitted
from benchmarks.distributed.ranks import Ranks
from benchmarks.distributed.record import Collective, Record, Resident, Timing, Traffic
from benchmarks.distributed.report import line
from benchmarks.distributed.run import _keep_other_parts, main

from pairgrad.distributed import Call

CASE = Case("classes", 1, 100_000, 128, 64)
LATENCY, BANDWIDTH = 3e-5, 2e9


def of(ranks: int, case: Case = CASE) -> Case:
    return dataclasses.replace(case, ranks=ranks)


def ring_seconds(call: Call) -> float:
    """Messages one after the other around a ring, in an all-reduce twice, with what `wire` says in them."""
    return (call.ranks - 1) * (2 if call.operation == "all-reduce" else 1) * LATENCY + float(call.wire) / BANDWIDTH


def fake(two: float = 0.11) -> Record:
    """One rank takes 0.2 s, two take `two`."""
    seconds = {1: [0.2, 0.21, 0.19], 2: [two, 1.1 * two, 0.9 * two], 4: [0.12, 0.12, 0.12]}
    network = [
        Collective(kind, payload, ranks, ring_seconds(Call("", kind, payload, ranks)))
        for kind in ("all-gather", "all-reduce")
        for payload in (64, 4096, 10**6)
        for ranks in (2, 4)
    ]
    return Record(
        command="python -m benchmarks.distributed all --write",
        date="2026-01-01",
        machine={"CPU": "a machine"},
        cores=2,
        timings=[Timing(of(ranks), times, 3.5) for ranks, times in seconds.items()],
        network=network,
        bytes=[Collective("reduce-scatter", 4096, 2, 4 * 4096.0)]
        + [Collective(kind, 4096, 2, 2 * 4096.0) for kind in ("all-gather", "all-reduce")],
        traffic=[Traffic(of(2), 10, 4, 660_000.0, 990_000)],
        memory=[
            Resident(of(ranks, dataclasses.replace(CASE, classes=10**6)), [300_000_000] * ranks, [1_400_000_000] * ranks, [2.0])
            for ranks in (1, 2)
        ],
    )


def rows_of(page: str, heading: str) -> list[list[str]]:
    section = page.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("|")]


def test_the_page_says_what_was_measured() -> None:
    page = report.page(fake())
    one, two, four = rows_of(page, "Time")[2:5]
    assert one[2] == "200"
    assert two[1:6] == ["2", "110", "105 to 116", "99.0", "**1.82**"]
    assert four[1] == "4"
    assert "4 ranks share 2 cores" in page
    assert ["2", "30 us", "2.00 GB/s"] in rows_of(page, "Time")
    traffic = rows_of(page, "Bytes")
    assert traffic[2][1:] == ["2", "4", "66.0", "99.0", "1.50"]
    assert traffic[-1] == ["4,096", "1.00", "1.00", "4.00"]
    memory = rows_of(page, "Memory")
    # K (2 p + 2) words of float32 and two of float64 for each class, on half of the classes half of it
    assert memory[2] == ["1", "1.40", "0.300", "1.05", "0.0520", "2.00"]
    assert memory[3] == ["2", "1.40, 1.40", "0.300, 0.300", "0.524", "0.576, 0.576", "2.00"]
    assert "smoke run" not in page
    assert "python -m benchmarks.distributed all --write" in page


@pytest.mark.parametrize(("two", "missed"), [(0.11, 0), (0.14, 1)])
def test_goals(two: float, missed: int) -> None:
    found = fake(two)
    assert [goal.reached for goal in report.goals(found)].count(False) == missed
    assert report.page(found).count("**missed**") == missed


def test_a_smoke_run_says_so_and_has_no_goals() -> None:
    quick = dataclasses.replace(fake(two=0.3), quick=True)
    assert report.goals(quick) == []
    assert "A smoke run" in report.page(quick)


def test_parts_that_were_not_measured_are_left_out() -> None:
    found = Record("command", "date", {}, 2, memory=fake().memory)
    page = report.page(found)
    assert "## Time" not in page
    assert "## Bytes" not in page
    assert [row[-1] for row in rows_of(page, "Memory")[2:]] == ["2.00", "2.00"]


def test_a_record_comes_back_as_it_was(tmp_path: Path) -> None:
    stored = record.loads(record.dumps(fake()))  # to five digits
    assert stored.timings[1].seconds == pytest.approx(fake().timings[1].seconds, rel=1e-5)
    record.write(tmp_path / "record.json", stored)
    assert record.read(tmp_path / "record.json") == stored
    assert record.read(tmp_path / "none.json") is None
    with pytest.raises(ValueError, match="records must have format"):
        record.loads(record.dumps(stored).replace('"format": 2', '"format": 1'))


def test_the_figure_is_the_same_file_for_the_same_record(tmp_path: Path) -> None:
    one, two = (figure.draw(fake(), tmp_path / name) for name in ("one.png", "two.png"))
    assert one is not None
    assert two is not None
    assert one.read_bytes() == two.read_bytes()
    assert figure.draw(Record("command", "date", {}, 2), tmp_path / "none.png") is None


def test_page_and_figure_are_made_without_measuring(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["page", "--output", str(tmp_path)]) == 2
    record.write(tmp_path / "distributed.json", fake(two=0.19))
    assert main(["page", "--write", "--output", str(tmp_path)]) == 1  # a goal is missed
    assert (tmp_path / "distributed-benchmarks.md").read_text() == report.page(fake(two=0.19))
    assert (tmp_path / "assets" / figure.NAME).exists()
    assert "**missed**" in capsys.readouterr().out


def test_the_fit_finds_latency_and_bandwidth() -> None:
    found = line(fake(), 4)
    assert found.latency == pytest.approx(LATENCY, rel=1e-3)
    assert found.bandwidth == pytest.approx(BANDWIDTH, rel=1e-3)
    assert fitted([(Call("", "all-gather", payload, 2), 1e-5) for payload in (4, 8)]).latency == pytest.approx(1e-5, rel=1e-2)


def test_planned_calls_count_the_classes_that_occur() -> None:
    labels = torch.tensor([0, 0, 1, 9, 9, 9, 9, 9])
    gathered = Case("data", 2, 10, 4, 8, exchange="gather").planned_calls(labels, rank=1)
    assert gathered[1] == Call("data: statistics", "all-gather", 3 * (4 * 4 + 16), 2)  # three classes on the first rank
    with pytest.raises(ValueError, match="batch must be a multiple of the ranks"):
        Case("data", 3, 10, 4, 8)


@pytest.mark.distributed
def test_a_smoke_run(tmp_path: Path) -> None:
    assert main(["scaling", "--quick", "--write", "--output", str(tmp_path)]) == 0
    found = record.read(tmp_path / "distributed.json")
    assert found is not None
    assert [(timing.case.layout, timing.case.ranks, len(timing.seconds)) for timing in found.timings] == [
        ("classes", 1, 2),
        ("classes", 2, 2),
        ("data", 1, 2),
        ("data", 2, 2),
    ]
    assert {found.operation for found in found.network} == {"all-gather", "all-reduce", "reduce-scatter"}
    assert "A smoke run" in (tmp_path / "distributed-benchmarks.md").read_text()
    assert not found.traffic
    assert found.kept_memory
    assert len(found.others) == 4


@pytest.mark.distributed
@pytest.mark.skipif(not Path("/proc/net/dev").exists(), reason="reads /proc")
def test_bytes_of_steps() -> None:
    case = Case("data", 2, 50, 64, 64, exchange="gather")
    with Ranks(2) as ranks:
        traffic = measure._traffic(ranks, case, 5)
        assert traffic.calls == 2
        assert traffic.found > traffic.planned > 5 * 2 * 20 * (64 * 4 + 16)  # both ranks, more than 20 classes in half a batch
        with pytest.raises(RuntimeError, match="rank 0 of 2"):
            ranks.all("no such method")


def test_a_step_that_differs_from_the_plan_ends_the_run() -> None:
    class Stub:
        """Ranks whose second step hands in more than was planned."""

        steps = 0

        def all(self, method: str, *_: object) -> list[object]:
            self.steps += method == "counted"
            planned = [Call("data: header", "all-gather", 64, 2)]
            return [(planned if self.steps < 3 else [Call("data: header", "all-gather", 72, 2)], planned)]

    case = Case("data", 2, 50, 64, 64)
    assert measure._traffic(Stub(), case, 1).planned == 64
    with pytest.raises(AssertionError, match=r"data of K = 50.* the ranks called .*72"):
        measure._traffic(Stub(), case, 2)


def test_what_other_processes_take() -> None:
    assert measure._others((10.0, 4.0, 20.0), (13.0, 5.0, 24.0)) == 0.5  # two of four seconds
    assert measure._others((10.0, 4.0, 20.0), (11.0, 5.1, 24.0)) == 0.0  # clocks of different grain


def test_parts_of_the_same_day_stay() -> None:
    stored, new = fake(), Record("again", "2026-01-01", {"CPU": "a machine"}, 2)
    _keep_other_parts(new, stored, ["scaling"])
    assert (new.timings, new.traffic, new.memory) == ([], stored.traffic, stored.memory)
    assert new.command == "python -m benchmarks.distributed all --write, then again"
    another = Record("again", "2026-01-02", {"CPU": "a machine"}, 2)
    _keep_other_parts(another, stored, ["scaling"])
    assert not another.traffic


@pytest.mark.parametrize(("losses", "good"), [((3.5, 3.50001), True), ((3.5, 3.5001), False)])
def test_ranks_that_compute_something_else_are_not_timed(losses: tuple[float, float], good: bool) -> None:
    timings = [Timing(of(ranks), [0.1], loss) for ranks, loss in zip((1, 2), losses, strict=True)]
    if good:
        measure._require_equal_losses(timings)
    else:
        with pytest.raises(AssertionError, match=r"on 2 ranks has the loss 3\.5001"):
            measure._require_equal_losses(timings)


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
def test_memory_of_fresh_processes() -> None:
    found = Record("command", "date", {}, 2, quick=True)
    cases = (Case("classes", 1, 100_000, 64, 16), Case("classes", 2, 100_000, 64, 16))
    measure.memory(found, Sizes((), (), 0, (), 0, 0, cases, 1))
    assert [len(memory.peak) for memory in found.memory] == [1, 2]
    for memory in found.memory:
        for before, peak in zip(memory.before, memory.peak, strict=True):
            assert (
                memory.case.bank < peak - before < memory.case.bank + 150e6
            )  # while the bank is made: 50 MB, three times 65,536 directions

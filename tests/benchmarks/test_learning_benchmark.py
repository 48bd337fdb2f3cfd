"""The benchmark of the learning step: its meter, its contestants, its fit and its page."""

from __future__ import annotations

import pytest
import torch
from benchmarks.learning import growth, record, report
from benchmarks.learning.contender import Local, Prepared, Time
from benchmarks.learning.contestants import COMPILED, DENSE, EAGER, FACTORISED, FLOOR, MAKERS, ORIGINAL, RECORDED, SETTINGS, TOUCHED
from benchmarks.learning.goals import goals
from benchmarks.learning.memory import peak_increment
from benchmarks.learning.record import Row, Run
from benchmarks.learning.rounds import Turn, interleaved
from benchmarks.learning.run import main
from benchmarks.learning.session import PROTOCOLS, Protocol
from benchmarks.learning.worker import Isolated
from benchmarks.learning.workload import Size, Workload

MIB = 2**20
SMALL = Workload(Size(4, 30, 16))
# Means and radii of up to 16 float32 terms, scores of size up to 1e2 from potentials near 1e2: a few hundred roundings of 6e-8.
LAYOUT_TOL = 1e-4
AR_TOL = 1e-2  # AR/FR against the recurrence at dim 16: errors of nu^-3 = 3e-3 in a slope, over increments of r around 1


def floats(mebibytes: int) -> torch.Tensor:
    return torch.zeros(mebibytes * MIB // 4)


class FromFunction:
    """A step made of a function."""

    def __init__(self, function):
        self.run, self.restore = function, lambda: None


def held(function) -> float:
    """Its peak in MiB."""
    return peak_increment(FromFunction(function)) / MIB


def test_the_meter_sees_what_lives_at_one_time():
    def pattern():
        first, second = floats(10), floats(5)
        del first
        third = floats(7)
        del second, third

    assert held(pattern) == pytest.approx(15, rel=0.05)


def test_the_meter_does_not_count_what_was_there_before():
    kept = [floats(20)]

    def replace():
        kept[0] = None
        kept[0] = floats(20)
        return floats(4)

    assert held(replace) == pytest.approx(4, rel=0.05)


def test_the_meter_looks_at_one_run():
    sizes = iter([40, 4])  # the run that acquaints the profiler with what is replaced, and the one that counts
    assert held(lambda: floats(next(sizes))) == pytest.approx(4, rel=0.05)


def test_the_meter_sees_backward():
    class Hungry(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            floats(33).add_(1)
            return grad

    leaf = torch.zeros(8, requires_grad=True)

    def step():
        leaf.grad = None
        Hungry.apply(leaf).sum().backward()

    assert held(step) == pytest.approx(33, rel=0.05)


@pytest.mark.slow
def test_the_meter_sees_compiled_code(monkeypatch):
    monkeypatch.undo()  # of torch.empty, which the compiler asks for leaves that the poison may not write to
    x = torch.zeros(1024, 1024)
    compiled = torch.compile(lambda a: torch.mm(torch.mm(a, a), a), fullgraph=True)
    compiled(x)
    assert held(lambda: compiled(x)) == pytest.approx(8, rel=0.05)  # the inner product and the result, 4 MiB each


def losses_and_gradients(*names):
    for name in names:
        step = MAKERS[name](SMALL)
        loss = step.run()
        yield loss, step.features.grad


def test_original_and_consistent_report_the_same_bits():
    (first, _), (second, _) = losses_and_gradients(ORIGINAL, RECORDED)
    assert first == second


def test_the_log_domain_computes_the_same():
    (first, first_gradient), (second, second_gradient) = losses_and_gradients(ORIGINAL, "log-miller")
    torch.testing.assert_close(second, first, rtol=1e-11, atol=0)  # float64 on equal radii, logarithms of size up to 1e2
    torch.testing.assert_close(second_gradient, first_gradient, rtol=1e-6, atol=1e-9)  # rounded to float32


@pytest.mark.parametrize("name", [TOUCHED, FACTORISED])
def test_layouts_agree(name):
    (first, first_gradient), (second, second_gradient) = losses_and_gradients(DENSE, name)
    torch.testing.assert_close(second, first, rtol=LAYOUT_TOL, atol=0)
    torch.testing.assert_close(second_gradient, first_gradient, rtol=LAYOUT_TOL, atol=LAYOUT_TOL * first_gradient.abs().max().item())


def test_evaluators_agree():
    (first, _), (second, _) = losses_and_gradients(ORIGINAL, DENSE)
    torch.testing.assert_close(second, first, rtol=AR_TOL, atol=0)


@pytest.mark.parametrize("name", [ORIGINAL, DENSE, TOUCHED, FACTORISED])
def test_a_restored_step_repeats_itself(name):
    step = MAKERS[name](SMALL)
    first, gradient = step.run(), step.features.grad.clone()
    moved = step.run()
    assert moved != first, "the second run must start from a state that has changed"
    step.restore()
    assert step.run() == first
    assert torch.equal(step.features.grad, gradient)


def test_the_streaming_floor_makes_the_same_products():
    size = Size(4, 2500, 8)
    whole, tiled = MAKERS[FLOOR](Workload(size)), MAKERS[FLOOR](Workload(size, streaming=True))
    repeats = -(-size.classes // tiled._width)
    whole._weights.copy_(tiled._weights.repeat(1, repeats)[:, : size.classes])
    for step in (whole, tiled):
        step.run()
    torch.testing.assert_close(tiled._gradient, whole._gradient, rtol=1e-4, atol=1e-4)  # sums of 2500 float32 terms of size up to 1
    assert torch.equal(tiled._tensors()["sums0"], whole._tensors()["sums0"])


class Recorder:
    """A contender that notes what it is asked for."""

    def __init__(self, expected, log):
        self.prepared, self.log = Prepared(expected=expected), log

    def take(self, *, rehearse):
        self.log.append((self.prepared.expected, rehearse))
        return Time(1.0, 0.25)


def test_contestants_take_turns_and_short_ones_rehearse():
    log = []
    fast, slow = Turn(Recorder(0.001, log), 2), Turn(Recorder(1.0, log), 1)
    interleaved({"fast": fast, "slow": slow})
    assert log == [(0.001, True), (1.0, False), (0.001, True)]
    assert (fast.seconds, fast.system_seconds) == ([1.0, 1.0], 0.5)


def test_slow_contestants_are_timed_less_often():
    protocol = Protocol(warmups=1, repeats=30, least=5, budget=15.0)
    assert [protocol.times(expected) for expected in (0.0, 0.5, 1.5, 100.0)] == [30, 30, 10, 5]
    assert PROTOCOLS["paper"].times(100.0) == 7


@pytest.mark.slow
def test_a_contender_is_the_same_in_a_process_of_its_own():
    here, there = Local(ORIGINAL, SMALL, 1), Isolated(ORIGINAL, SMALL, 1)
    try:
        assert there.prepared.loss == here.prepared.loss
        assert there.take(rehearse=True).total > 0
        assert there.peak() == here.peak()
    finally:
        there.close()


@pytest.mark.parametrize("wanted", [-1.0, 0.0, 0.5, 2.0])
def test_the_fit_recovers_an_exponent(wanted):
    places = [100, 200, 400, 800]
    assert growth.exponent(places, [3.5 * place**wanted for place in places]) == pytest.approx(wanted, abs=1e-12)


def test_growth_changes_one_size_at_a_time():
    middle = SETTINGS["paper"].size
    for size in growth.sizes(middle):
        assert sum(getattr(size, variable) != getattr(middle, variable) for variable in growth.VARIABLES) <= 1
        assert size.dim % 2 == 0


def made_up_run() -> Run:
    """Times and peaks such that each goal's outcome is known."""
    milliseconds = {FLOOR: 4.0, ORIGINAL: 1200.0, DENSE: 800.0, TOUCHED: 500.0, FACTORISED: 14.0}
    milliseconds |= dict.fromkeys(EAGER, 13.0) | dict.fromkeys(COMPILED, 5.0)
    rows = [
        Row("paper", SETTINGS["paper"].size, name, [t / 1e3] * 5, 5 * t / 4e3, 2 * MIB, 1.0 if name != FLOOR else None)
        for name, t in milliseconds.items()
    ]
    rows.append(Row("small", SETTINGS["small"].size, EAGER[0], note="fails: an example"))
    grown = [
        Row("growth", size, ORIGINAL, [1e-6 * size.batch * size.classes], 0.0, 4 * size.batch * size.classes * size.dim)
        for size in growth.sizes(SETTINGS["paper"].size)
    ]
    return Run("interleaved", "a command", "2024-06-07", {"CPU": "an example"}, "cpu", 3407, 3, 5, 15.0, rows=rows, growth=grown)


def test_verdicts_follow_from_the_measurements():
    verdicts = {goal.text.split(", at ")[0]: goal.verdict() for goal in goals(made_up_run())}
    assert verdicts["compiled within 1.45× of the floor"] == (f"1.25× ({COMPILED[0]})", "reached")
    assert verdicts["compiled at least 220× faster than the original"] == (f"240× ({COMPILED[0]})", "reached")
    assert verdicts["eager within 3× of the floor"] == (f"3.25× ({EAGER[0]})", "missed")
    assert verdicts["compiled: peak increment of at most 1 MiB"] == (f"2 MiB ({COMPILED[0]})", "missed")
    assert verdicts["eager: peak increment of at most 3 MiB"] == (f"2 MiB ({EAGER[0]})", "reached")
    assert verdicts["streaming, compiled: within 2× of its tiled floor"] == ("", "not measured")


def test_a_record_survives_being_stored():
    runs = {"interleaved": made_up_run()}
    assert record.loads(record.dumps(runs)) == runs


def test_an_unknown_format_is_refused():
    with pytest.raises(ValueError, match="format 1, got 7"):
        record.loads('{"format": 7, "runs": {}}')


def test_the_page_is_made_from_records_alone(tmp_path):
    path = tmp_path / "page.md"
    record.write(path.with_suffix(".json"), {"interleaved": made_up_run()})
    assert main(["--from-records", "--output", str(path)]) == 0
    page = path.read_text()
    assert page == report.page({"interleaved": made_up_run()}, "page.json")
    assert "| structure-aware, AR/FR, compiled | 5.00 | 25% | 1.25× | 240× | 240× | 2.00 | 0.206 | 1,293× | 32.00 |" in page
    assert "| original recurrence, dense layout | 1.00 | 0.00 | 1.00 | 1.00 | 1.00 | 1.00 |" in page
    assert "fails: an example" in page
    assert (tmp_path / "assets" / "learning-growth.svg").exists()


def test_without_records_there_is_no_page(tmp_path):
    assert main(["--from-records", "--output", str(tmp_path / "page.md")]) == 2
    assert not (tmp_path / "page.md").exists()

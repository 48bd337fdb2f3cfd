"""The monitor of long runs."""

import csv
import os
import time
import warnings

import pytest
import torch
from torch.autograd import Function

import pairgrad as pg
from pairgrad.coherence import CoherenceWarning, IncoherentBackward
from tests.coherence.memory import TensorMemory
from tests.coherence.training import Opaque, same, train

COLUMNS = [
    *("step", "function", "location", "verdict", "defect", "error", "limit"),
    *("visits", "looked", "decided", "failed", "share_low", "share_high", "seconds"),
]


def watched(steps=20, after=None, **options):
    """A monitor after a run."""
    monitor = pg.CoherenceMonitor(**({"every": 10, "states": 3, "reaction": "ignore", "share": 1.0} | options))
    with monitor:
        train(steps, after=after or monitor.step)
    return monitor


class Writer:
    def __init__(self):
        self.scalars = []

    def add_scalar(self, name, value, step):
        self.scalars.append((name, value, step))


def test_the_run_keeps_its_bits():
    monitor = pg.CoherenceMonitor(every=7, states=2, reaction="ignore", share=1.0)
    with monitor:
        recorded = train(25, after=monitor.step)
    assert monitor.report is not None
    assert same(train(25), recorded)


def test_rows_are_those_of_each_look():
    monitor = watched(30, every=10)
    assert [row["step"] for row in monitor.rows] == [10] * 4 + [20] * 4 + [30] * 4
    assert {row["function"] for row in monitor.rows} == {"Capped", "Direction", "Opaque", "Quarters"}
    assert {row["visits"] for row in monitor.rows} == {10}  # since the last look
    capped = [row for row in monitor.rows if row["function"] == "Capped"]
    assert all(row["verdict"] == "incoherent" and row["defect"] > 0.01 for row in capped)
    assert all(row["looked"] >= 1 for row in monitor.rows)
    assert {node.visits for node in monitor.report.nodes} == {10}


def test_rows_are_a_list_of_numbers_and_texts(tmp_path):
    """Each value of the type that it has by nature; the file has the same values, rounded."""
    monitor = watched(30, every=10, csv=tmp_path / "coherence.csv")
    assert monitor.rows[:3] == list(monitor.rows)[:3]
    assert monitor.rows[-1]["step"] == 30
    texts, whole = {"function", "location", "verdict"}, {"step", "visits", "looked", "decided", "failed"}
    for row in monitor.rows:
        assert {name: type(value) for name, value in row.items()} == {
            name: str if name in texts else int if name in whole else float for name in COLUMNS
        }
    with (tmp_path / "coherence.csv").open(newline="") as file:
        written = list(csv.DictReader(file))
    for row, line in zip(monitor.rows, written, strict=True):
        for name, value in row.items():
            assert line[name] == (f"{value:.{4 if name.startswith('s') else 6}g}" if isinstance(value, float) else str(value)), name


def test_the_file_goes_on_where_it_was(tmp_path):
    path = tmp_path / "logs" / "coherence.csv"
    watched(10, csv=path)
    watched(10, csv=path)
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == COLUMNS
    assert len(rows) == 8
    assert float(next(row for row in rows if row["function"] == "Capped")["defect"]) > 0.01


def test_a_file_of_somebody_else_is_left_alone(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"csv must be a new file or one that a CoherenceMonitor wrote, but .* begins with 'a,b'"):
        pg.CoherenceMonitor(csv=path)
    assert path.read_text() == "a,b\n1,2\n"
    path.write_bytes(b"\xff" * 100)
    with pytest.raises(ValueError, match=r"a CoherenceMonitor wrote, but .*mine\.csv begins with"):
        pg.CoherenceMonitor(csv=path)


def test_writers_and_callables_get_the_scalars():
    writer, logged = Writer(), []
    watched(10, writer=writer, log=lambda scalars, step: logged.append((dict(scalars), step)))
    ((scalars, step),) = logged
    assert step == 10
    assert scalars["coherence/failing"] >= 1
    assert scalars["coherence/defect/Capped"] > 0.01
    assert scalars["coherence/defect/Opaque"] == 0
    assert 0 < scalars["coherence/limit/Opaque"] < 1e-2
    assert scalars["coherence/share/Capped"] == 1
    assert writer.scalars == [(name, value, 10) for name, value in scalars.items()]


def test_tensorboard(tmp_path):
    tensorboard = pytest.importorskip("torch.utils.tensorboard", reason="needs tensorboard")
    with tensorboard.SummaryWriter(tmp_path) as writer:
        watched(10, writer=writer)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path))
    events.Reload()
    assert events.Scalars("coherence/defect/Capped")[0].step == 10


def test_a_warning_comes_once_for_each_function():
    with pytest.warns(CoherenceWarning) as caught:
        watched(40, reaction="warn")
    names = [str(warning.message).split(": ", 1)[1].split(" ")[0] for warning in caught]
    assert len(names) == len(set(names))
    assert "Capped" in names
    assert "Opaque" not in names


def test_it_can_stop_the_run():
    steps = []
    monitor = pg.CoherenceMonitor(every=5, states=2, reaction="raise")

    def after():
        steps.append(1)
        monitor.step()

    with monitor, pytest.raises(IncoherentBackward, match=r"at step 5: .*Capped") as caught:
        train(20, after=after)
    assert len(steps) == 5
    assert not caught.value.report.passed


def test_a_coherent_run_is_silent():
    monitor = pg.CoherenceMonitor(every=5)
    model = torch.nn.Linear(3, 1)
    with warnings.catch_warnings(), monitor:
        warnings.simplefilter("error")
        for _ in range(5):
            model(torch.randn(4, 3)).square().mean().backward()
            monitor.step()
    assert monitor.report.nodes == ()
    assert monitor.report.backwards == 0


def test_a_look_says_what_it_leaves_out():
    x = torch.ones(3, requires_grad=True)
    with pg.CoherenceMonitor(every=2, states=1, share=1.0, reaction="ignore") as monitor:
        for _ in range(2):
            Opaque.apply(x).sum().backward()
            monitor.step()
    assert monitor.report.left_out == ("second order at 1 of 1 states: not part of a glance",)


def test_steps_may_be_numbered_by_the_caller():
    count = iter(range(100, 200))
    monitor = pg.CoherenceMonitor(every=3, states=1, reaction="ignore")
    with monitor:
        train(3, after=lambda: monitor.step(next(count)))
    assert {row["step"] for row in monitor.rows} == {102}


def test_a_last_look_at_the_end():
    monitor = watched(4, every=40)
    assert {node.visits for node in monitor.report.nodes} == {4}
    assert {row["step"] for row in monitor.rows} == {4}
    again = watched(10, every=10)
    assert {row["step"] for row in again.rows} == {10}  # nothing new since


def test_an_error_of_the_run_goes_through_without_a_look():
    monitor = pg.CoherenceMonitor(every=1000, states=1)
    with pytest.raises(KeyError), monitor:
        train(2, after=lambda: monitor.step() or {}["mine"])
    assert monitor.report is None


def test_looks_take_no_more_than_their_share(monkeypatch):
    """A look that takes long is made up for by leaving out the next ones: on a clock that the steps and the function move."""
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    class Slow(Function):
        @staticmethod
        def forward(ctx, x):
            now[0] += 1.0
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx, grad_output):
            return ctx.saved_tensors[0].cos() * grad_output

    weight = torch.ones(3, requires_grad=True)
    monitor = pg.CoherenceMonitor(every=1, states=1, share=0.1, reaction="ignore").start()
    spent, longest = 0.0, 0.0
    for _ in range(600):
        now[0] += 20.0
        Slow.apply(weight).sum().backward()
        before = now[0]
        monitor.step()
        spent, longest = spent + now[0] - before, max(longest, now[0] - before)
    monitor.stop()
    assert len(monitor.rows) >= 4
    assert spent == pytest.approx(0.1 * now[0], abs=longest)


def test_a_look_that_fails_does_not_end_the_run(tmp_path):
    path = tmp_path / "gone" / "coherence.csv"
    monitor = pg.CoherenceMonitor(every=2, states=1, csv=path, reaction="ignore")
    path.unlink()
    path.parent.rmdir()
    with monitor, pytest.warns(CoherenceWarning, match="at step 2 the monitor failed with FileNotFoundError"):
        train(2, after=monitor.step)


def test_half_a_row_is_ended(tmp_path):
    path = tmp_path / "coherence.csv"
    watched(10, csv=path)
    path.write_bytes(path.read_bytes()[:-20])
    watched(10, csv=path)
    with path.open(newline="") as file:
        rows = list(csv.reader(file))
    assert [len(row) == len(COLUMNS) for row in rows].count(False) == 1
    assert rows[-1][0] == "10"


def test_what_keeps_state_is_called_once_and_not_again():
    class Counting(Function):
        calls = 0

        @staticmethod
        def forward(ctx, x):
            Counting.calls += 1
            ctx.factor = 1 + 0.1 * Counting.calls
            return ctx.factor * x

        @staticmethod
        def backward(ctx, grad_output):
            return ctx.factor * grad_output

    weight = torch.ones(3, requires_grad=True)
    monitor = pg.CoherenceMonitor(every=5, states=1, share=1.0, reaction="ignore")
    with monitor:
        for step in range(20):
            before = Counting.calls
            Counting.apply(weight).sum().backward()
            assert Counting.calls == before + 1
            monitor.step()
            assert step < 5 or Counting.calls == before + 1  # no look calls it after the first


def test_generators_and_modules_among_the_arguments_are_copied():
    class Noisy(Function):
        @staticmethod
        def forward(ctx, x, generator, norm):
            norm.running_mean += x.detach().mean()
            return x + torch.randn(x.shape, generator=generator) + norm.running_mean

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output, None, None

    def run(monitor):
        generator, norm = torch.Generator().manual_seed(0), torch.nn.BatchNorm1d(1)
        weight = torch.ones(3, requires_grad=True)
        for _ in range(12):
            Noisy.apply(weight, generator, norm).square().sum().backward()
            with torch.no_grad():
                weight -= 0.01 * weight.grad
            monitor.step()
        return weight.detach().clone()

    class Nothing:
        def step(self):
            pass

    with pg.CoherenceMonitor(every=3, states=2, share=1.0, reaction="ignore") as monitor:
        watched_weight = run(monitor)
    assert len(monitor.rows) >= 3
    assert torch.equal(watched_weight, run(Nothing()))


def test_two_functions_of_one_name_have_scalars_of_their_own():
    def made(factor):
        class Sine(Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x.sin()

            if factor == 1:

                @staticmethod
                def backward(ctx, grad_output):
                    return ctx.saved_tensors[0].cos() * grad_output

            else:

                @staticmethod
                def backward(ctx, grad_output):
                    return factor * ctx.saved_tensors[0].cos() * grad_output

        return Sine

    right, wrong = made(1), made(1.5)
    weight, logged = torch.ones(3, requires_grad=True), []
    with pg.CoherenceMonitor(every=1, states=1, share=1.0, reaction="ignore", log=lambda scalars, _: logged.append(scalars)) as monitor:
        (right.apply(weight) + wrong.apply(weight)).sum().backward()
        monitor.step()
    defects = {name: value for name, value in logged[0].items() if name.startswith("coherence/defect/")}
    places = [function.backward.__code__.co_firstlineno for function in (right, wrong)]
    assert [name.rpartition(":")[2] for name in sorted(defects)] == [f"{line})" for line in places]
    assert all(name.startswith("coherence/defect/Sine (") for name in defects)
    assert [value > 0.1 for _, value in sorted(defects.items())] == [False, True]


def test_starting_and_stopping_twice_does_nothing():
    monitor = pg.CoherenceMonitor(every=1000, states=1, reaction="ignore")
    monitor.start()
    monitor.start()
    train(2)
    monitor.stop()
    monitor.stop()
    train(2)
    assert {node.visits for node in monitor.look().nodes} == {2}


def test_memory_does_not_grow_with_the_run():
    monitor = pg.CoherenceMonitor(every=10**6, states=8, memory=2**13, reaction="ignore")
    memory = TensorMemory()
    with monitor:
        for _ in range(3):
            train(20, after=monitor.step)
            assert 0 < memory.added() <= 2**13


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"every": 0}, ValueError, "every must be an integer >= 1, got 0"),
        ({"share": 0}, ValueError, "share must be a number above 0 and up to 1"),
        ({"writer": object()}, TypeError, r"writer must have a method add_scalar\(name, value, step\)"),
        ({"log": 3}, TypeError, "log must be a callable"),
        ({"reaction": "shout"}, ValueError, "reaction must be one of"),
        ({"states": 0}, ValueError, "states must be an integer >= 1"),
    ],
)
def test_bad_options(options, error, match):
    with pytest.raises(error, match=match):
        pg.CoherenceMonitor(**options)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root, to make the link of another user")
def test_a_link_that_another_user_left_in_a_shared_directory_is_not_written_to(tmp_path):
    shared, private = tmp_path / "shared", tmp_path / "private"
    shared.mkdir()
    shared.chmod(0o1777)
    (shared / "looks.csv").symlink_to(private)
    os.lchown(shared / "looks.csv", 12345, 12345)
    with pytest.raises(PermissionError, match="is a symbolic link of another user"):
        pg.CoherenceMonitor(csv=shared / "looks.csv")
    assert not private.exists()

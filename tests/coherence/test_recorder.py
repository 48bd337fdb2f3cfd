"""Which visits a recording keeps: an even draw from all of them, in bounded memory."""

import gc
import weakref

import pytest
import torch
from torch.autograd import Function

import pairgrad as pg
from tests.coherence.memory import TensorMemory


class Square(Function):
    @staticmethod
    def forward(ctx, x, number):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad_output):
        return 2 * ctx.saved_tensors[0] * grad_output, None


def visit(size=4, number=0, function=Square):
    function.apply(torch.ones(size, requires_grad=True), number).sum().backward()


def numbers(recording):
    return [visit.arguments[1] for visit in recording.visits()]


def count(recording):
    (only,) = recording.counts().values()
    return only


def drawn(runs, total, **options):
    """How often each of `total` visits is kept, over runs with another seed each."""
    met, kept = [0] * total, 0
    for seed in range(runs):
        with pg.record(seed=seed, loss=False, **options) as recording:
            for number in range(total):
                visit(number=number)
        kept += len(numbers(recording))
        for number in numbers(recording):
            met[number] += 1
    return met, kept


def assert_even(met, kept, runs):
    """Each fifth of the run has its share, give or take five deviations of a binomial."""
    size = len(met) // 5
    share = kept / runs / len(met)
    allowed = 5 * (size * runs * share * (1 - share)) ** 0.5
    fifths = [sum(met[start : start + size]) for start in range(0, len(met), size)]
    assert all(abs(fifth - kept / 5) < allowed for fifth in fifths), fifths
    assert max(met) < 5 * kept / len(met), met  # and no visit is kept in most of the runs


def test_the_draw_is_even():
    met, kept = drawn(120, 40, states=5)
    assert kept == 120 * 5
    assert_even(met, kept, 120)


def test_the_draw_stays_even_where_memory_is_short():
    """There is room for 24 times the arguments of one where 32 are requested: places are given up on the way."""
    met, kept = drawn(120, 60, states=32, memory=24 * 16)
    assert 120 * 2 <= kept <= 120 * 24
    assert_even(met, kept, 120)


def test_visits_are_drawn_from_the_whole_run():
    with pg.record(states=6, loss=False) as recording:
        for number in range(300):
            visit(number=number)
    assert count(recording) == 300
    assert len(numbers(recording)) == 6
    assert max(numbers(recording)) > 100
    report = recording.audit()
    assert report.backwards == 300
    assert [state.visit for state in report.nodes[0].states] == numbers(recording)


def test_the_same_seed_draws_the_same_visits():
    kept = []
    for seed in (3, 3, 4):
        with pg.record(states=6, loss=False, seed=seed) as recording:
            for number in range(100):
                visit(number=number)
        kept.append(numbers(recording))
    assert kept[0] == kept[1] != kept[2]


def test_entered_again_it_continues():
    recording = pg.record(states=50, loss=False)
    for number in range(3):
        with recording:
            visit(number=number)
        visit(number=-1)
    assert numbers(recording) == [0, 1, 2]


def test_forwards_without_a_backward_are_released():
    memory = TensorMemory()
    with pg.record(states=10**6, memory=2**30, loss=False) as recording:
        for _ in range(3000):
            Square.apply(torch.ones(100, requires_grad=True), 0)
        assert memory.added() < 100 * 4 * 10  # less than ten of 3000
    assert recording.visits() == []


@pytest.mark.parametrize("steps", [1, 12])
def test_memory_is_bounded(steps):
    """Twelve calls under way at once, of 4 KB each, with room for ten in all."""
    memory = TensorMemory()
    with pg.record(states=100, memory=10 * 4096, loss=False) as recording:
        for _ in range(steps):
            outputs = [Square.apply(torch.ones(1024, requires_grad=True), k) for k in range(12)]
            torch.stack(outputs).sum().backward()
        del outputs
        held = memory.added()
        assert count(recording) == 12 * steps
        assert 1 <= len(recording.visits()) <= 10
        recording.clear()
        assert 0 < held - memory.added() <= 10 * 4096


def test_one_function_does_not_push_out_another():
    class Large(Square):
        pass

    with pg.record(states=32, memory=25 * 16384, loss=False) as recording:  # room for 24 large ones
        for _ in range(40):
            visit(size=16)
            visit(size=4096, function=Large)
    kept = [visit.name for visit in recording.visits()]
    assert kept.count("Square") == 32
    assert 2 <= kept.count("Large") <= 24


def test_a_visit_that_does_not_fit_is_counted():
    with pg.record(states=4, memory=100, loss=False) as recording:
        for _ in range(5):
            visit(size=1000)
    assert count(recording) == 5
    assert recording.visits() == []
    (node,) = recording.audit().nodes
    assert node.visits == 5
    assert "more than memory allows" in node.note


def test_classes_made_at_every_step_are_one_function_and_are_freed():
    classes = []

    def step():
        class Local(Square):
            @staticmethod
            def backward(ctx, grad_output):
                return 2 * ctx.saved_tensors[0] * grad_output, None

        visit(function=Local)
        classes.append(weakref.ref(Local))

    with pg.record(states=3, loss=False) as recording:
        for _ in range(300):
            step()
        gc.collect()
        alive = sum(reference() is not None for reference in classes)
    assert [name for name, _ in recording.counts()] == ["Local"]
    assert count(recording) == 300
    assert alive < 150, alive


def test_a_second_backward_through_one_graph_is_counted_and_kept_once():
    with pg.record(states=8, loss=False) as recording:
        y = Square.apply(torch.ones(2, requires_grad=True), 0).sum()
        y.backward(retain_graph=True)
        y.backward()
    assert (count(recording), len(recording.visits())) == (2, 1)
    assert recording.audit().backwards == 2


@pytest.mark.slow
def test_memory_over_100000_steps():
    import resource

    x = torch.randn(16, requires_grad=True)
    with pg.record(memory=2**20, loss=False) as recording:
        for number in range(100_000):
            torch.autograd.grad(Square.apply(x, number).sum(), x)
            if number == 20_000:
                gc.collect()
                before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert count(recording) == 100_000
    assert grown < 2048, f"{grown} KiB more after 80,000 further steps"

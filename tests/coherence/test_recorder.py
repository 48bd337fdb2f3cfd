"""The draw of visits, and its bound on memory."""

import gc
import weakref

import pytest
import torch
from torch.autograd import Function

from pairgrad.coherence.recorder import Draw, Recorder


class Square(Function):
    @staticmethod
    def forward(ctx, x, number):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad_output):
        return 2 * ctx.saved_tensors[0] * grad_output, None


def visit(size=4, number=0, function=Square):
    function.apply(torch.randn(size, requires_grad=True), number).sum().backward()


def numbers(recorder):
    return [taken.arguments[1] for kept in recorder.functions.values() for _, _, taken in kept.visits.values()]


@pytest.mark.parametrize(("limit", "first"), [(8, 0), (8, 3), (1, 0)])
def test_the_draw_is_even(limit, first):
    """Over 3000 draws of 8 from 60, every place from `first` on is met 8/60 of the time, give or take five deviations."""
    met = [0] * 60
    for seed in range(3000):
        draw = Draw(limit, first, seed)
        last = {place: index for index in range(60) if (place := draw.place()) is not None}
        assert sorted(last) == list(range(limit))
        for index in last.values():
            met[index] += 1
    assert met[:first] == [3000] * first
    share = (limit - first) / (60 - first)
    allowed = 5 * (3000 * share * (1 - share)) ** 0.5
    assert all(abs(count - 3000 * share) < allowed for count in met[first:]), met


def test_the_draw_stays_even_with_fewer_places():
    """Halved in the middle, as when memory is short."""
    met = [0] * 80
    for seed in range(3000):
        recorder = Recorder(8, seed=seed)
        kept = recorder._identify(Square)
        kept.draw = Draw(8, 0, seed)
        for index in range(80):
            if index == 30:
                kept.thin_out()
            place = kept.draw.place()
            if place is not None:
                kept.visits[place] = (index, index, None)
        assert len(kept.visits) == 4
        for index, _, _ in kept.visits.values():
            met[index] += 1
    expected, allowed = 150, 6 * 150**0.5
    assert all(abs(count - expected) < allowed for count in met), met


def test_visits_are_drawn_from_the_whole_run():
    recorder = Recorder(6)
    with recorder:
        for number in range(300):
            visit(number=number)
    kept = next(iter(recorder.functions.values()))
    assert kept.backwards == 300
    assert recorder.passes == 300
    assert len(kept.visits) == 6
    assert max(numbers(recorder)) > 100
    assert [number for number, _, _ in kept.visits.values()] == numbers(recorder)  # the count of the backward is that of the forward here


def test_entered_again_it_goes_on():
    recorder = Recorder(50)
    for number in range(3):
        with recorder:
            visit(number=number)
        visit(number=-1)
    assert sorted(numbers(recorder)) == [0, 1, 2]


def test_forwards_without_a_backward_are_let_go():
    recorder = Recorder(10**6, memory=2**30)
    with recorder:
        for _ in range(3000):
            Square.apply(torch.randn(100, requires_grad=True), 0)
    assert recorder.held() == 0
    assert len(recorder._under_way) == 0
    assert recorder.visits() == []


@pytest.mark.parametrize("steps", [1, 12])
def test_memory_is_bounded(steps):
    """Twelve calls under way at once, of 4 KB each, with room for ten in all."""
    recorder, most = Recorder(100, whole=1, memory=10 * 4096), 0
    with recorder:
        for _ in range(steps):
            outputs = [Square.apply(torch.randn(1024, requires_grad=True), k) for k in range(12)]
            most = max(most, recorder.held())
            torch.stack(outputs).sum().backward()
            most = max(most, recorder.held())
    assert most <= 10 * 4096
    kept = next(iter(recorder.functions.values()))
    assert kept.backwards == 12 * steps
    assert 1 <= len(kept.visits) <= 10


def test_one_function_does_not_push_out_another():
    class Large(Square):
        pass

    recorder = Recorder(16, whole=0, memory=5 * 16384)  # room for four large ones
    with recorder:
        for _ in range(40):
            visit(size=16)
            visit(size=4096, function=Large)
    small, large = recorder.functions.values()
    assert (small.name, large.name) == ("Square", "Large")
    assert len(small.visits) == 16
    assert 2 <= len(large.visits) <= 4


def test_a_visit_that_does_not_fit_is_counted():
    recorder = Recorder(4, memory=100)
    with recorder:
        for _ in range(5):
            visit(size=1000)
    kept = next(iter(recorder.functions.values()))
    assert (kept.backwards, len(kept.visits)) == (5, 0)
    assert kept.refused >= 4
    assert kept.largest >= 4000


def test_classes_made_at_every_step_are_one_function_and_die():
    recorder, classes = Recorder(3), []

    def step():
        class Local(Square):
            @staticmethod
            def backward(ctx, grad_output):
                return 2 * ctx.saved_tensors[0] * grad_output, None

        visit(function=Local)
        classes.append(weakref.ref(Local))

    with recorder:
        for _ in range(300):
            step()
        gc.collect()
        alive = sum(reference() is not None for reference in classes)
    assert [kept.name for kept in recorder.functions.values()] == ["Local"]
    assert next(iter(recorder.functions.values())).backwards == 300
    assert alive <= 3 + 2 * 64, alive


def test_a_second_backward_through_one_graph_is_counted_once_kept():
    recorder = Recorder(8)
    with recorder:
        y = Square.apply(torch.ones(2, requires_grad=True), 0).sum()
        y.backward(retain_graph=True)
        y.backward()
    kept = next(iter(recorder.functions.values()))
    assert (kept.backwards, len(kept.visits), recorder.passes) == (2, 1, 2)


def test_only_the_first_places_hold_what_the_backward_got():
    recorder = Recorder(5, whole=2)
    with recorder:
        for number in range(5):
            visit(number=number)
    seen = recorder.visits()
    assert [len(v.gradients) for v in seen] == [2, 2, 0, 0, 0]
    assert [len(v.cotangents) for v in seen] == [1, 1, 0, 0, 0]
    assert all(v.arguments[0].requires_grad for v in seen)


@pytest.mark.slow
def test_memory_over_100000_steps():
    import resource

    recorder = Recorder(24, whole=2, memory=2**20)
    x = torch.randn(16, requires_grad=True)
    with recorder:
        for number in range(100_000):
            torch.autograd.grad(Square.apply(x, number).sum(), x)
            if number == 20_000:
                gc.collect()
                before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert next(iter(recorder.functions.values())).backwards == 100_000
    assert recorder.held() < 2**20
    assert grown < 2048, f"{grown} KiB more after 80,000 further steps"

"""Recording a run: what cannot be seen, what is kept, and that the run is left alone."""

import pytest
import torch
from torch.autograd import Function

import pairgrad as pg
from pairgrad.coherence import RunReport
from tests.coherence.training import Capped, Direction, Net, Opaque, linear_steps, same, train
from tests.distributed.ranks import run


def test_nothing_met():
    with pg.record(loss=False) as recording:
        pass
    report = recording.audit()
    assert report.verdict == "inconclusive"
    assert "no custom backward was met" in str(report)


def test_a_function_that_cannot_be_applied_alone_says_so():
    def steps():
        calls = []

        class Once(Function):
            @staticmethod
            def forward(ctx, x):
                calls.append(x)
                if len(calls) > 3:
                    raise RuntimeError("only three times")
                return x.sin()

            @staticmethod
            def backward(ctx, grad_output):
                return grad_output

        linear_steps(lambda y: Once.apply(y).square().mean())

    with pg.record(loss=False) as recording:
        steps()
    (node,) = recording.audit().nodes
    assert node.verdict == "inconclusive"
    assert node.looked == 0
    assert "it cannot be applied alone: RuntimeError: only three times" in str(node)


def test_state_outside_of_the_arguments_is_noticed():
    class Counter(Function):
        factor = 1.0

        @staticmethod
        def forward(ctx, x):
            Counter.factor += 1
            ctx.factor = Counter.factor
            return Counter.factor * x

        @staticmethod
        def backward(ctx, grad_output):
            return ctx.factor * grad_output

    with pg.record(loss=False) as recording:
        linear_steps(lambda y: Counter.apply(y).square().mean())
    (node,) = recording.audit().nodes
    assert "it could not be reproduced: applied again to the same arguments it sends on another gradient than in the run (off by " in str(
        node
    )
    assert "it depends on something else too" in node.note
    assert (node.verdict, node.looked, node.failed) == ("inconclusive", 0, 0)  # nothing is said against it


def test_too_little_memory_says_so():
    with pg.record(memory=16) as recording:
        train(steps=2)
    report = recording.audit()
    assert all("more than memory allows" in node.note for node in report.nodes)
    assert report.loss is None
    assert "memory" in report.loss_note


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # torch.compile itself, at a graph break
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_regions(backend, monkeypatch):
    monkeypatch.undo()  # poisoned memory is not for compilers
    torch._dynamo.reset()
    plain = train(steps=4, model=lambda: torch.compile(Net(), backend=backend))
    torch._dynamo.reset()
    with pg.record() as recording:
        recorded = train(steps=4, model=lambda: torch.compile(Net(), backend=backend))
    assert same(plain, recorded)
    report = recording.audit(seconds=5)
    assert report.loss is None
    assert "compiled" in report.loss_note
    with torch.compiler.set_stance("force_eager"), pg.record(loss=False) as recording:
        train(steps=4, model=lambda: torch.compile(Net(), backend=backend))
    assert {node.name for node in recording.audit(seconds=5).nodes} == {"Capped", "Direction", "Opaque", "Quarters"}
    torch._dynamo.reset()


def test_a_compiled_model_without_eager_parts_is_mentioned(monkeypatch):
    monkeypatch.undo()
    torch._dynamo.reset()

    class Plain(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(8, 4)

        def forward(self, x):
            return Capped.apply(self.layer(x))

    with pg.record() as recording:
        train(steps=3, model=lambda: torch.compile(Plain(), backend="aot_eager"))
    report = recording.audit()
    assert report.nodes == ()
    assert report.verdict == "inconclusive"
    assert any("3 calls went through regions compiled" in note and "force_eager" in note for note in report.notes)
    assert report.backwards == 3
    torch._dynamo.reset()


def _recorded():
    rank = torch.distributed.get_rank()
    wrapped = lambda: torch.nn.parallel.DistributedDataParallel(Net())  # noqa: E731
    plain = train(steps=5, model=wrapped, seed=rank)
    with pg.record(states=3) as recording:
        recorded = train(steps=5, model=wrapped, seed=rank)
    report = recording.audit(effort="glance")
    return same(plain, recorded), sorted((n.name, n.visits, n.passed) for n in report.nodes), report.loss_note


@pytest.mark.distributed
@pytest.mark.slow
def test_distributed_data_parallel():
    for unchanged, nodes, note in run(2, _recorded):
        assert unchanged
        assert [(name, visits) for name, visits, _ in nodes] == [("Capped", 5), ("Direction", 5), ("Opaque", 5), ("Quarters", 5)]
        assert not {name: passed for name, _, passed in nodes}["Capped"]
        assert note


def test_audit_inside_the_block_records_nothing_of_itself():
    with pg.record(loss=False) as recording:
        train(steps=2)
        recording.audit(effort="glance", seconds=2)
        train(steps=1)
    assert {node.visits for node in recording.audit(effort="glance", seconds=2).nodes} == {3}


def test_an_audit_of_something_else_is_not_recorded():
    with pg.record(loss=False) as recording:
        train(steps=2)
        pg.audit(Capped.apply, torch.randn(3))
        pg.assert_coherent(Opaque.apply, torch.randn(3))
        train(steps=1)
    assert set(recording.counts().values()) == {3}
    assert {name for name, _ in recording.counts()} == {"Capped", "Direction", "Opaque", "Quarters"}


def test_forwards_without_gradients_are_not_drawn():
    """Rollouts, validation and sampling must not use up the places of training."""
    weight = torch.ones(3, requires_grad=True)
    with pg.record(states=8, loss=False) as recording:
        for function in (Capped, Opaque):
            for _ in range(2):
                with torch.no_grad():
                    for _ in range(500):
                        function.apply(weight)
                for _ in range(20):
                    function.apply(weight).sum().backward()
    for kept in recording._recorder.functions.values():
        assert (kept.backwards, len(kept.visits), kept.draw.seen) == (40, 8, 40)


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
def test_what_cannot_be_kept_does_not_end_the_run():
    class Gather(Function):
        @staticmethod
        def forward(ctx, table, rows, other):
            ctx.rows, ctx.shape = rows, table.shape
            return table[rows] + other.to_dense().sum()

        @staticmethod
        def backward(ctx, grad_output):
            return torch.sparse_coo_tensor(ctx.rows[None], grad_output, ctx.shape), None, None

    table = torch.nn.Parameter(torch.randn(6, 2))
    with pg.record() as recording:
        for _ in range(3):
            Gather.apply(table, torch.tensor([0, 2]), torch.eye(2).to_sparse()).sum().backward()
    assert recording.counts()[next(iter(recording.counts()))] == 3
    assert isinstance(str(recording.audit()), str)


def test_batched_gradients():
    class Two(Function):
        @staticmethod
        def forward(ctx, x):
            return x.sin(), x.cos()

        @staticmethod
        def backward(ctx, a, b):
            return a - b

    x = torch.randn(3, requires_grad=True)
    with pg.record(loss=False) as recording:
        for _ in range(5):
            a, b = Two.apply(x)
            torch.autograd.grad(a * b, x, torch.eye(3), is_grads_batched=True)
    assert list(recording.counts().values()) == [5]
    recording.audit()


def test_recordings_that_do_not_end_in_order():
    before = {owner: dict(vars(owner)) for owner in (Capped, Direction, Opaque)}
    asked = torch.Tensor.backward
    first, second = pg.record(), pg.record()
    first.__enter__()
    second.__enter__()
    train(1)
    first.__exit__()
    train(1)
    second.__exit__()
    train(1)
    assert all(dict(vars(owner)) == entries for owner, entries in before.items())
    assert torch.Tensor.backward is asked
    assert set(first.counts().values()) == {1}
    assert set(second.counts().values()) == {2}


def test_looks_leave_no_wrappers_behind():
    before = vars(Capped)["forward"]
    with (
        pg.CoherenceMonitor(every=1, states=1, reaction="ignore") as outer,
        pg.CoherenceMonitor(every=1, states=1, reaction="ignore") as inner,
    ):

        def after():
            outer.look()
            inner.look()

        train(3, after=after)
        depth, method = 0, vars(Capped)["forward"]
        while method is not before:
            depth, method = depth + 1, method.raw
        assert depth == 2
    assert vars(Capped)["forward"] is before


def test_classes_from_one_place_contribute_together():
    def made():
        class Same(Function):
            @staticmethod
            def forward(ctx, x):
                return 2 * x

            @staticmethod
            def backward(ctx, grad_output):
                return 2 * grad_output

        return Same.apply

    one, two = made(), made()
    with pg.record() as recording:
        linear_steps(lambda y: (one(y).square() + two(y).square()).mean(), steps=1)
    (node,) = recording.audit().nodes
    assert node.contribution == pytest.approx(1, abs=1e-3)


def test_autocast_is_that_of_the_visit():
    class Linear(Function):
        @staticmethod
        def forward(ctx, x, weight):
            ctx.save_for_backward(x, weight)
            return x @ weight

        @staticmethod
        def backward(ctx, grad_output):
            x, weight = ctx.saved_tensors
            return grad_output.float() @ weight.t(), x.t() @ grad_output.float()

    weight, x = torch.randn(4, 3, requires_grad=True), torch.randn(5, 4, requires_grad=True)
    with pg.record(loss=False) as recording:
        for _ in range(2):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                y = Linear.apply(x, weight)
            assert y.dtype == torch.bfloat16
            y.float().sum().backward()
    (node,) = recording.audit().nodes
    assert node.passed, node


def test_arguments_are_described_in_few_words():
    class Table:
        def __repr__(self):
            return "a row\n" * 1000

    class Looked(Function):
        @staticmethod
        def forward(ctx, x, table):
            return 2 * x

        @staticmethod
        def backward(ctx, grad_output):
            return 2 * grad_output, None

    with pg.record(loss=False) as recording:
        Looked.apply(torch.ones(2, requires_grad=True), Table()).sum().backward()
    (state,) = recording.audit().nodes[0].states
    assert len(state.arguments) < 200
    assert state.arguments.startswith("a float32 tensor of shape (2,) on cpu, a row a row")


def test_clear_begins_anew():
    with pg.record(loss=False) as recording:
        train(steps=3)
        recording.clear()
        train(steps=2)
    assert {node.visits for node in recording.audit(effort="glance", seconds=2).nodes} == {2}
    recording.clear()
    assert recording.visits() == []
    assert "states kept: none" in repr(recording)


def test_the_global_generators_are_not_moved_by_an_audit():
    with pg.record() as recording:
        train(steps=2)
    before = torch.get_rng_state()
    recording.audit(effort="glance", seconds=2)
    assert torch.equal(before, torch.get_rng_state())


def test_an_error_in_the_block_goes_through_and_leaves_nothing_behind():
    forward = vars(Capped)["forward"]
    recording = pg.record()

    def fail():
        assert vars(Capped)["forward"] is not forward
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"), recording:
        fail()
    assert vars(Capped)["forward"] is forward
    assert torch._C._len_torch_function_stack() == 0
    with recording:  # it can go on
        train(steps=1)
    assert {kept.backwards for kept in recording._recorder.functions.values()} == {1}


def test_it_cannot_be_entered_twice():
    with pg.record() as recording, pytest.raises(RuntimeError, match="running already"):
        recording.__enter__()


def test_two_recordings_at_once():
    with pg.record(loss=False) as outer, pg.record(loss=False) as inner:
        train(steps=2)
    for recording in (outer, inner):
        assert {kept.backwards for kept in recording._recorder.functions.values()} == {2}


class SecondOrderLost(Function):
    """exp, whose backward is right and cuts the graph."""

    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.y = y.detach()
        return y

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.y


def test_a_recording_makes_the_checks_that_an_audit_makes():
    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    with pg.record(loss=False) as recording:
        for _ in range(3):
            SecondOrderLost.apply(x).square().sum().backward()
    report = recording.audit()
    alone = pg.audit(SecondOrderLost.apply, x, effort="quick", consequences=False)
    assert not alone.passed
    assert report.verdict == alone.verdict
    assert report.nodes[0].failed == 3
    assert report.left_out == report.nodes[0].left_out == ()
    glance = recording.audit(effort="glance")
    assert glance.passed
    assert glance.left_out == ("second order at 3 of 3 states: not part of a glance",)
    assert RunReport.from_dict(glance.to_dict()).left_out == glance.left_out


def test_time_is_kept_and_every_function_is_looked_at_once():
    with pg.record() as recording:
        train(steps=30)
    seen = []
    report = recording.audit(seconds=1e-6, progress=seen.append)
    assert [node.looked for node in report.nodes] == [1, 1, 1, 1]
    assert "Capped: second order at 1 of 1 states: time was up" in report.left_out
    assert "Capped: 23 of 24 states kept: time was up" in report.left_out
    assert "part of the loss: time was up" in report.left_out
    assert next(node for node in report.nodes if node.name == "Capped").left_out == tuple(
        check.removeprefix("Capped: ") for check in report.left_out if check.startswith("Capped: ")
    )
    assert "  left out: Capped: second order at 1 of 1 states: time was up" in str(report).splitlines()
    assert report.loss.complete is False
    assert [p.stage for p in seen][-1] == "the loss"
    assert all(p.total == 24 * 3 + 4 + 1 for p in seen)
    assert [p.done for p in seen] == list(range(5))


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"states": 0}, ValueError, "states must be an integer >= 1, got 0"),
        ({"memory": -1}, ValueError, "memory must be an integer >= 1"),
        ({"seed": 1.5}, TypeError, "seed must be an integer"),
    ],
)
def test_bad_options(options, error, match):
    with pytest.raises(error, match=match):
        pg.record(**options)


def test_bad_options_of_the_audit():
    with pg.record() as recording:
        pass
    with pytest.raises(ValueError, match="seconds must be a number above 0, or None for as long as it takes, got"):
        recording.audit(seconds=0)
    with pytest.raises(ValueError, match="effort must be one of"):
        recording.audit(effort="whole")

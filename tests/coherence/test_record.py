"""Recording a run and auditing it."""

import json
import math
import os

import pytest
import torch
from torch.autograd import Function

import pairgrad as pg
from pairgrad.coherence import RunReport, Verdict
from pairgrad.coherence.record import HANDS_ON
from pairgrad.coherence.run import interval, ranked, worst_verdict
from tests.coherence.training import Capped, Direction, Net, Opaque, Quarters, same, train

# The story ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def story():
    torch.manual_seed(0)
    plain = train()
    with pg.record() as recording:
        recorded = train()
    return plain, recorded, recording, recording.audit(seconds=None)


def test_the_run_keeps_its_bits(story):
    plain, recorded, _, _ = story
    assert same(plain, recorded)


def test_the_broken_ones_are_named_and_the_others_cleared(story):
    report = story[3]
    nodes = {node.name: node for node in report.nodes}
    assert {name for name, node in nodes.items() if not node.passed} == {"Capped", "Direction"}
    assert [node.name for node in report.nodes[:2]] == sorted(
        ("Capped", "Direction"), key=lambda n: -nodes[n].contribution * nodes[n].defect
    )
    assert not report.passed
    assert report.verdict == "incoherent"
    assert nodes["Quarters"].intent == "straight-through"
    assert nodes["Opaque"].verdict == "coherent"
    assert nodes["Opaque"].worst.limit < 1e-3
    assert report.backwards == 60
    assert {node.visits for node in report.nodes} == {60}


def test_the_share_of_visited_states_is_that_of_the_run(story):
    """Counted exactly, by asking at every step whether a length is above 2.2."""
    wrong = []

    class Counting(Direction):
        @classmethod
        def backward(cls, ctx, grad_output):
            wrong.append(bool((ctx.saved_tensors[1] > 2.2).any()))
            return super().backward(ctx, grad_output)

    class Counted(Net):
        def forward(self, x):
            x = Opaque.apply(self.dropout(Capped.apply(0.6 * self.first(x))))
            x = self.last(Counting.apply(self.second(x)))
            return x + 0.01 * Quarters.apply(x)

    assert same(train(model=Counted), story[0])
    node = next(node for node in story[3].nodes if node.name == "Direction")
    assert 0 < sum(wrong) < 60
    assert node.share_low <= sum(wrong) / 60 <= node.share_high
    assert all(state.passed != wrong[state.visit] for state in node.states)  # each of them, by the number of its visit
    assert node.failed == sum(not state.passed for state in node.states)
    assert len(node.states) == node.looked == 24


def test_contributions_are_what_goes_through(story):
    """Everything before the last layer goes through Direction; of what goes through Opaque, all goes through Capped."""
    nodes = {node.name: node for node in story[3].nodes}
    assert 0.3 < nodes["Direction"].contribution < 1
    assert math.isclose(nodes["Capped"].contribution, nodes["Opaque"].contribution, rel_tol=0.5)
    assert 0.005 < nodes["Quarters"].contribution < 0.02  # 0.01 / 1.01


def test_the_loss_is_looked_at_too(story):
    report = story[3]
    assert report.loss is not None
    assert report.loss_note


def test_words_and_data(story):
    report = story[3]
    text = str(report)
    assert "Direction (tests/coherence/training.py:" in text or "training.py:" in text
    assert "% of the gradient comes through it" in text
    assert "Likely causes" in report.explain()
    data = json.loads(report.to_json())
    assert data["schema"] == "pairgrad.run/1"
    again = RunReport.from_dict(data)
    assert again == report
    assert str(again) == text
    with pytest.raises(ValueError, match=r"schema 'pairgrad.run/1'"):
        RunReport.from_dict(report.nodes[0].worst.to_dict())


# The loss -------------------------------------------------------------------------------------------------------------


def linear_steps(loss_of, steps=3):
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 1))
    for _ in range(steps):
        loss_of(model(torch.randn(6, 5))).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.01 * parameter.grad
                parameter.grad = None


def test_a_run_without_custom_backwards_has_a_coherent_loss():
    with pg.record() as recording:
        linear_steps(lambda y: y.square().mean())
    report = recording.audit()
    assert report.passed
    assert report.nodes == ()
    assert report.loss.verdict == "coherent"
    assert report.loss.name == "loss"


def test_a_loss_that_is_wrong_because_of_a_node_names_it():
    with pg.record() as recording:
        linear_steps(lambda y: Capped.apply(3 + Opaque.apply(y)).mean())
    report = recording.audit()
    assert report.loss.verdict == "incoherent"
    assert report.loss.defect > 0.5
    assert report.loss_note == "the nodes that fail: Capped"


def test_a_declared_node_does_not_excuse_what_it_does_not_carry():
    """A hook loses nine tenths of the gradient; a hundredth of it comes through a straight-through estimator."""

    def loss(y):
        y.register_hook(lambda g: 0.1 * g)
        return (y + 0.01 * Quarters.apply(y)).square().mean()

    with pg.record() as recording:
        linear_steps(loss)
    report = recording.audit()
    assert all(node.passed for node in report.nodes)
    assert not report.loss.passed
    assert not report.passed


def test_a_hook_that_changes_gradients_shows_in_the_loss_alone():
    def loss(y):
        y.register_hook(lambda g: 1.01 * g)
        return y.square().mean()

    with pg.record() as recording:
        linear_steps(loss)
    report = recording.audit()
    assert report.verdict == "incoherent"
    assert not report.passed
    assert report.loss.defect == pytest.approx(0.01, rel=0.02)
    assert "hooks" in report.loss_note


def test_a_loss_that_is_coherent_beside_a_node_that_is_not():
    """Wrong alone by the factor 2, and right in composition."""

    class Double(Function):
        @staticmethod
        def forward(ctx, x):
            return 1 * x

        @staticmethod
        def backward(ctx, grad_output):
            return 2 * grad_output

    class Half(Function):
        @staticmethod
        def forward(ctx, x):
            return 1 * x

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output / 2

    with pg.record() as recording:
        linear_steps(lambda y: Half.apply(Double.apply(y)).square().mean())
    report = recording.audit()
    assert {node.name for node in report.nodes if not node.passed} == {"Double", "Half"}
    assert report.loss.passed
    assert "made good in another" in report.loss_note


def test_declared_mismatches_account_for_the_loss():
    with pg.record() as recording:
        linear_steps(lambda y: (y + Quarters.apply(y)).square().mean())
    report = recording.audit()
    assert report.passed
    assert "as declared: Quarters (straight-through)" in report.loss_note


def test_a_node_that_hands_on_a_gradient_is_judged_by_the_loss():
    """The library's own loss computes its gradient in the forward."""
    state = pg.ClassState(torch.nn.functional.normalize(torch.randn(4, 16), dim=-1), torch.tensor([20.0, 30.0, 40.0, 50.0]))
    features = torch.nn.Linear(3, 16)

    def run():
        f = torch.nn.functional.normalize(features(torch.randn(8, 3)), dim=-1)
        pg.vmf_cross_entropy(f, torch.randint(0, 4, (8,)), state, temperature=0.1).backward()

    with pg.record() as recording:
        run()
    report = recording.audit()
    assert report.passed, report
    assert report.loss.passed
    assert HANDS_ON in {node.note for node in report.nodes}
    assert len(recording._recorder.visits()[0].arguments) > 5  # among them objects with a long description
    with pg.record(loss=False) as recording:
        run()
    report = recording.audit()
    assert report.verdict == "inconclusive"
    assert not report.passed


# What cannot be seen --------------------------------------------------------------------------------------------------


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
    assert "it depends on something else too" in node.note


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


def _rank(rank, port, queue):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.distributed.init_process_group("gloo", rank=rank, world_size=2)
    try:
        wrapped = lambda: torch.nn.parallel.DistributedDataParallel(Net())  # noqa: E731
        plain = train(steps=5, model=wrapped, seed=rank)
        with pg.record(states=3) as recording:
            recorded = train(steps=5, model=wrapped, seed=rank)
        report = recording.audit(effort="glance")
        queue.put((rank, same(plain, recorded), sorted((n.name, n.visits, n.passed) for n in report.nodes), report.loss_note))
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.distributed
@pytest.mark.slow
def test_distributed_data_parallel():
    context = torch.multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    torch.multiprocessing.spawn(_rank, (29731 + os.getpid() % 500, queue), nprocs=2)
    for _ in range(2):
        _, unchanged, nodes, note = queue.get()
        assert unchanged
        assert [(name, visits) for name, visits, _ in nodes] == [("Capped", 5), ("Direction", 5), ("Opaque", 5), ("Quarters", 5)]
        assert not {name: passed for name, _, passed in nodes}["Capped"]
        assert note


# The recording --------------------------------------------------------------------------------------------------------


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


def test_time_is_kept_and_every_function_is_looked_at_once():
    with pg.record() as recording:
        train(steps=30)
    seen = []
    report = recording.audit(seconds=1e-6, progress=seen.append)
    assert [node.looked for node in report.nodes] == [1, 1, 1, 1]
    assert any("time was up" in note for note in report.notes)
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


# Numbers --------------------------------------------------------------------------------------------------------------


def test_the_interval_of_a_share():
    assert interval(0, 0, 10) == (0.0, 1.0)
    assert interval(3, 10, 10) == (0.3, 0.3)
    low, high = interval(8, 24, 10**6)  # Wilson: 0.180, 0.533
    assert (round(low, 3), round(high, 3)) == (0.180, 0.533)
    low, high = interval(24, 24, 30)
    assert low == pytest.approx(0.862, abs=1e-3)
    assert high == 1
    assert interval(0, 24, 30)[1] == pytest.approx(0.138, abs=1e-3)
    assert interval(1, 2, 3)[0] == pytest.approx(1 / 3)  # one of three is known to be bad


def test_the_gravest_verdict():
    assert worst_verdict([]) is Verdict.COHERENT
    assert worst_verdict([Verdict.KINK, Verdict.COHERENT]) is Verdict.KINK
    assert worst_verdict([Verdict.INCONCLUSIVE, Verdict.JUMP, Verdict.KINK]) is Verdict.JUMP
    assert worst_verdict(list(Verdict)) is Verdict.INCOHERENT
    assert {worst_verdict([verdict]) for verdict in Verdict} == set(Verdict)


def test_ranking(story):
    from dataclasses import replace

    node = story[3].nodes[0]
    made = [
        replace(node, name="good", passed=True, defect=0.0, contribution=0.9),
        replace(node, name="small", defect=0.1, contribution=0.1),
        replace(node, name="unknown", passed=False, verdict=Verdict.INCONCLUSIVE, defect=0.0, contribution=1.0),
        replace(node, name="large", defect=0.05, contribution=0.9),
    ]
    assert [node.name for node in ranked(made)] == ["large", "small", "unknown", "good"]

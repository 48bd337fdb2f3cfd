"""Recording a step with compiled regions, data-parallel modules and collectives."""

from __future__ import annotations

import contextlib

import pytest
import torch
from torch import nn
from torch.overrides import _get_current_function_mode_stack

import pairgrad
from tests.coherence.tape.steps import cube, loss_of, parameter, recorded, refusal_of
from tests.distributed.ranks import alone

COMPILED = ", such as one in a region compiled by torch.compile"


def counted(backend, compilations):
    plain = torch._dynamo.lookup_backend(backend)

    def compile(graph, inputs):
        compilations.append(len(graph.graph.nodes))
        return plain(graph, inputs)

    return compile


NOT_A_LEAF = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")  # dynamo looks at it


@NOT_A_LEAF
@pytest.mark.parametrize("at", [0, 2])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_regions(backend, at):
    """Training with a compiled part continues as without a recording, and compiles nothing that it would not have."""

    def run(around):
        torch._dynamo.reset()
        torch.manual_seed(0)
        net, compilations = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Tanh()), []
        compiled, head = torch.compile(net, backend=counted(backend, compilations)), nn.Linear(4, 1)
        parameters = [*net.parameters(), *head.parameters()]
        optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
        losses = []
        for i in range(4):
            with around if i == at else contextlib.nullcontext():
                optimizer.zero_grad()
                loss = head(cube(compiled(head.weight * torch.ones(5, 4)))).square().sum()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
        return losses, compilations, [w.detach().clone() for w in parameters], torch.get_rng_state()

    recording = pairgrad.record()
    losses, compilations, weights, random = run(recording)
    plain_losses, plain_compilations, plain_weights, plain_random = run(contextlib.nullcontext())
    assert losses == plain_losses
    assert compilations == plain_compilations
    assert len(compilations) == 1
    assert all(map(torch.equal, weights, plain_weights))
    assert torch.equal(random, plain_random)
    if backend == "eager" or at == 0:  # nothing that could be seen, or the step in which it is compiled
        assert refusal_of(recording).endswith(COMPILED)
    else:
        assert loss_of(recording).passed
    assert len(compilations) == 1


@NOT_A_LEAF
def test_a_region_with_breaks_and_exceptions():
    torch._dynamo.reset()
    w, compilations = parameter(3), []

    @torch.compiler.disable
    def aside(v):
        if v.numel() == 2:
            raise KeyError("mine")
        return v * 3

    fn = torch.compile(lambda v: aside(v.sin()).cos(), backend=counted("aot_eager", compilations))
    for attempt in range(2):
        with pairgrad.record() as recording:
            h = w * 2
            with pytest.raises(KeyError):
                fn(w[:2])
            assert len(_get_current_function_mode_stack()) == 1
            h = h + fn(w).detach()  # where the graph breaks, calls are made that the recording does not see
            assert len(_get_current_function_mode_stack()) == 1
            h.sum().backward()
        report = recording.audit()
        assert report.loss is not None or report.loss_note.endswith(COMPILED)
        assert attempt or compilations
    first = len(compilations)
    with pytest.raises(KeyError):
        fn(w[:2])
    fn(w)
    assert len(compilations) == first


@NOT_A_LEAF
def test_a_step_that_is_given_up_before_a_region():
    torch._dynamo.reset()
    w, compilations = parameter(3), []
    fn = torch.compile(lambda v: v.exp().sin() * 2, backend=counted("aot_eager", compilations), fullgraph=True)
    fn(w * 1.0)
    with pairgrad.record(memory=1) as recording:
        fn(w * 1.0).sum().backward()
        assert _get_current_function_mode_stack() == []
    assert "memory" in refusal_of(recording)
    assert len(compilations) == 1


def test_what_is_not_compiled_after_all_is_recorded():
    torch._dynamo.reset()
    w = parameter(3)
    fn = torch.compiler.disable(lambda v: v * 2)
    assert loss_of(recorded(lambda: fn(w).sum(), [w])[0]).passed
    with torch.compiler.set_stance("force_eager"):
        recording, *_ = recorded(lambda: torch.compile(lambda v: v * 2)(w).sum(), [w])
    assert loss_of(recording).passed


@pytest.fixture(scope="module")
def group():
    with alone():
        yield


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize("unused", [False, True])
def test_distributed_data_parallel(unused):
    net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
    wrapped, x = nn.parallel.DistributedDataParallel(net, find_unused_parameters=unused), torch.randn(5, 3)
    wrapped(x).sum().backward()
    assert loss_of(recorded(lambda: wrapped(x).square().sum(), list(net.parameters()))[0]).passed


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize("kind", ["plain", "functional", "aside"])
def test_collectives(kind):
    from torch.distributed import _functional_collectives as collectives

    w, x = parameter(3), torch.ones(3)

    def loss():
        h = w * 2
        if kind == "plain":
            torch.distributed.all_reduce(h.detach())
        elif kind == "functional":
            h = collectives.all_reduce(h, "sum", torch.distributed.group.WORLD).wait()
        else:
            torch.distributed.all_reduce(x)
        return (h * x).sum()

    recording, *_ = recorded(loss, [w])
    if kind == "aside":
        assert loss_of(recording).passed
    else:
        assert refusal_of(recording).startswith("the loss goes through a collective of torch.distributed (")


@pytest.mark.usefixtures("group")
def test_functional_collectives_are_not_taken_for_custom_operators():
    from torch.distributed import _functional_collectives as collectives

    w = parameter(3)
    with pairgrad.record(loss=False) as recording:
        for _ in range(3):
            h = collectives.all_reduce(cube(w), "sum", torch.distributed.group.WORLD)
            (h * torch.arange(3.0)).sum().backward()
    report = recording.audit()
    assert [node.name for node in report.nodes] == ["Cube"]
    assert report.passed
    (note,) = report.notes
    assert "collectives of torch.distributed" in note
    assert "_c10d_functional::all_reduce" in note

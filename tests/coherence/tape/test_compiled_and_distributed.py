"""A tape over compiled regions, data-parallel modules and collectives."""

from __future__ import annotations

import contextlib

import pytest
import torch
from torch import nn
from torch.overrides import _get_current_function_mode_stack

from pairgrad.coherence.tape import COMPILED, Tape
from tests.coherence.tape.steps import (
    cube,
    parameter,
    taped,
)
from tests.distributed.ranks import alone

# torch.compile ------------------------------------------------------------------------------------------------------------


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
    """Training with a compiled part goes on as without a tape, and compiles nothing that it would not have."""

    def run(around):
        torch._dynamo.reset()
        torch.manual_seed(0)
        net, compilations = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Tanh()), []
        compiled, head = torch.compile(net, backend=counted(backend, compilations)), nn.Linear(4, 1)
        parameters = [*net.parameters(), *head.parameters()]
        optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
        losses, gradients = [], []
        for i in range(4):
            with around if i == at else contextlib.nullcontext():
                optimizer.zero_grad()
                loss = head(cube(compiled(head.weight * torch.ones(5, 4)))).square().sum()
                loss.backward()
                gradients.append({id(w): w.grad.clone() for w in parameters})
                optimizer.step()
                losses.append(loss.item())
        return losses, compilations, [w.detach().clone() for w in parameters], gradients[at], torch.get_rng_state()

    tape = Tape()
    losses, compilations, weights, gradients, random = run(tape)
    plain_losses, plain_compilations, plain_weights, _, plain_random = run(contextlib.nullcontext())
    assert losses == plain_losses
    assert compilations == plain_compilations
    assert len(compilations) == 1
    assert all(map(torch.equal, weights, plain_weights))
    assert torch.equal(random, plain_random)
    replay = tape.replay({key: str(key) for key in gradients})
    if backend == "eager" or at == 0:  # nothing that the tape could see, or the step in which it is compiled
        assert replay is None
        assert tape.reason.endswith(COMPILED)
        return
    assert replay is not None, tape.reason
    again = replay(*replay.leaves)
    assert again.item() == replay.value == losses[at]
    for name, found in zip(replay.names, torch.autograd.grad(again, replay.leaves), strict=True):
        assert torch.equal(found, gradients[int(name)])
    moved = replay(*(leaf.detach() + 0.1 for leaf in replay.leaves))
    assert moved.item() != again.item()
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

    fn = torch.compile(lambda v: cube(aside(v.sin())).cos(), backend=counted("aot_eager", compilations))
    for attempt in range(2):
        with Tape() as tape:
            h = w * 2
            with pytest.raises(KeyError):
                fn(w[:2])
            assert _get_current_function_mode_stack() == [tape]
            h = h + fn(w).detach()  # where the graph breaks, calls are made that the tape does not see
            assert _get_current_function_mode_stack() == [tape]
            h.sum().backward()
        assert tape.replay() is not None or tape.reason.endswith(COMPILED)
        assert attempt or compilations
    first = len(compilations)
    with pytest.raises(KeyError):
        fn(w[:2])
    fn(w)
    assert len(compilations) == first


@NOT_A_LEAF
def test_a_tape_that_has_ended_before_a_region():
    torch._dynamo.reset()
    w, compilations = parameter(3), []
    fn = torch.compile(lambda v: cube(v).sin() * 2, backend=counted("aot_eager", compilations), fullgraph=True)
    fn(w * 1.0)
    with Tape(memory=0) as tape:
        h = w * 1.0
        assert tape.finished
        fn(h).sum().backward()
        assert _get_current_function_mode_stack() == []
    assert len(compilations) == 1


def test_what_is_disabled_or_eager_is_taped():
    torch._dynamo.reset()
    w = parameter(3)
    fn = torch.compiler.disable(lambda v: v * 2)
    replay = taped(lambda: fn(w).sum(), [w])[0].replay()
    assert replay is not None
    with torch.compiler.set_stance("force_eager"):
        replay = taped(lambda: torch.compile(lambda v: v * 2)(w).sum(), [w])[0].replay()
    assert replay is not None


# torch.distributed --------------------------------------------------------------------------------------------------------


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
    parameters = list(net.parameters())
    tape, value, gradients, _ = taped(lambda: wrapped(x).square().sum(), parameters)
    replay = tape.replay()
    assert replay is not None, tape.reason
    again = replay(*replay.leaves)
    assert again.item() == value
    assert all(map(torch.equal, torch.autograd.grad(again, replay.leaves), gradients))


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

    tape, *_ = taped(loss, [w])
    assert (tape.replay() is not None) == (kind == "aside")
    assert kind == "aside" or tape.reason.startswith("the loss goes through a collective of torch.distributed (")

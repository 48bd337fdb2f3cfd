"""A taped step computes its loss again: the same bits, the gradients that training got, and a function of the parameters; or it says why it cannot."""

from __future__ import annotations

import contextlib
import gc
import re
import socket
import threading
import weakref

import numpy as np
import pytest
import torch
from torch import nn
from torch.autograd import Function
from torch.autograd.function import _SingleLevelFunction
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from torch.utils.checkpoint import checkpoint

import pairgrad
from pairgrad.coherence.nodes import Interception
from pairgrad.coherence.step import Replay
from pairgrad.coherence.subject import rng_state, same_rng, set_rng_state
from pairgrad.coherence.tape import COMPILED, NO_LOSS, Tape

PLACES = (
    (torch.Tensor, "backward"),
    (torch.autograd, "backward"),
    (torch.autograd, "grad"),
    (_SingleLevelFunction, "apply"),
    (torch._dynamo.eval_frame, "_callback_from_stance"),
    (torch._dynamo.eval_frame, "_maybe_set_eval_frame"),
)
BEFORE = [vars(owner).get(name) for owner, name in PLACES]


@pytest.fixture(autouse=True)
def _nothing_left():
    yield
    assert [vars(owner).get(name) for owner, name in PLACES] == BEFORE, "a tape has left something patched"
    assert not any(isinstance(mode, Tape) for mode in _get_current_function_mode_stack())


# Custom Functions -------------------------------------------------------------------------------------------------------


class Cube(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx, u):
        (x,) = ctx.saved_tensors
        return 3 * x * x * u


class Wrong(Cube):
    @staticmethod
    def backward(ctx, u):
        (x,) = ctx.saved_tensors
        return 2 * x * x * u


class Split(Function):
    """Several outputs, one that is no tensor, and a setup_context."""

    @staticmethod
    def forward(x, factor, label):
        return x * factor, label, x.sum() * factor

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.factor, ctx.shape = inputs[1], inputs[0].shape

    @staticmethod
    def backward(ctx, u, _, v):
        return ctx.factor * u + ctx.factor * v.expand(ctx.shape), None, None


class Double_(Function):
    """Edits its argument and returns it."""

    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, u):
        return 2 * u


class Same(Function):
    """Returns its argument, of which torch makes a view."""

    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, u):
        return 3 * u


class Half(Function):
    """Returns a view of its argument."""

    @staticmethod
    def forward(ctx, x):
        ctx.size = x.shape
        return x[:2]

    @staticmethod
    def backward(ctx, u):
        full = torch.zeros(ctx.size, dtype=u.dtype)
        full[:2] = u
        return full


class Dithered(Function):
    """Draws random numbers, from torch and from numpy."""

    @staticmethod
    def forward(ctx, x):
        return x + torch.rand_like(x) + np.random.rand()  # noqa: NPY002

    @staticmethod
    def backward(ctx, u):
        return u


cube = Cube.apply  # kept from before any tape


@torch.library.custom_op("tape_tests::triple", mutates_args=())
def triple(x: torch.Tensor) -> torch.Tensor:
    return 3 * x


triple.register_autograd(lambda ctx, u: 3 * u)


class Named(torch.Tensor):
    """A subclass that only changes the type."""


# Steps: each gives a loss and the tensors it is differentiated by ---------------------------------------------------------


def parameter(*shape):
    return nn.Parameter(torch.randn(*shape))


def mlp():
    net = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True), nn.Dropout(0.4), nn.Linear(8, 3))
    x, y = torch.randn(16, 6), torch.randint(0, 3, (16,))
    return lambda: F.cross_entropy(net(x), y, label_smoothing=0.1), list(net.parameters())


def convolutions():
    net = nn.Sequential(nn.Conv2d(2, 3, 3), nn.GroupNorm(1, 3), nn.GELU(), nn.MaxPool2d(2), nn.Flatten(), nn.LazyLinear(2))
    x = torch.randn(4, 2, 8, 8)
    net(x)
    return lambda: net(x).square().mean(), list(net.parameters())


def attention():
    net = nn.MultiheadAttention(8, 2, dropout=0.2, batch_first=True)
    x = torch.randn(3, 5, 8)
    return lambda: net(x, x, x)[0].square().mean(), list(net.parameters())


def transformer():
    net, embedding = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), nn.Embedding(11, 8, padding_idx=0)
    tokens = torch.randint(0, 11, (3, 5))
    return lambda: net(embedding(tokens)).sum(-1).logsumexp(-1).mean(), [*net.parameters(), embedding.weight]


def recurrent():
    net = nn.LSTM(4, 5, num_layers=2, dropout=0.3)
    x = torch.randn(6, 2, 4)
    return lambda: net(x)[0].pow(2).sum(), list(net.parameters())


def edits():
    w, x = parameter(4, 3), torch.randn(5, 4)

    def loss():
        h = x @ w
        h += 1
        h.relu_()
        h = h + 1
        h[0] = w[0] * 2
        row = h.view(-1)[3:6]
        row.add_(w.sum())
        canvas = torch.zeros(5, 3)
        canvas[1:3] = h[1:3]
        canvas[3].copy_(w[1])
        out = torch.zeros(5, 3)
        with torch.no_grad():
            torch.mul(h, 2, out=out)
        return (h + canvas + out).square().sum()

    return loss, [w]


def without_graph():
    w = parameter(4)

    def loss():
        with torch.no_grad():
            scale = w.abs().max()
        with torch.inference_mode():
            w.sum()
        quantized = (w / scale).round() * scale
        return ((w + (quantized - w).detach()) * w.data).sum()

    return loss, [w]


def autocast():
    net = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6))
    x = torch.randn(5, 6)

    def loss():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            h = net(net(x))  # shared weights: cast once, their gradients added up in bfloat16
            with torch.autocast("cpu", enabled=False):
                h = h.float() @ net[0].weight
            h = net(h)
        return h.float().square().mean()

    return loss, list(net.parameters())


def checkpointed(reentrant):
    def build():
        block, head = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Tanh(), nn.Linear(8, 4)), nn.Linear(4, 1)
        x = torch.randn(3, 4)

        def loss():
            h = head.weight * x
            for _ in range(2):
                h = checkpoint(lambda h: cube(block(h)), h, use_reentrant=reentrant)
            return head(h).sum()

        return loss, [*block.parameters(), *head.parameters()]

    return build


def custom(*functions):
    def build():
        w = parameter(3, 2)

        def loss():
            h = w * 1.5
            for function in functions:
                h = function(h)
            return (h * h).sum() + w.sum()

        return loss, [w]

    return build


def several_outputs():
    w = parameter(3)

    def loss():
        scaled, label, total = Split.apply(w, factor=2.0, label="name")
        assert label == "name"
        return (scaled * total).sum()

    return loss, [w]


def penalty():
    net = nn.Sequential(nn.Linear(3, 4), nn.Softplus(), nn.Linear(4, 1))
    x = torch.randn(5, 3)

    def loss():
        point = x.clone().requires_grad_()
        (slope,) = torch.autograd.grad(net(point).sum(), point, create_graph=True)
        return (slope.norm(dim=1) - 1).square().mean()

    return loss, list(net.parameters())[:3]  # the last bias has no gradient


def adversarial():
    net = nn.Linear(3, 1)
    x = torch.randn(5, 3)

    def loss():
        point = x.clone().requires_grad_()
        (slope,) = torch.autograd.grad(net(point).square().sum(), point)
        return net(x + 0.1 * slope).square().sum()

    return loss, list(net.parameters())


def hooks():
    w = parameter(4)

    def loss():
        h = w * 2
        h.register_hook(lambda u: 5 * u)
        return h.square().sum()

    return loss, [w]


def hook_on_a_parameter():
    w, handles = parameter(4), []

    def loss():
        while handles:
            handles.pop().remove()
        h = w * 2
        handles.append(w.register_hook(lambda u: 5 * u))
        return h.square().sum() + w.sum()

    return loss, [w]


def noise():
    w, generator = parameter(40), torch.Generator()

    def loss():
        generator.manual_seed(5)
        h = w + torch.randn(40)
        np.random.rand()  # noqa: NPY002
        torch.rand(7)
        h = h * torch.bernoulli(torch.sigmoid(w), generator=generator) + torch.bernoulli(torch.sigmoid(h))
        torch.manual_seed(3)
        return F.dropout(h, 0.5).sum() + torch.rand_like(w).dot(w)

    return loss, [w]


def subclassed():
    w, x = parameter(4), torch.randn(4).as_subclass(Named)
    return lambda: (w * x).square().sum(), [w]


def transformed_aside():
    """torch.func on tensors that have nothing to do with the parameters."""
    w, x = parameter(4), torch.randn(4)
    return lambda: (w * torch.func.grad(lambda v: v.pow(3).sum())(x)).sum(), [w]


def weight_norm():
    net = nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))
    x = torch.randn(4, 3)
    return lambda: net(x).square().sum(), list(net.parameters())


def spectral_norm():
    net = nn.utils.parametrizations.spectral_norm(nn.Linear(3, 2))
    x = torch.randn(4, 3)
    return lambda: net.eval()(x).square().sum(), list(net.parameters())


def module_hooks():
    net, seen = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2)), []
    net[1].register_full_backward_hook(lambda module, into, out: seen.append(1))
    x = torch.randn(4, 3)
    return lambda: net(x).square().sum(), list(net.parameters())


def rows():
    w = parameter(3, 2)

    def loss():
        first, *others = w * 2
        return sum((row * first).sum() for row in others)

    return loss, [w]


def sparse():
    net = nn.EmbeddingBag(7, 3, sparse=True)
    tokens = torch.randint(0, 7, (4, 2))
    return lambda: net(tokens).square().sum(), [net.weight]


def scaled():
    """A loss of one element, in double precision, whose gradient is asked with a weight of one."""
    w = nn.Parameter(torch.randn(3, 1, dtype=torch.float64))
    return lambda: torch.einsum("ij,ij->j", w, w) * 65536.0, [w]


STEPS = {
    "mlp": mlp,
    "convolutions": convolutions,
    "attention": attention,
    "transformer": transformer,
    "lstm": recurrent,
    "edits": edits,
    "no_grad": without_graph,
    "autocast": autocast,
    "checkpoint": checkpointed(False),
    "reentrant checkpoint": checkpointed(True),
    "kept apply": custom(cube),
    "wrong backward": custom(Wrong.apply),
    "operator": custom(triple),
    "marked dirty": custom(Double_.apply),
    "output is input": custom(Same.apply),
    "output is view": custom(Half.apply),
    "view, edited": custom(Half.apply, lambda h: h.clone(), Double_.apply, Same.apply),
    "random body": custom(Dithered.apply),
    "several outputs": several_outputs,
    "gradient penalty": penalty,
    "adversarial": adversarial,
    "hooks": hooks,
    "hook on a parameter": hook_on_a_parameter,
    "noise": noise,
    "subclass": subclassed,
    "torch.func aside": transformed_aside,
    "weight norm": weight_norm,
    "spectral norm": spectral_norm,
    "module hooks": module_hooks,
    "rows": rows,
    "sparse gradient": sparse,
    "one element": scaled,
}


def same(a, b):
    return a.layout == b.layout and torch.equal(a.to_dense(), b.to_dense())


def taped(loss, parameters, **options):
    """One step on a tape: the tape, the loss, the gradients, and where the random numbers were."""
    random = rng_state()
    for w in parameters:
        w.grad = None
    with Tape(**options) as tape:
        value = loss()
        value.backward()
    assert tape.finished
    return tape, value.item(), [w.grad.clone() for w in parameters], random


@pytest.mark.parametrize("name", STEPS)
def test_a_step_is_replayed(name):
    loss, parameters = STEPS[name]()
    tape, value, gradients, random = taped(loss, parameters)
    shift = [0.1 * torch.randn_like(w) for w in parameters]
    with torch.no_grad():
        for w, by in zip(parameters, shift, strict=True):
            w += by
    replay = tape.replay({id(w): str(i) for i, w in enumerate(parameters)})
    assert replay is not None, tape.reason
    assert replay.value == value
    assert tape.reason == ""
    order = [replay.names.index(str(i)) for i in range(len(parameters))]
    for _ in range(2):
        now = rng_state()
        again = replay(*replay.leaves)
        assert same_rng(now, rng_state())
        assert again.item() == value
        found = torch.autograd.grad(again, replay.leaves, allow_unused=True)
        for i, gradient in zip(order, gradients, strict=True):
            assert same(found[i], gradient), (replay.names[i], found[i], gradient)
    # at another point it is the loss that the model has there
    moved = [leaf.detach().clone().requires_grad_() for leaf in replay.leaves]
    for i, w in zip(order, parameters, strict=True):
        moved[i] = w.detach().clone().requires_grad_()
    set_rng_state(random)
    there = loss()
    elsewhere = replay(*moved)
    assert elsewhere.item() == there.item() != value
    for w in parameters:
        w.grad = None
    there.backward()
    for found, w in zip(torch.autograd.grad(elsewhere, [moved[i] for i in order]), parameters, strict=True):
        assert same(found, w.grad), (found, w.grad)


def test_functions_on_the_way():
    for build, expected in ((custom(cube, Double_.apply, cube), (Cube, Double_)), (several_outputs, (Split,)), (mlp, ())):
        replay = taped(*build())[0].replay()
        assert isinstance(replay, Replay)
        assert replay.functions == expected
    operator = taped(*custom(triple)())[0].replay()
    assert operator is not None
    assert [function.__name__ for function in operator.functions] == ["GeneratedBackwardFor_tape_tests_triple_default"]


def test_functions_that_the_loss_does_not_depend_on_are_cut():
    w = parameter(3)

    def loss():
        Wrong.apply(w).sum()
        return cube(w).sum()

    replay = taped(loss, [w])[0].replay()
    assert replay is not None
    assert replay.functions == (Cube,)
    assert len(replay._step.calls) == 2


@pytest.mark.parametrize(("function", "verdict"), [(cube, "coherent"), (Wrong.apply, "incoherent")])
def test_the_audit_takes_a_replay(function, verdict):
    w, x = nn.Parameter(torch.rand(4, dtype=torch.float64) + 0.5), torch.rand(4, dtype=torch.float64)
    replay = taped(lambda: (function(w) * x).sum() + F.dropout(w, 0.5).sum(), [w])[0].replay()
    assert replay is not None
    report = pairgrad.audit(replay, replay.leaves, effort="quick")
    assert str(report.verdict) == verdict, report


def test_names():
    weight, point = parameter(3, 2), torch.randn(2, requires_grad=True)
    tape = taped(lambda: (weight @ point).sum(), [weight, point])[0]
    replay = tape.replay()
    assert replay is not None
    assert replay.names == ("parameter 0 (3, 2)", "tensor 1 (2,)")
    assert tape.replay() is replay
    with pytest.raises(TypeError, match=r"leaves must be 2 tensors, as replay.leaves are, got 1"):
        replay(weight)


# Training is left alone -------------------------------------------------------------------------------------------------


def train(around):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True), nn.Dropout(0.4), nn.Linear(8, 3))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
    data = torch.utils.data.TensorDataset(torch.randn(20, 6), torch.randint(0, 3, (20,)))
    losses = []
    with around:
        for _ in range(2):
            for x, y in torch.utils.data.DataLoader(data, 5, shuffle=True):
                optimizer.zero_grad()
                loss = F.cross_entropy(cube(net(x)), y)
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
    return losses, [tensor.clone() for tensor in net.state_dict().values()], torch.get_rng_state()


@pytest.mark.parametrize("memory", [1 << 20, 0])
def test_training_has_the_same_bits(memory):
    tape = Tape(memory=memory)
    losses, state, random = train(tape)
    plain_losses, plain_state, plain_random = train(contextlib.nullcontext())
    assert losses == plain_losses
    assert torch.equal(random, plain_random)
    assert all(map(torch.equal, state, plain_state))
    replay = tape.replay()
    if memory:
        assert replay is not None, tape.reason
        assert replay.value == losses[0]
    else:
        assert replay is None
        assert "MiB or more, memory allows 0 MiB" in tape.reason


def test_constants_are_those_of_the_step():
    """Inputs that are overwritten after the step, and buffers that the step itself edits."""
    w, x, buffer = parameter(3), torch.randn(4, 3), torch.randn(3)

    def loss():
        h = w * x + buffer
        buffer.add_(h.detach().mean(0))
        return (h + buffer).square().sum()

    tape, value, *_ = taped(loss, [w])
    mean = buffer.clone()
    x.zero_()
    replay = tape.replay()
    assert replay is not None, tape.reason
    assert [replay(*replay.leaves).item() for _ in range(3)] == [value] * 3
    assert torch.equal(buffer, mean)


def test_intermediate_results_are_released():
    alive = []

    def step(w):
        h = w * 2
        alive.append(weakref.ref(h))
        return (h + 1).sum()  # nothing that backward needs

    w = parameter(100)
    with Tape() as tape:
        loss = step(w)
        gc.collect()
        assert alive[0]() is None
        loss.backward()
        root = weakref.ref(loss)
        del loss
        gc.collect()
        assert root() is None
    assert tape.replay() is not None
    keeper = weakref.ref(w)
    del w
    gc.collect()
    assert keeper() is None


class Note(Function):
    seen = None

    @staticmethod
    def forward(ctx, x):
        y = x.clone()
        Note.seen = weakref.ref(y)
        return y

    @staticmethod
    def backward(ctx, u):
        return u


class Look(Note):
    gone = None

    @staticmethod
    def forward(ctx, x):
        Look.gone = Note.seen is not None and Note.seen() is None
        return x.clone()


def test_a_replay_releases_them_too():
    w = parameter(3)
    tape, *_ = taped(lambda: Look.apply(Note.apply(w) + 1).sum(), [w])
    replay = tape.replay()
    assert replay is not None, tape.reason
    Look.gone = None
    replay(*replay.leaves)
    assert Look.gone is True


def test_ids_that_are_used_again():
    """A tensor at the address of one that is gone is another tensor."""
    w = parameter(3)

    def loss():
        total = w.sum()
        for i in range(200):
            total = total + (w * torch.full((3,), float(i))).sum()
        return total

    tape, value, *_ = taped(loss, [w])
    replay = tape.replay()
    assert replay is not None, tape.reason
    assert replay(*replay.leaves).item() == value


def test_gradient_accumulation_gives_the_first_loss():
    w = parameter(3)
    with Tape() as tape:
        first = (w * 2).sum()
        first.backward()
        assert tape.finished
        assert not _get_current_function_mode_stack()
        (w * 7).square().sum().backward()
    replay = tape.replay()
    assert replay is not None, tape.reason
    assert replay.value == first.item()


def test_an_optimizer_before_the_step():
    w = parameter(3)
    optimizer = torch.optim.AdamW([w], lr=0.1)
    w.square().sum().backward()
    with Tape() as tape:
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        w.requires_grad_(False)
        w.requires_grad_()
        at = w.detach().clone()
        w.square().sum().backward()
        optimizer.step()
    replay = tape.replay()
    assert replay is not None, tape.reason
    assert torch.equal(replay.leaves[0], at)


@pytest.mark.parametrize("ask", ["backward", "weights", "grad", "inputs"])
def test_ways_to_ask_for_a_gradient(ask):
    w = parameter(3)
    with Tape() as tape:
        loss = cube(w).sum()
        if ask == "backward":
            torch.autograd.backward(loss)
        elif ask == "weights":
            loss.backward(gradient=torch.ones(()))
        elif ask == "grad":
            torch.autograd.grad(loss, [w])
        else:
            loss.backward(inputs=[w])
        assert tape.finished
    replay = tape.replay()
    assert replay is not None, tape.reason
    assert replay.value == loss.item()


# Modes, threads, exceptions -----------------------------------------------------------------------------------------------


class Counting(TorchFunctionMode):
    calls = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.calls += 1
        return func(*args, **(kwargs or {}))


def test_it_is_taken_off_from_below_other_modes():
    w, counting = parameter(3), Counting()
    with Tape() as tape, torch.device("cpu"), counting:
        (w * torch.ones(3)).sum().backward()
        below, above = _get_current_function_mode_stack()
        assert above is counting
        assert below is not tape
        assert counting.calls
    assert _get_current_function_mode_stack() == []
    assert tape.replay() is not None


def test_it_can_be_put_on_within_other_modes_and_taken_off_outside():
    w, tape = parameter(3), Tape()
    with torch.device("cpu"):
        with Counting() as counting:
            tape.__enter__()
            loss = w.sum()
            assert _get_current_function_mode_stack()[-1] is counting
        loss = loss * 2
    assert _get_current_function_mode_stack() == [tape]
    loss.backward()
    assert _get_current_function_mode_stack() == []
    tape.stop()
    assert tape.replay() is not None


def test_a_tape_that_gave_up_lets_everything_pass():
    w = parameter(3)
    with Tape(memory=0) as tape:
        loss = w.square().sum()
        assert tape.finished
        assert torch.equal(cube(w), w**3)  # an opportunity to go
        assert _get_current_function_mode_stack() == []
        loss.backward()
    assert torch.equal(w.grad, 2 * w)
    with Tape(memory=0) as tape:
        w.square()
        tape.stop()
        assert _get_current_function_mode_stack() == []


def test_exceptions_of_the_user_pass():
    w, tape = parameter(3), Tape()
    with pytest.raises(RuntimeError, match="size of tensor"), tape:
        w + torch.ones(4)
    with Tape():
        loss = w.square().sum()
        loss.backward()
        with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
            loss.backward()
    assert tape.reason == NO_LOSS
    with pytest.raises(RuntimeError, match="make a new one"):
        tape.__enter__()
    with pytest.raises(ValueError, match="memory must be an integer >= 0"):
        Tape(memory=-1)


def test_a_function_that_raises():
    class Raising(Function):
        @staticmethod
        def forward(ctx, x):
            raise KeyError("mine")

    w = parameter(3)

    def loss():
        with contextlib.suppress(KeyError):
            Raising.apply(w)
        return cube(w).sum()

    replay = taped(loss, [w])[0].replay()
    assert replay is not None
    assert replay.functions == (Cube,)


class Stubborn(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.Tensor.clone:
            raise KeyError("not me")
        return super().__torch_function__(func, types, args, kwargs)


def test_training_goes_on_if_the_tape_fails(monkeypatch):
    w, x = parameter(3), torch.ones(3).as_subclass(Stubborn)
    tape, value, gradients, _ = taped(lambda: (w * x).sum(), [w])
    assert value == w.sum().item()
    assert torch.equal(gradients[0], torch.ones(3))
    assert tape.replay() is None
    assert tape.reason == "the tape failed with KeyError: 'not me'"
    monkeypatch.setattr("pairgrad.coherence.tape._shaped", None)
    with Tape() as tape:
        (w * 2).backward(torch.ones(3))
    assert tape.reason.startswith("the tape failed with TypeError")


def test_other_threads_are_left_alone():
    w, found = parameter(3), []

    def other():
        v = nn.Parameter(torch.ones(2))
        cube(v).sum().backward()
        found.append(v.grad)

    with Tape() as tape:
        loss = cube(w).sum()
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert not tape.finished
        loss.backward()
    assert torch.equal(found[0], torch.full((2,), 3.0))
    assert tape.replay() is not None


class Watching(Interception):
    """Notes whose forward and backward ran."""

    def __init__(self):
        super().__init__()
        self.ran = []

    def remember(self, function, ctx, arguments):
        self.ran.append(("forward", function, tuple(map(torch.clone, arguments))))

    def backward(self, function, ctx, memory, original, grads):
        self.ran.append(("backward", function, grads))
        return original(ctx, *grads)


@pytest.mark.parametrize("tape_first", [False, True])
def test_beside_an_interception(tape_first):
    w, tape, watching = parameter(3), Tape(), Watching()
    with contextlib.ExitStack() as stack:
        for manager in (tape, watching) if tape_first else (watching, tape):
            stack.enter_context(manager)
        (Wrong.apply(w) * 2).sum().backward()
    assert [(when, function) for when, function, _ in watching.ran] == [("forward", Wrong), ("backward", Wrong)]
    replay = tape.replay()
    assert replay is not None
    assert replay.functions == (Wrong,)
    assert len(replay._step.calls) == 3  # what the interception does is not the step's


# What cannot be done again ------------------------------------------------------------------------------------------------


def outside():
    w = parameter(3)
    before = w * 2
    return lambda: (before * w).sum(), [w]


def outside_loss():
    w = parameter(3)
    total = w.sum()
    return lambda: total, [w]


def transformed():
    w = parameter(3)
    return lambda: torch.func.grad(lambda v: v.pow(3).sum())(w).sum(), [w]


def edited_parameter():
    w = parameter(3)

    def loss():
        h = w * 2
        with torch.no_grad():
            w[0].clamp_(-1, 1)
        return h.sum() + w.sum()

    return loss, [w]


def replaced_data():
    w = parameter(3)

    def loss():
        h = w * 2
        w.data = w.data + 1
        return h.sum() + w.sum()

    return loss, [w]


def unseen_edit():
    w, x = parameter(3), torch.ones(3)

    def loss():
        h = w + x
        with torch._C.DisableTorchFunction():
            x.add_(1)
        return (h + x).square().sum()

    return loss, [w]


def shared_memory():
    w, x = parameter(4), torch.ones(4)
    part = x[:2]

    def loss():
        h = w[:2] + part + (w + x).sum()
        x.add_(w.detach())
        return (h + part).square().sum()

    return loss, [w]


def shared_memory_late():
    w, x = parameter(4), torch.ones(4)
    part = x[:2]

    def loss():
        with torch.no_grad():
            x.copy_(w)
        return (w[:2] * part).sum()

    return loss, [w]


def switched():
    w, v = parameter(3), parameter(3)

    def loss():
        h = w * v
        v.requires_grad_(False)
        return (h * v).sum()

    return loss, [w]


def hooked_parameter():
    w = parameter(3)
    w.register_hook(lambda u: 2 * u)
    return lambda: w.square().sum(), [w]


def hidden_in_a_checkpoint():
    w = parameter(3)

    def inner(h):
        with torch.no_grad():
            scale = w.abs().max()
        return h * scale

    return lambda: checkpoint(inner, w * 2, use_reentrant=True).sum(), [w]


def scripted():
    w = parameter(3)
    fn = torch.jit.trace(lambda v: v * v, torch.ones(3))
    return lambda: fn(w).sum(), [w]


class Hidden(Function):
    """Depends on a tensor that it is not given."""

    weight = torch.ones(3)

    @staticmethod
    def forward(ctx, x):
        return x * Hidden.weight

    @staticmethod
    def backward(ctx, u):
        return u * Hidden.weight


def hidden_state():
    w = parameter(3)
    Hidden.weight = torch.ones(3)
    return lambda: Hidden.apply(w).sum(), [w]


REFUSED = {
    "graph from outside": (outside, r"a tensor of shape \(3,\) \(MulBackward0\) was made before the tape was on"),
    "loss from outside": (outside_loss, "the loss was made before the tape was on"),
    "torch.func": (transformed, "by a call that is not seen, such as one under a torch.func transform"),
    "parameter edited": (edited_parameter, "a parameter of shape .* is edited in place within the step"),
    "data replaced": (replaced_data, "the data of a tensor is replaced within the step"),
    "shared memory, met late": (shared_memory_late, "shares memory with one that was edited in place"),
    "shared memory": (shared_memory, "is edited in place, and tensors that share its memory are in use"),
    "switched off": (switched, "a parameter is switched on or off within the step"),
    "hook on a parameter": (hooked_parameter, "the replayed gradient of parameter 0 .* is off by 5.0e-01 of its size"),
    "no_grad in a checkpoint": (hidden_in_a_checkpoint, "the replayed gradient of parameter 0"),
    "jit": (scripted, "was made before the tape was on, or by a call that is not seen"),
}


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
@pytest.mark.parametrize("name", REFUSED)
def test_a_reason_is_given(name):
    build, reason = REFUSED[name]
    state = torch.get_rng_state()
    loss, parameters = build()
    tape, value, gradients, _ = taped(loss, parameters)
    assert tape.replay() is None
    assert re.search(reason, tape.reason), tape.reason
    torch.set_rng_state(state)
    loss, parameters = build()
    plain = loss()
    plain.backward()
    assert plain.item() == value
    assert all(torch.equal(w.grad, gradient) for w, gradient in zip(parameters, gradients, strict=True))


def test_state_that_is_not_seen():
    tape, value, *_ = taped(*hidden_state())
    Hidden.weight = torch.full((3,), 2.0)
    assert tape.replay() is None
    assert tape.reason == f"the replayed loss is {2 * value!r}, the step had {value!r}: something it depends on was not seen"
    tape, *_ = taped(*hidden_state())
    Hidden.weight = None
    assert tape.replay() is None
    assert tape.reason.startswith("the replay raised TypeError: ")


def test_no_loss():
    w = parameter(3)
    with Tape() as tape:
        w.sum()
    assert tape.replay() is None
    assert tape.reason == NO_LOSS
    with Tape() as tape:
        (w * 2).backward(torch.arange(3.0))
    assert tape.reason == "a gradient is asked of a tensor of shape (3,) with weights, not of a loss"
    with Tape() as tape:
        torch.autograd.backward([w.sum(), (w * 2).sum()])
    assert tape.reason == "a gradient is asked of 2 tensors at once, not of one loss"


def test_a_loss_that_is_not_a_number():
    w = nn.Parameter(torch.tensor([-1.0, 2.0]))
    replay = taped(lambda: w.log().sum(), [w])[0].replay()
    assert replay is not None
    assert np.isnan(replay.value)


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
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


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


def detached_fake():
    """A discriminator's step, with the generator before it."""
    make, judge = nn.Linear(3, 4), nn.Linear(4, 1)
    return (lambda: judge(make(torch.ones(5, 3)).detach()).square().sum()), list(judge.parameters())


def target_network():
    online, target = nn.Linear(3, 2), nn.Linear(3, 2)

    def loss():
        with torch.no_grad():
            wanted = target(torch.ones(5, 3)).max(dim=1).values
        return (online(torch.ones(5, 3)).max(dim=1).values - wanted).square().sum()

    return loss, list(online.parameters())


def frozen_backbone():
    backbone, head = nn.Linear(3, 4), nn.Linear(4, 1)

    def loss():
        with torch.no_grad():
            features = backbone(torch.ones(5, 3))
        return head(features).square().sum()

    return loss, list(head.parameters())


@pytest.mark.parametrize("build", [detached_fake, target_network, frozen_backbone])
def test_parameters_that_get_no_gradient_are_held_fixed(build):
    """So that the gradient that training gets is the derivative of the loss that is replayed."""
    loss, parameters = build()
    tape, value, _gradients, _ = taped(loss, parameters)
    replay = tape.replay()
    assert replay is not None, tape.reason
    assert replay.value == value
    assert {leaf.shape for leaf in replay.leaves} == {w.shape for w in parameters}
    assert len(replay.leaves) == len(parameters)
    report = pairgrad.audit(replay, replay.leaves, effort="quick", second_order=False, consequences=False)
    assert report.passed, report


def test_constants_that_change_are_met_anew():
    tape, value, *_ = taped(*unseen_edit())
    replay = tape.replay()
    assert replay is not None, tape.reason
    assert replay.value == value


def test_what_is_done_without_gradients_before_the_step_takes_no_memory():
    model, batches = nn.Linear(8, 8), [torch.randn(4, 8) for _ in range(300)]

    def loss():
        with torch.no_grad():
            for batch in batches:
                model(batch)
        return model(batches[0]).square().sum()

    tape, *_ = taped(loss, list(model.parameters()), memory=4096)
    assert tape.replay() is not None, tape.reason


def test_a_tape_that_finds_no_end(monkeypatch):
    monkeypatch.setattr("pairgrad.coherence.tape.CALLS", 50)
    w = torch.ones(3, requires_grad=True)
    with Tape() as tape:
        for _ in range(100):
            w.square()
        assert tape.finished
    assert tape.reason == "no gradient was asked of a loss within 50 calls"

"""Steps of training to be recorded: each gives a loss and the tensors it is differentiated by. And the custom Functions in them."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.autograd import Function
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import pairgrad


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


cube = Cube.apply  # kept from before any recording


@torch.library.custom_op("tape_tests::triple", mutates_args=())
def triple(x: torch.Tensor) -> torch.Tensor:
    return 3 * x


triple.register_autograd(lambda ctx, u: 3 * u)


class Named(torch.Tensor):
    """A subclass that only changes the type."""


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
        named = torch.__version__ >= (2, 13)  # from then on, apply takes keywords
        scaled, label, total = Split.apply(w, factor=2.0, label="name") if named else Split.apply(w, 2.0, "name")
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


def recorded(loss, parameters, **options):
    """One step inside a recording: the recording, the value of the loss, and the gradients."""
    for w in parameters:
        w.grad = None
    with pairgrad.record(**options) as recording:
        value = loss()
        value.backward()
    return recording, value.item(), [w.grad.clone() for w in parameters]


def loss_of(recording):
    """The report on the recorded loss, which must be there."""
    report = recording.audit()
    assert report.loss is not None, report.loss_note
    return report.loss


def refusal_of(recording):
    """Why the recorded loss cannot be computed again."""
    report = recording.audit()
    assert report.loss is None
    return report.loss_note

"""A training loop with several custom backwards: two broken at some of the states it visits, one opaque but right, one declared."""

import numpy as np
import torch
from torch.autograd import Function
from torch.nn import functional as F

import pairgrad as pg


class Capped(Function):
    """sinh with a slope that is clipped: wrong where cosh(x) > 1.3."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.sinh(x)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * torch.cosh(x).clamp(max=1.3)


class Direction(Function):
    """x / |x| whose backward forgets the length where it is above 2.2."""

    @classmethod
    def forward(cls, ctx, x):
        length = x.norm(dim=-1, keepdim=True)
        ctx.save_for_backward(x, length)
        return x / length

    @classmethod
    def backward(cls, ctx, grad_output):
        x, _ = ctx.saved_tensors
        length = x.norm(dim=-1, keepdim=True)  # not the one that was saved, which does not depend on x for a second derivative
        unit = x / length
        tangent = grad_output - (grad_output * unit).sum(-1, keepdim=True) * unit
        return torch.where(length > 2.2, grad_output, tangent) / length


class Opaque(Function):
    """log(1 + e^x) by numpy, with the right slope."""

    @staticmethod
    def forward(x):
        return torch.from_numpy(np.log1p(np.exp(x.detach().numpy())))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * torch.sigmoid(ctx.saved_tensors[0])


@pg.intended("straight-through")
class Quarters(Function):
    @staticmethod
    def forward(ctx, x):
        return torch.round(4 * x) / 4

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output


capped = Capped.apply  # as a module would at import


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = torch.nn.Linear(8, 16), torch.nn.Linear(16, 8), torch.nn.Linear(8, 4)
        self.dropout = torch.nn.Dropout(0.1)

    def forward(self, x):
        x = Opaque.apply(self.dropout(capped(0.6 * self.first(x))))
        x = self.last(Direction.apply(self.second(x)))
        return x + 0.01 * Quarters.apply(x)


def train(steps=60, model=Net, after=lambda: None, seed=0):
    """The losses and the parameters at the end."""
    torch.manual_seed(seed)
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(torch.randn(32, 8)), torch.randint(0, 4, (32,)))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        after()
    return losses, [parameter.detach().clone() for parameter in net.parameters()]


def same(first, second):
    return first[0] == second[0] and all(torch.equal(a, b) for a, b in zip(first[1], second[1], strict=True))


def linear_steps(loss_of, steps=3):
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 1))
    for _ in range(steps):
        loss_of(model(torch.randn(6, 5))).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.01 * parameter.grad
                parameter.grad = None

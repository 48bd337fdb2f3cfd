"""ReversibleSequence: with create_graph=True its gradient is a constant, so a gradient penalty loses it.

pip install memory-efficient-attention-pytorch==0.1.6"""

import torch
from memory_efficient_attention_pytorch.reversible import ReversibleSequence
from torch.nn import Linear, ModuleList, Sequential, Tanh

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
f, g = Sequential(Linear(3, 3), Tanh()), Sequential(Linear(3, 3), Tanh())
module = ReversibleSequence(ModuleList([ModuleList([f, g])]))
x, w, v = torch.randn(1, 2, 3), torch.randn(3, 3), torch.randn(3, 3)


def plain(x):
    first = x + f(x)
    return first + x + g(first)


def second(fn):
    leaf, given = w.clone().requires_grad_(), x.clone().requires_grad_()
    out = fn(given @ leaf)
    (made,) = torch.autograd.grad(out.square().sum(), given, create_graph=True)
    (h,) = torch.autograd.grad(made.square().sum(), leaf)  # no error is raised
    return float((out * out).sum()), float((h * v).sum())


(value, supplied), (same, true) = second(module), second(plain)
print(
    f"values {value:.6f} and {same:.6f}; derivative of the squared gradient along a direction in w: supplied {supplied:.6f}, true {true:.6f}"
)
raise SystemExit(0 if abs(value - same) < 1e-9 and abs(supplied - true) > 0.01 * abs(true) else 1)

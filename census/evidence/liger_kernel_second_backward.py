"""liger_swiglu and liger_geglu: a second backward through one graph differs from the first. In Triton's interpreter; pip install liger-kernel==0.8.5 triton"""

import os

os.environ["TRITON_INTERPRET"] = "1"

import numpy
import torch
import triton.language as tl
from triton.language.extra import libdevice

libdevice.rsqrt = lambda x: 1 / tl.sqrt(x)  # the interpreter of triton 3.7 returns None for functions of libdevice
libdevice.tanh = lambda x: 2 * tl.sigmoid(2 * x) - 1
from liger_kernel.transformers.functional import liger_geglu, liger_swiglu  # noqa: E402
from triton.runtime import interpreter  # noqa: E402

plain_argument = interpreter._implicit_cvt  # numbers reach a kernel as float32 on a GPU, and unchanged in the interpreter of triton 3.7
interpreter._implicit_cvt = lambda a: (
    tl.tensor(interpreter.TensorHandle(numpy.array([a], numpy.float32), tl.float32), tl.float32) if type(a) is float else plain_argument(a)
)

torch.manual_seed(0)
a, b, u = torch.randn(2, 8, requires_grad=True), torch.randn(2, 8, requires_grad=True), torch.randn(2, 8)
gelu = torch.nn.functional.gelu
wrong = 0
for fn, plain in (
    (liger_swiglu, lambda a, b: torch.nn.functional.silu(a) * b),
    (liger_geglu, lambda a, b: gelu(a, approximate="tanh") * b),
):
    out = fn(1 * a, 1 * b)
    first = torch.autograd.grad(out, a, u.clone(), retain_graph=True)[0].clone()
    second = torch.autograd.grad(out, a, u.clone(), retain_graph=True)[0]
    (true,) = torch.autograd.grad(plain(a, b), a, u)
    off = [float((g - true).norm() / true.norm()) for g in (first, second)]
    wrong += off[1] > 0.1
    print(f"{fn.__name__}: first backward off by {off[0]:.1e}, second by {off[1]:.2f} of the true gradient")
raise SystemExit(0 if wrong == 2 else 1)

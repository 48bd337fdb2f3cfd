"""liger_kl_div, liger_jsd and liger_tvd supply no gradient for their second argument. In Triton's interpreter; pip install liger-kernel==0.8.5 triton"""

import os

os.environ["TRITON_INTERPRET"] = "1"

import numpy
import torch
import triton.language as tl
from liger_kernel.transformers.functional import liger_jsd, liger_kl_div, liger_tvd
from triton.runtime import interpreter

plain_argument = interpreter._implicit_cvt  # numbers reach a kernel as float32 on a GPU, and unchanged in the interpreter of triton 3.7
interpreter._implicit_cvt = lambda a: (
    tl.tensor(interpreter.TensorHandle(numpy.array([a], numpy.float32), tl.float32), tl.float32) if type(a) is float else plain_argument(a)
)

torch.manual_seed(0)
a, b, v = torch.randn(4, 8), torch.randn(4, 8), torch.randn(4, 8)
losses = {
    "liger_kl_div": lambda b: liger_kl_div(a.log_softmax(-1), b.softmax(-1)),
    "liger_jsd": lambda b: liger_jsd(a.log_softmax(-1), b.log_softmax(-1), beta=0.3),
    "liger_tvd": lambda b: liger_tvd(a.softmax(-1), b.softmax(-1)),
}
wrong = 0
for name, loss in losses.items():
    leaf = b.clone().requires_grad_()
    made = loss(leaf)
    supplied = torch.autograd.grad(made, leaf, allow_unused=True)[0] if made.requires_grad else None
    h = 1e-2
    true = float(loss(b + h * v) - loss(b - h * v)) / (2 * h)
    wrong += supplied is None and abs(true) > 1e-3
    print(f"{name}: supplied {supplied}, true {true:.4f} along a direction")
raise SystemExit(0 if wrong == 3 else 1)

"""liger_rms_norm writes its gradient into grad_output unless in_place=False. In Triton's interpreter; pip install liger-kernel==0.8.5 triton"""

import os

os.environ["TRITON_INTERPRET"] = "1"

import numpy
import torch
import triton.language as tl
from triton.language.extra import libdevice

libdevice.rsqrt = lambda x: 1 / tl.sqrt(x)  # the interpreter of triton 3.7 returns None for functions of libdevice
libdevice.tanh = lambda x: 2 * tl.sigmoid(2 * x) - 1
from liger_kernel.transformers.functional import liger_rms_norm  # noqa: E402
from triton.runtime import interpreter  # noqa: E402

plain_argument = interpreter._implicit_cvt  # numbers reach a kernel as float32 on a GPU, and unchanged in the interpreter of triton 3.7
interpreter._implicit_cvt = lambda a: (
    tl.tensor(interpreter.TensorHandle(numpy.array([a], numpy.float32), tl.float32), tl.float32) if type(a) is float else plain_argument(a)
)

torch.manual_seed(0)
x, w, u = torch.randn(3, 8, requires_grad=True), torch.randn(8), torch.randn(3, 8)
changed = {}
for in_place in (True, False):
    sent = u.clone()
    torch.autograd.grad(liger_rms_norm(x, w, 1e-6, in_place=in_place), x, sent)
    changed[in_place] = float((sent - u).norm() / u.norm())
    print(f"in_place={in_place}: grad_output changes by {changed[in_place]:.2f} of its length")
raise SystemExit(0 if changed[True] > 0.1 and changed[False] == 0 else 1)

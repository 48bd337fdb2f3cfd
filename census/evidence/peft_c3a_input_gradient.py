"""BlockCircularConvolution of peft's C3A correlates grad_output with the weight in the gradient of its input, where
that is their circular convolution. pip install peft==0.21.2"""

import sys

import torch

for unneeded in ("torchvision", "torchaudio"):  # a build of them for another device would break the import of transformers
    sys.modules.setdefault(unneeded, None)
from peft.tuners.c3a.utils import BlockCircularConvolution  # noqa: E402
from torch.fft import fft, ifft  # noqa: E402


def plain(x, w):
    blocks = x.reshape(*x.shape[:-1], w.shape[1], w.shape[2])
    return fft(torch.einsum("...nb,mnb->...mb", ifft(blocks), fft(w))).real.flatten(-2)


torch.manual_seed(0)
x = torch.randn(2, 8, dtype=torch.float64, requires_grad=True)
w = torch.randn(3, 2, 4, dtype=torch.float64, requires_grad=True)
u = torch.randn(2, 12, dtype=torch.float64)
assert torch.allclose(BlockCircularConvolution.apply(x, w), plain(x, w))
supplied = torch.autograd.grad((BlockCircularConvolution.apply(x, w) * u).sum(), (x, w))
true = torch.autograd.grad((plain(x, w) * u).sum(), (x, w))
h = 1e-4
e = torch.zeros_like(x)
e[0, 1] = h
difference = ((plain(x + e, w) - plain(x - e, w)) * u).sum().item() / (2 * h)
off = [((s - t).norm() / t.norm()).item() for s, t in zip(supplied, true, strict=True)]
print(
    "block 0 of x: supplied", [round(g, 5) for g in supplied[0][0, :4].tolist()], ", true", [round(g, 5) for g in true[0][0, :4].tolist()]
)
print(f"x[0, 1]: supplied {supplied[0][0, 1].item():.5f}, true {true[0][0, 1].item():.5f}, differences {difference:.5f}")
print(f"off by {off[0]:.3g} of the gradient of x, {off[1]:.1g} of that of w")
flipped = (u.reshape(2, 3, 4)[..., [0, 3, 2, 1]]).reshape(2, 12)  # what is supplied belongs to this cotangent: reversed within each block
(other,) = torch.autograd.grad((plain(x, w) * flipped).sum(), x)
raise SystemExit(0 if off[0] > 0.1 and off[1] < 1e-12 and torch.allclose(supplied[0], other) else 1)

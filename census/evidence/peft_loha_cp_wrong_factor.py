"""HadaWeightCP.backward of peft's LoHa contracts the gradients of w1a and w2a with the factor of the other half: they
are wrong for convolutions.

pip install peft==0.21.2
"""

import sys

import torch

for unneeded in ("torchvision", "torchaudio"):  # a build of them for another device would break the import of transformers
    sys.modules.setdefault(unneeded, None)
from peft.tuners.loha.layer import make_weight_cp  # noqa: E402


def plain(t1, w1a, w1b, t2, w2a, w2b, scale):
    one = torch.einsum("i j k l, j r, i p -> p r k l", t1, w1b, w1a)
    return one * torch.einsum("i j k l, j r, i p -> p r k l", t2, w2b, w2a) * scale


torch.manual_seed(0)
shapes = ((2, 2, 3, 3), (2, 5), (2, 4), (2, 2, 3, 3), (2, 5), (2, 4))
w = [torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
scale = torch.tensor(0.5, dtype=torch.float64)
u = torch.randn(5, 4, 3, 3, dtype=torch.float64)
assert torch.equal(make_weight_cp(*w, scale), plain(*w, scale))
supplied = torch.autograd.grad((make_weight_cp(*w, scale) * u).sum(), w)
true = torch.autograd.grad((plain(*w, scale) * u).sum(), w)
off = {}
for name, s, t in zip(("t1", "w1a", "w1b", "t2", "w2a", "w2b"), supplied, true, strict=True):
    off[name] = ((s - t).norm() / t.norm()).item()
    print(f"{name}: supplied {s.flatten()[0].item():9.5f}, true {t.flatten()[0].item():9.5f}, off by {off[name]:.2g} of the gradient")
raise SystemExit(0 if off["w1a"] > 0.1 and off["w2a"] > 0.1 and max(off[n] for n in ("t1", "w1b", "t2", "w2b")) < 1e-12 else 1)

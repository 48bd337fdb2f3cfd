"""ReversibleSequence: a backward in evaluation mode raises, as no random state was recorded. pip install memory-efficient-attention-pytorch==0.1.6"""

import torch
from memory_efficient_attention_pytorch.reversible import ReversibleSequence
from torch.nn import Linear, ModuleList

torch.manual_seed(0)
module = ReversibleSequence(ModuleList([ModuleList([Linear(3, 3), Linear(3, 3)])]))
x = torch.randn(1, 2, 3, requires_grad=True)
(true,) = torch.autograd.grad(module(x).sum(), x)
print(f"true, by the same layers (which have no dropout) in training mode: a gradient of length {float(true.norm()):.4f}")
module = ReversibleSequence(ModuleList([ModuleList([Linear(3, 3), Linear(3, 3)])])).eval()
try:
    torch.autograd.grad(module(x).sum(), x)
except TypeError as error:
    print(f"supplied in evaluation mode: TypeError: {error}")
    raise SystemExit(0) from None
raise SystemExit(1)

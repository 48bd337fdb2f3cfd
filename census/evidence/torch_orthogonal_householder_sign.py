"""orthogonal(orthogonal_map="householder") is zero after a step with weight decay. pip install torch==2.13.0."""

import torch
from torch import nn

torch.manual_seed(0)
layer = nn.utils.parametrizations.orthogonal(nn.Linear(4, 3), orthogonal_map="householder")
optimiser = torch.optim.AdamW(layer.parameters(), lr=1e-3, weight_decay=1e-2)
before = layer.weight.detach().clone()
layer(torch.randn(2, 4)).sum().backward()
gradient = layer.parametrizations.weight.original.grad.diagonal().tolist()
optimiser.step()
after = layer.weight.detach()
print(f"norms of the rows before: {before.norm(dim=1).tolist()}")
print(f"the parameter's diagonal after one step: {layer.parametrizations.weight.original.diagonal().tolist()}, its gradient was {gradient}")
print(f"norms of the rows after: supplied {after.norm(dim=1).tolist()}, documented 1 (orthonormal)")
raise SystemExit(0 if float(after.abs().max()) == 0 and abs(float(before.norm(dim=1).min()) - 1) < 1e-5 else 1)

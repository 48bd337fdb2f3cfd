"""The backward of StochasticSpikeOperator draws random numbers: two backwards through one graph supply different gradients.

pip install snntorch==1.0.0
"""

import torch
from snntorch import surrogate

x = torch.tensor([-0.5, -0.2, 0.3], requires_grad=True)
out = surrogate.SSO()(x).sum()
first, second = (torch.autograd.grad(out, x, retain_graph=True)[0] for _ in range(2))
print("supplied", first.tolist(), "and then", second.tolist(), ", true (documented): uniform in [-0.1, 0.1) below the threshold, 1 above")
raise SystemExit(0 if not torch.equal(first, second) and first[2] == second[2] == 1 and first.abs()[:2].max() <= 0.1 else 1)

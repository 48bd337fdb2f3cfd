"""Pathwise gradients of the logits are biased unless the means differ along themselves: moving all means changes them. pip install pyro-ppl==1.9.2"""

import torch
from pyro.distributions import MixtureOfDiagNormals

torch.manual_seed(0)
locs = torch.tensor([[1.0, 1.5], [-1.0, 1.5]], dtype=torch.float64)
logits = torch.tensor([0.3, -0.3], dtype=torch.float64, requires_grad=True)
(true,) = torch.autograd.grad((logits.softmax(-1) * locs.prod(-1)).sum(), logits)  # E[x y] is the mean of the products of the means
batches = []
for _ in range(20):
    z = MixtureOfDiagNormals(locs, torch.ones(2, 2, dtype=torch.float64), logits).rsample((20000,))
    batches.append(torch.autograd.grad(z.prod(-1).mean(), logits)[0])
supplied, error = torch.stack(batches).mean(0), torch.stack(batches).std(0) / 20**0.5
print(f"derivative of E[x y] by the first logit: supplied {supplied[0].item():.4f} +- {error[0].item():.4f}, true {true[0].item():.4f}")
raise SystemExit(0 if abs(supplied[0] - true[0]) > 20 * error[0] else 1)

"""The surrogate gradient of FakeNumericalGradient at -0.0 is -inf, where the documented min(1 / |x|, alpha) is alpha.

pip install spikingjelly==2.0.0
"""

import torch
from spikingjelly.activation_based.surrogate import FakeNumericalGradient

x = torch.tensor([1e-3, 0.0, -0.0, -1e-3], requires_grad=True)
FakeNumericalGradient(alpha=0.3)(x).sum().backward()
true = (1 / x.detach().abs()).clamp_max(0.3)
print("x       ", x.detach().tolist())
print("supplied", x.grad.tolist())
print("true    ", true.tolist())
borne_out = torch.equal(x.grad[[0, 1, 3]], true[[0, 1, 3]]) and x.grad[2].item() == -float("inf")
raise SystemExit(0 if borne_out else 1)

"""The primitive of S2NN adds 1e-5 within the logarithm, so that its derivative is not the surrogate gradient beta / (x
+ 1) that is documented and supplied.

pip install spikingjelly==2.0.0
"""

import torch
from spikingjelly.activation_based.surrogate import S2NN

x = torch.tensor([0.0, 0.1, 0.5, 2.0], dtype=torch.float64, requires_grad=True)
(supplied,) = torch.autograd.grad(S2NN(spiking=True)(x).sum(), x)
(true,) = torch.autograd.grad(S2NN(spiking=False)(x).sum(), x)
off = (supplied / true - 1).tolist()
print("supplied (spiking=True), true (derivative of spiking=False):")
for s, t in zip(supplied.tolist(), true.tolist(), strict=True):
    print(f"supplied {s:.12f}, true {t:.12f}")
borne_out = all(1e-6 < o < 2e-5 for o in off) and torch.allclose(supplied, 1 / (x + 1), rtol=1e-14)
raise SystemExit(0 if borne_out else 1)

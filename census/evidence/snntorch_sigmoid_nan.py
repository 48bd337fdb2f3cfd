"""The gradient of snntorch.surrogate.sigmoid is nan for membrane potentials below about -3.4 (at the default slope),
where the true one underflows to zero.

pip install snntorch==1.0.0
"""

import torch
from snntorch import surrogate

x = torch.tensor([-1.0, -3.3, -3.6, -6.0], requires_grad=True)  # the threshold is subtracted already
surrogate.sigmoid()(x).sum().backward()  # the default slope, 25
wide = x.detach().double().requires_grad_()
torch.sigmoid(25 * wide).sum().backward()
print("x       ", x.detach().tolist())
print("supplied", x.grad.tolist())
print("true    ", wide.grad.tolist())
borne_out = x.grad[:2].isfinite().all() and x.grad[2:].isnan().all() and wide.grad.isfinite().all()
raise SystemExit(0 if borne_out else 1)

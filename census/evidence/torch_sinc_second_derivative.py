"""The second derivative of torch.sinc at 0 is NaN; it is -pi^2 / 3. pip install torch==2.13.0."""

import math

import torch

x = torch.tensor([0.0, 1e-3], dtype=torch.float64, requires_grad=True)
(first,) = torch.autograd.grad(torch.sinc(x).sum(), x, create_graph=True)
(second,) = torch.autograd.grad(first.sum(), x)
print(f"at 0: supplied {float(second[0])}, true {-(math.pi**2) / 3:.9f}; at 0.001: supplied {float(second[1]):.9f}")
raise SystemExit(0 if math.isnan(float(second[0])) else 1)

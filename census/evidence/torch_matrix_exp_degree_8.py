"""matrix_exp of a small rotation is right to ten digits only, its gradient to all. pip install torch==2.13.0."""

import math

import torch

borne_out = False
for angle in (0.01, 0.04, 0.1):
    t = torch.tensor(angle, dtype=torch.float64, requires_grad=True)
    cosine = torch.linalg.matrix_exp(t * torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64))
    value = float(cosine[1, 0])
    print(f"angle {angle}: supplied value {value:.16f}, true {math.sin(angle):.16f}, off by {value / math.sin(angle) - 1:.1e}")
    borne_out |= abs(value / math.sin(angle) - 1) > 1e-12
raise SystemExit(0 if borne_out else 1)

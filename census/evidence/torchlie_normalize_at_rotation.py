"""SO3.normalize at a rotation matrix: the supplied gradient beside differences and the polar decomposition. pip install torchlie==0.1.0"""

import torch
from torchlie.functional import SO3

torch.manual_seed(0)
direction, u = torch.randn(2, 3, 3, dtype=torch.float64)
borne_out = True
for name, vector in (("identity", [0.0, 0.0, 0.0]), ("rotation", [0.4, -0.3, 0.6])):
    rotation = SO3.exp(torch.tensor(vector, dtype=torch.float64))
    leaf = rotation.clone().requires_grad_()
    (SO3.normalize(leaf) * u).sum().backward()
    supplied = float((leaf.grad * direction).sum())

    def value(h, rotation=rotation):
        return float((SO3.normalize(rotation + h * direction) * u).sum())

    true = (8 * (value(1e-3) - value(-1e-3)) - (value(2e-3) - value(-2e-3))) / 12e-3
    inner = rotation.mT @ direction
    polar = float((rotation @ (inner - inner.mT) / 2 * u).sum())  # the derivative of the polar factor at a rotation, in closed form
    print(f"{name}: derivative along a direction: supplied {supplied:.8f}, true {true:.8f} (differences), {polar:.8f} (closed form)")
    borne_out &= abs(true - polar) < 1e-6 and abs(supplied - true) > 0.05 * abs(true)
raise SystemExit(0 if borne_out else 1)

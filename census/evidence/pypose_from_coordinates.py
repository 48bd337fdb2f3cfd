"""euler2SO3 and mat2SO3 followed by Act: supplied gradients beside extrapolated differences. pip install pypose==0.9.5"""

import pypose as pp
import torch

point = torch.tensor([0.3, -0.7, 0.5], dtype=torch.float64)
basis = torch.zeros(3, 3, 3, dtype=torch.float64)
basis[0, 2, 1] = basis[1, 0, 2] = basis[2, 1, 0] = 1.0
functions = {
    "euler2SO3(x).Act(p).sum()": lambda x: pp.euler2SO3(x).Act(point).sum(),
    "mat2SO3(R(x)).Act(p).sum()": lambda x: (
        pp.mat2SO3(torch.linalg.matrix_exp(torch.einsum("i,ijk->jk", x, basis - basis.mT)), check=False).Act(point).sum()
    ),
}
x, v = torch.tensor([[0.4, -0.3, 0.6], [1.0, 0.5, -2.0]], dtype=torch.float64)
borne_out = True
for name, value in functions.items():
    leaf = x.clone().requires_grad_()
    value(leaf).backward()
    supplied = float((leaf.grad * v).sum())
    wide, narrow = (float(value(x + h * v) - value(x - h * v)) for h in (2e-3, 1e-3))
    true = (8 * narrow - wide) / 12e-3
    print(f"{name} along a direction: supplied {supplied:.8f}, true {true:.8f}")
    borne_out &= abs(supplied - true) > 0.05 * abs(true)
raise SystemExit(0 if borne_out else 1)

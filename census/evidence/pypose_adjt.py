"""AdjT of SE3 and Sim3: the supplied gradient beside extrapolated differences in float64. pip install pypose==0.9.5"""

import pypose as pp
import torch

torch.manual_seed(0)
borne_out = True
for kind, size in (("se3", 6), ("sim3", 7)):
    algebra = getattr(pp, kind)
    x = 0.1 * torch.randn(size, dtype=torch.float64)
    x[:3] += 1.0
    a, u, v = torch.randn(3, size, dtype=torch.float64)

    def value(h, algebra=algebra, x=x, a=a, u=u, v=v):
        return float((algebra(x).Exp().AdjT(algebra(a + h * v)).tensor() * u).sum())

    leaf = a.clone().requires_grad_()
    (algebra(x).Exp().AdjT(algebra(leaf)).tensor() * u).sum().backward()
    supplied = float((leaf.grad * v).sum())
    true = (8 * (value(1e-3) - value(-1e-3)) - (value(2e-3) - value(-2e-3))) / 12e-3
    print(f"{kind}: derivative of AdjT(X, a) along a direction of a: supplied {supplied:.8f}, true {true:.8f}")
    borne_out &= abs(supplied - true) > 1e-2 * abs(true)

# AdjT is linear in a, so its matrix for one X has the true gradient: the transposed matrix times grad_output.
X = pp.se3(torch.tensor([1.0, -0.5, 0.3, 0.2, 0.1, -0.4], dtype=torch.float64)).Exp()
matrix = torch.stack([X.AdjT(pp.se3(e)).tensor() for e in torch.eye(6, dtype=torch.float64)], dim=1)
leaf = torch.zeros(6, dtype=torch.float64, requires_grad=True)
u = torch.arange(1.0, 7.0, dtype=torch.float64)
(X.AdjT(pp.se3(leaf)).tensor() * u).sum().backward()
print("se3: supplied", [round(g, 4) for g in leaf.grad.tolist()], "true", [round(g, 4) for g in (matrix.mT @ u).tolist()])
borne_out &= bool((leaf.grad - matrix.mT @ u).norm() > 0.1 * (matrix.mT @ u).norm())
raise SystemExit(0 if borne_out else 1)

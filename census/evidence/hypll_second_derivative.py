"""Second derivatives through frechet_mean are left out without an error. pip install hypll==0.1.1"""

import torch
from hypll.manifolds.poincare_ball.math.stats import frechet_mean

x = torch.tensor([[0.3, -0.1], [0.1, 0.4], [-0.2, 0.25]], dtype=torch.float64)
v = torch.tensor([[0.1, 0.2], [-0.3, 0.1], [0.2, -0.1]], dtype=torch.float64)
c = torch.tensor(1.0, dtype=torch.float64)


def gradient(x):
    leaf = x.clone().requires_grad_()
    return torch.autograd.grad((frechet_mean(leaf, c) * leaf).sum(), leaf, create_graph=True)[0], leaf


made, leaf = gradient(x)
supplied = float((torch.autograd.grad((made * v).sum(), leaf)[0] * v).sum())
wide, narrow = (float(((gradient(x + h * v)[0] - gradient(x - h * v)[0]) * v).sum()) for h in (2e-2, 1e-2))
true = (8 * narrow - wide) / 12e-2
print(
    f"second derivative of (frechet_mean(x) * x).sum() along a direction: supplied {supplied:.8f}, true {true:.8f} (differences of the gradient)"
)
raise SystemExit(0 if abs(supplied - true) > 0.05 * abs(true) else 1)

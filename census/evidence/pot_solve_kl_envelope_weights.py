"""POT: ot.solve(reg_type="KL", grad="envelope") gives the weights the gradient of the entropic value. pip install POT==0.9.7.post1 torch"""

import ot
import torch

torch.manual_seed(0)
cost = torch.rand(4, 5, dtype=torch.float64)
w, v = torch.randn(4, dtype=torch.float64), torch.randn(5, dtype=torch.float64)


def value(w, v, grad, reg_type):
    return ot.solve(cost, w.softmax(0), v.softmax(0), reg=0.5, reg_type=reg_type, grad=grad, max_iter=2000, tol=1e-15).value


borne_out = True
direction = torch.randn(4, dtype=torch.float64)
for reg_type in ("KL", "entropy"):
    leaf = w.clone().requires_grad_()
    slope = {g: float(torch.autograd.grad(value(leaf, v, g, reg_type), leaf)[0] @ direction) for g in ("envelope", "autodiff")}
    central = [
        float(value(w + h * direction, v, "detach", reg_type) - value(w - h * direction, v, "detach", reg_type)) / (2 * h)
        for h in (1e-3, 5e-4)
    ]
    true = (4 * central[1] - central[0]) / 3
    print(f'{reg_type}: supplied {slope["envelope"]:.8f}, true {true:.8f} (differences), {slope["autodiff"]:.8f} (grad="autodiff")')
    off = abs(slope["envelope"] - true) > 1e-2 * abs(true)
    borne_out &= off == (reg_type == "KL") and abs(slope["autodiff"] - true) < 1e-6 * abs(true)
raise SystemExit(0 if borne_out else 1)

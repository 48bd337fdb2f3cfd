"""Second derivatives of special_procrustes: method "svd" beside method "horn" and differences. pip install roma==1.8.0"""

import roma
import torch

torch.manual_seed(0)
m, u, v = torch.randn(3, 3, 3, dtype=torch.float64)


def gradient(method, m):
    leaf = m.clone().requires_grad_()
    value = (roma.special_procrustes(leaf, gradient_eps=1e-8, method=method) * u).sum()
    return torch.autograd.grad(value, leaf, create_graph=True)[0], leaf


def second(method):
    made, leaf = gradient(method, m)
    return float((torch.autograd.grad((made * v).sum(), leaf)[0] * v).sum())


agree = float((gradient("svd", m)[0] - gradient("horn", m)[0]).abs().max())
h = 1e-4
true = float(((gradient("svd", m + h * v)[0] - gradient("svd", m - h * v)[0]) * v).sum()) / (2 * h)
svd, horn = second("svd"), second("horn")
print(f"gradients of the two methods agree to {agree:.0e}")
print(f"second derivative along a direction: supplied {svd:.6f} (svd), {horn:.6f} (horn), true {true:.6f} (differences of the gradient)")
raise SystemExit(0 if agree < 1e-9 and abs(horn - true) < 1e-4 * abs(true) and abs(svd - true) > 0.05 * abs(true) else 1)

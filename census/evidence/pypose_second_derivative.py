"""Second derivatives of so3(x).Exp().Act(p) by x and p: supplied beside autograd through Rodrigues' formula. pip install pypose==0.9.5"""

import pypose as pp
import torch

start = torch.tensor([0.4, -0.3, 0.6, 0.3, -0.7, 0.5], dtype=torch.float64)


def plain(z):
    """The same value by torch's operations."""
    x, point = z[:3], z[3:]
    angle = x.norm()
    cross = torch.linalg.cross(x, point)
    rotated = point + angle.sin() / angle * cross + (1 - angle.cos()) / angle**2 * torch.linalg.cross(x, cross)
    return rotated.sin().sum()


def supplied(z):
    return pp.so3(z[:3]).Exp().Act(z[3:]).sin().sum()


def gradient(f, z):
    leaf = z.clone().requires_grad_()
    return torch.autograd.grad(f(leaf), leaf, create_graph=True)[0], leaf


def hessian(f):
    g, leaf = gradient(f, start)
    return torch.stack([torch.autograd.grad(part, leaf, retain_graph=True)[0] for part in g])


first = float((gradient(supplied, start)[0] - gradient(plain, start)[0]).abs().max())
made, true = hessian(supplied), hessian(plain)
print(f"gradients agree to {first:.0e}")
print(f"second derivative by p[0], x[1]: supplied {made[3, 1]:.8f}, true {true[3, 1]:.8f}")
print(f"second derivative by x[1], p[0]: supplied {made[1, 3]:.8f}, true {true[1, 3]:.8f} (the two must be equal)")
raise SystemExit(0 if first < 1e-12 and float((made - true).norm()) > 0.05 * float(true.norm()) else 1)

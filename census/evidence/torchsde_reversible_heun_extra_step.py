"""torchsde: by rounding of the times the adjoint of reversible Heun takes one step more than the forward, and is not exact.
pip install torchsde==0.2.6 torch"""

import torch
import torchsde


class Noisy(torch.nn.Module):
    noise_type, sde_type = "diagonal", "stratonovich"

    def __init__(self):
        super().__init__()
        self.a = torch.nn.Parameter(torch.tensor([0.7, -0.4], dtype=torch.float64))
        self.times = []

    def f(self, t, y):
        self.times.append(float(t))
        return torch.sin(self.a * y)

    def g(self, t, y):
        return 0.3 * torch.cos(y)


def gradients(end, dt, solve, **more):
    sde = Noisy()
    bm = torchsde.BrownianInterval(0.0, end, size=(1, 2), dtype=torch.float64, entropy=1)
    y0 = torch.tensor([[0.8, -0.3]], dtype=torch.float64, requires_grad=True)
    y = solve(sde, y0, torch.tensor([0.0, end / 2, end], dtype=torch.float64), bm=bm, method="reversible_heun", dt=dt, **more)
    forward = len(sde.times)
    return y.detach(), torch.cat([g.reshape(-1) for g in torch.autograd.grad(y[-1].sum(), (y0, sde.a))]), sde.times[forward:]


off = {}
for end, dt in ((0.5, 0.125), (0.4, 0.1)):
    y, supplied, times = gradients(end, dt, torchsde.sdeint_adjoint, adjoint_method="adjoint_reversible_heun")
    same, true, _ = gradients(end, dt, torchsde.sdeint)
    off[dt] = float((supplied - true).norm() / true.norm())
    print(f"dt {dt} to {end}: values equal {torch.equal(y, same)}, gradient off by {off[dt]:.1e}; backward at times {times}")
raise SystemExit(0 if off[0.125] < 1e-12 and off[0.1] > 1e-6 else 1)

"""torchdiffeq: odeint_event gives no gradient for parameters of the event function. pip install torchdiffeq==0.2.5 torch"""

import torch
from torchdiffeq import odeint_event

t0, y0 = torch.tensor([0.0], dtype=torch.float64), torch.tensor([1.3, 0.4], dtype=torch.float64).requires_grad_()
ground = torch.tensor(0.2, dtype=torch.float64, requires_grad=True)


def fall(t, y):
    return torch.stack([y[1], torch.full_like(y[0], -9.0)])


def hit(ground):
    return odeint_event(fall, y0, t0, event_fn=lambda t, y: y[0] - ground, rtol=1e-8, atol=1e-10, method="dopri8")[0]


time = hit(ground)
supplied = torch.autograd.grad(time, (y0, ground), allow_unused=True)
root = (0.4**2 + 2 * 9.0 * (1.3 - 0.2)) ** 0.5  # the time is (v + root) / g
print(f"time: {float(time):.8f}, closed form {(0.4 + root) / 9.0:.8f}")
print(f"gradient of the height y0[0]: supplied {float(supplied[0][0]):.8f}, true {1 / root:.8f}")
print(f"gradient of the ground: supplied {supplied[1]}, true {-1 / root:.8f}")
borne_out = supplied[1] is None and abs(float(supplied[0][0]) - 1 / root) < 1e-6
raise SystemExit(0 if borne_out and abs(float(time) - (0.4 + root) / 9.0) < 1e-7 else 1)

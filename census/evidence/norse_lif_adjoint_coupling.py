"""Without spikes, the gradients of norse's lif_adjoint_step are not those of lif_step: voltage by current and input
(factor 2), by weights (missing), and more.

pip install norse==1.1.0
"""

import torch
from norse.torch.functional.adjoint.lif_adjoint import lif_adjoint_step
from norse.torch.functional.lif import LIFParameters, LIFState, lif_step

torch.manual_seed(0)
p = LIFParameters(v_th=torch.tensor(50.0))  # no neuron fires, and both steps compute the same values
x, v, i = (torch.randn(2, n, dtype=torch.float64) for n in (4, 3, 3))
w, r = torch.randn(3, 4, dtype=torch.float64), torch.randn(3, 3, dtype=torch.float64)
z = torch.zeros(2, 3, dtype=torch.float64)


def gradients(step, read):
    leaves = [t.clone().requires_grad_() for t in (x, i, w)]
    _, new = step(leaves[0], LIFState(z, v, leaves[1]), leaves[2], r, p, 0.001)
    value = getattr(new, read)
    return value, torch.autograd.grad(value.sum(), leaves)


worst = 0.0
expected = {"v": (2.0, 2.0, 0.0), "i": (1.0, 1.0, 1.25)}  # by input, current, weights; tau_syn_inv / tau_mem_inv = 2, dt tau_syn_inv = 0.2
for read, factors in expected.items():
    (value, supplied), (same, true) = gradients(lif_adjoint_step, read), gradients(lif_step, read)
    assert torch.allclose(value, same, atol=1e-14)
    for name, s, t, factor in zip(("input", "current", "weights"), supplied, true, factors, strict=True):
        print(f"new {read} by {name}: supplied {s[0, 0].item():.6f}, true {t[0, 0].item():.6f}, ratio {(s / t)[0, 0].item():.4f}")
        worst = max(worst, (s / t - factor).abs().max().item())
raise SystemExit(0 if worst < 1e-4 else 1)

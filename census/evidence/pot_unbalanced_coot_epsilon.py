"""POT: with epsilon > 0 the gradient of unbalanced_co_optimal_transport2 is not the derivative of its value. pip install POT==0.9.7.post1 torch"""

import torch
from ot.gromov import unbalanced_co_optimal_transport2

generator = torch.Generator().manual_seed(0)
x, y = torch.randn(3, 2, generator=generator).double(), torch.randn(2, 3, generator=generator).double()
weights = [torch.rand(k, generator=generator).double() + 0.5 for k in (3, 2, 2, 3)]
direction = torch.randn(3, 2, generator=generator).double()
tight = {"max_iter": 1000, "tol": 1e-13, "max_iter_ot": 3000, "tol_ot": 1e-13}

off = {}
for epsilon in (0.0, 0.5):

    def value(x, epsilon=epsilon, **more):
        options = {"reg_marginals": 2.0, "epsilon": epsilon, "unbalanced_solver": "mm"} | tight | more
        return unbalanced_co_optimal_transport2(x, y, *weights, **options)

    leaf = x.clone().requires_grad_()
    total, log = value(leaf, log=True)
    supplied = float((torch.autograd.grad(total, leaf)[0] * direction).sum())
    slopes = [float(value(x + h * direction) - value(x - h * direction)) / (2 * h) for h in (1e-3, 5e-4)]
    true = (4 * slopes[1] - slopes[0]) / 3
    off[epsilon] = abs(supplied - true) / abs(true)
    print(f"epsilon {epsilon}: supplied {supplied:.8f}, true {true:.8f}, last change of the plan {float(log['error'][-1]):.1e}")
raise SystemExit(0 if off[0.0] < 1e-5 and off[0.5] > 1e-2 else 1)

"""padding_idx, scale_grad_by_freq and max_norm change gradients and not the derivative, as documented. pip install torch==2.13.0."""

import torch
import torch.nn.functional as F

index = torch.tensor([0, 2, 2])
weight = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], dtype=torch.float64, requires_grad=True)
borne_out = True
for said, options in (
    ("padding_idx=2", {"padding_idx": 2}),
    ("scale_grad_by_freq", {"scale_grad_by_freq": True}),
    ("max_norm=1", {"max_norm": 1.0}),
):

    def total(w, options=options):
        return F.embedding(index, w.clone(), **options).sum()

    (supplied,) = torch.autograd.grad(total(weight), weight)
    step = torch.zeros_like(weight)
    step[2, 0] = 1e-4
    with torch.no_grad():
        first, half = (float(total(weight + s * step) - total(weight - s * step)) / (2e-4 * s) for s in (1.0, 0.5))
    true = half + (half - first) / 3
    print(f"{said}: by weight[2, 0] supplied {float(supplied[2, 0]):.6f}, true {true:.6f}")
    borne_out &= abs(float(supplied[2, 0]) - true) > 0.1
raise SystemExit(0 if borne_out else 1)

"""batch_norm with a weight of other strides: the gradient of the input uses other numbers. pip install torch==2.13.0."""

import torch
import torch.nn.functional as F

torch.manual_seed(0)
column = (torch.rand(3, 4, dtype=torch.float64) + 0.5)[:, 0]
borne_out = True
for name, weight in (("every fourth number", column), ("one number expanded", torch.ones(4, dtype=torch.float64)[:1].expand(3) * 1.0)):
    for shape in ((5, 3), (4, 3, 2, 2)):
        x = torch.randn(shape, dtype=torch.float64)
        x = (x.to(memory_format=torch.channels_last) if len(shape) == 4 else x).requires_grad_()
        u = torch.empty_like(x).normal_()
        results = []
        for w in (weight, weight.contiguous()):
            y = F.batch_norm(x, None, None, w, training=True)
            results.append((y.detach(), torch.autograd.grad(y, x, u)[0]))
        value, off = (float((p - q).norm() / q.norm()) for p, q in zip(*results, strict=True))
        print(
            f"{name}, stride {weight.stride()}, input {shape}: value differs by {value:.1e}, supplied gradient from the true one by {off:.1e}"
        )
        borne_out &= value < 1e-14 and (off > 1e-3) == (not weight.is_contiguous())
raise SystemExit(0 if borne_out else 1)

"""tensor_clamp_ste of brevitas supplies no gradient for its bounds, as its docstring says.

pip install brevitas==0.13.4
"""

import torch
from brevitas.ops.autograd_ste_ops import tensor_clamp_ste_impl

x, low, high = (torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in ([2.0, -3.0, 0.1], [-1.0] * 3, [1.0] * 3))
supplied = torch.autograd.grad(tensor_clamp_ste_impl(x, low, high).sum(), (x, low, high), allow_unused=True)
true = torch.autograd.grad(torch.max(torch.min(x, high), low).sum(), (x, low, high))
for name, s, t in zip(("x", "min_val", "max_val"), supplied, true, strict=True):
    print(f"{name}: supplied {None if s is None else s.tolist()}, true {t.tolist()}")
borne_out = supplied[1] is None and supplied[2] is None and (supplied[0] == 1).all() and true[2][0] == 1 and true[1][1] == 1
raise SystemExit(0 if borne_out else 1)

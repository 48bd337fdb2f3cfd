"""torch._masked_softmax of a transposed matrix is another one. pip install torch==2.13.0."""

import torch

torch.manual_seed(0)
mask = torch.tensor([[True, False, False], [False, False, True]])
x = torch.randn(2, 3, dtype=torch.float64)
transposed = x.t().contiguous().t()
plain = x.masked_fill(mask, -torch.inf).softmax(1)
straight, other = torch._masked_softmax(x, mask, 1, 0), torch._masked_softmax(transposed, mask, 1, 0)
print(f"equal arguments: {bool((x == transposed).all())}")
print(f"contiguous {straight.tolist()}")
print(f"transposed: supplied {other.tolist()}")
print(f"true        {plain.tolist()}")
raise SystemExit(0 if torch.allclose(straight, plain) and not torch.allclose(other, plain) else 1)

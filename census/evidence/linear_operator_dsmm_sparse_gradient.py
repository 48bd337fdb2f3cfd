"""dsmm gives no gradient to the values of the sparse matrix, and no error. pip install linear-operator==0.6.1"""

import torch
from linear_operator import dsmm

torch.manual_seed(0)
indices = torch.tensor([[0, 2, 1], [1, 0, 3]])
values = torch.randn(3, dtype=torch.float64, requires_grad=True)
dense = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)

supplied = torch.autograd.grad(dsmm(torch.sparse_coo_tensor(indices, values, (3, 4)), dense).sum(), (values, dense), allow_unused=True)[0]
(true,) = torch.autograd.grad(torch.sparse.mm(torch.sparse_coo_tensor(indices, values, (3, 4)), dense).sum(), values)
print(f"values of the sparse matrix: supplied {supplied}, true {true.tolist()}")
raise SystemExit(0 if supplied is None or not torch.allclose(supplied, true) else 1)

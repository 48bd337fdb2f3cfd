"""The backward of EdgeIndex.matmul with transpose=True raises for a rectangular matrix. pip install torch-geometric==2.8.1"""

import torch
from torch_geometric import EdgeIndex

torch.manual_seed(0)
index = EdgeIndex([[1, 0, 3, 3], [0, 1, 2, 4]], sparse_size=(4, 5), sort_order="col")
x = torch.randn(4, 3, requires_grad=True)
out = index.matmul(x, transpose=True)
dense = torch.zeros(4, 5)
dense[index[0].as_tensor(), index[1].as_tensor()] = 1.0
print(f"the value is right: {torch.allclose(out, dense.mT @ x)}")
(true,) = torch.autograd.grad((dense.mT @ x).sum(), x)
try:
    (supplied,) = torch.autograd.grad(out.sum(), x)
    wrong = not torch.allclose(supplied, true)
    print(f"supplied {supplied.flatten().tolist()}")
except RuntimeError as error:
    wrong = True
    print(f"supplied: RuntimeError: {error}")
print(f"true {true.flatten().tolist()}")
raise SystemExit(0 if wrong else 1)

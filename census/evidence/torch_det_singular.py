"""The gradient of linalg.det at a singular matrix is not its matrix of cofactors. pip install torch==2.13.0."""

import torch

singular = torch.tensor([[1.0, 2, 3], [2, 4, 6], [0.5, -1, 2]], dtype=torch.float64, requires_grad=True)
a, b = singular.detach(), torch.eye(3, dtype=torch.float64)
true = torch.stack(
    [
        torch.stack(
            [(-1) ** (i + j) * torch.cat([a[[k for k in range(3) if k != i]][:, [m for m in range(3) if m != j]]]).det() for j in range(3)]
        )
        for i in range(3)
    ]
)
(supplied,) = torch.autograd.grad(torch.linalg.det(singular), singular)
(near,) = torch.autograd.grad(torch.linalg.det(singular + 1e-9 * b), singular)
print(f"determinant {float(torch.linalg.det(singular))}")
print(f"supplied {supplied.tolist()}")
print(f"true     {[[round(float(x), 9) for x in row] for row in true]}")
print(f"1e-9 beside it {[[round(float(x), 6) for x in row] for row in near]}")
raise SystemExit(0 if float((supplied - true).norm()) > 0.1 * float(true.norm()) else 1)

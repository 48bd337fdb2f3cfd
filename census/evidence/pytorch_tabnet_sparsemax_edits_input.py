"""pip install pytorch-tabnet==4.1.0

Sparsemax subtracts the maximum from the tensor that it is given: the caller's numbers have changed after the call.
"""

import torch
from pytorch_tabnet.sparsemax import Sparsemax, entmax15

given = torch.tensor([[0.5, 2.0, -1.0]], dtype=torch.float64)
before = given.clone()
Sparsemax(dim=-1)(given)
print("before the call:", before.tolist())
print("after the call: ", given.tolist(), "(supplied), unchanged would be true")

scores = before.clone().requires_grad_()
hidden = scores * 1.0
loss = Sparsemax(dim=-1)(hidden)[0, 0] + hidden[0, 1]
print(f"sparsemax(h)[0] + h[1] with h[1] = 2: supplied {loss.item()}, true {Sparsemax(dim=-1)(before.clone())[0, 0].item() + 2.0}")
kept = before.clone()
entmax15(kept, -1)
print("entmax15 leaves its argument as it is:", torch.equal(kept, before))
raise SystemExit(0 if not torch.equal(given, before) and abs(loss.item() - 2.0) > 0.5 else 1)

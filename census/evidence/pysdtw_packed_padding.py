"""pip install pysdtw==0.0.5

The gradient of a shorter pair in a padded batch with cosine distances, beside that of the same pair alone.
"""

import math

import pysdtw
import torch
from torch.nn.utils.rnn import pack_padded_sequence


def distances(x, y):
    return 1 - torch.nn.functional.cosine_similarity(x.unsqueeze(2), y.unsqueeze(1), dim=3)


torch.manual_seed(0)
x, y = torch.randn(2, 2, 4, 2)
lengths = torch.tensor([4, 2])
loss = pysdtw.SoftDTW(use_cuda=False, dist_func=distances)
first = x.clone().requires_grad_()
together = loss(pack_padded_sequence(first, lengths, batch_first=True), pack_padded_sequence(y, lengths, batch_first=True))[1]
together.backward()
second = x[1:, :2].clone().requires_grad_()
alone = loss(second, y[1:, :2])[0]
alone.backward()
supplied, true = first.grad[1, :2], second.grad[0]
print(f"value in the batch {together.item():.6f}, alone {alone.item():.6f}")
print("supplied in the batch: ", supplied.flatten().tolist())
print("true, of the pair alone:", true.flatten().tolist())
direction, step = torch.randn(1, 2, 2), 1e-2
high, low = (loss(x[1:, :2] + sign * step * direction, y[1:, :2]).item() for sign in (1, -1))
along = float((true * direction[0]).sum())
print(f"along a direction: alone {along:.4f}, differences {(high - low) / (2 * step):.4f}")
ratio = float(supplied.norm() / true.norm())
print(f"supplied / true = {ratio:.5f}, exp(-1) = {math.exp(-1):.5f}")
right = abs(along - (high - low) / (2 * step)) < 1e-2 * abs(along)
raise SystemExit(0 if abs(ratio - math.exp(-1)) < 1e-3 and right and abs(together.item() - alone.item()) < 1e-5 else 1)

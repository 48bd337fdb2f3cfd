"""pip install pysdtw==0.0.5

The gradient of a shorter pair in a padded batch with a bandwidth, beside that of the same pair alone.
"""

import pysdtw
import torch
from torch.nn.utils.rnn import pack_padded_sequence

torch.manual_seed(0)
x, y = torch.randn(2, 6, 2), torch.randn(2, 6, 2)
loss = pysdtw.SoftDTW(use_cuda=False, bandwidth=1)
lengths_x, lengths_y = torch.tensor([6, 4]), torch.tensor([4, 4])
first = x.clone().requires_grad_()
packed = loss(pack_padded_sequence(first, lengths_x, batch_first=True), pack_padded_sequence(y[:, :4], lengths_y, batch_first=True))
packed[1].backward()
second = x[1:, :4].clone().requires_grad_()
alone = loss(second, y[1:, :4])
alone.sum().backward()
print(f"value in the batch {packed[1].item():.6f}, alone {alone.item():.6f}")
print("supplied in the batch:", first.grad[1, :4].flatten().tolist())
print("true, of the pair alone:", second.grad.flatten().tolist())
direction, step = torch.randn(1, 4, 2), 1e-2
high, low = (loss(x[1:, :4] + sign * step * direction, y[1:, :4]).item() for sign in (1, -1))
along = [float((g * direction[0]).sum()) for g in (first.grad[1, :4], second.grad[0])]
print(f"along a direction: supplied {along[0]:.4f}, alone {along[1]:.4f}, differences {(high - low) / (2 * step):.4f}")
off = float((first.grad[1, :4] - second.grad[0]).norm() / second.grad.norm())
print(f"off by {off:.3g} of the gradient")
right = abs(along[1] - (high - low) / (2 * step)) < 1e-2 * abs(along[1])
raise SystemExit(0 if not off < 1e-2 and right and abs(packed[1].item() - alone.item()) < 1e-4 else 1)

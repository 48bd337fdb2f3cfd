"""pip install speechbrain==1.1.2 numba

The value of the transducer loss is divided by the number of frames and by the batch; its gradient is not. Runs in Numba's simulator of CUDA.
"""

import os
import sys
from unittest import mock

os.environ["NUMBA_ENABLE_CUDASIM"] = "1"
try:
    import torchaudio  # noqa: F401
except (ImportError, OSError):
    sys.modules["torchaudio"] = mock.MagicMock(__version__="2.11.0")
import torch
from speechbrain.integrations.numba.transducer_loss import Transducer

torch.manual_seed(0)
batch, frames, labels, classes = 2, 3, 1, 3
scores = torch.randn(batch, frames, labels + 1, classes, dtype=torch.float64)
targets = torch.tensor([[1], [2]], dtype=torch.int32)
spans, lengths = torch.full((batch,), frames, dtype=torch.int32), torch.full((batch,), labels, dtype=torch.int32)


def loss(x, reduction):
    return Transducer.apply(x.log_softmax(-1), targets, spans, lengths, 0, reduction)


def ratio(reduction):
    leaf, step = scores.clone().requires_grad_(), 1e-5
    loss(leaf, reduction).backward()
    true = (loss(scores + step * leaf.grad, reduction) - loss(scores - step * leaf.grad, reduction)) / (2 * step)
    print(f"{reduction}: supplied {leaf.grad.square().sum().item():.8f}, true {true.item():.8f} along the gradient")
    return float(leaf.grad.square().sum() / true)


mean, total = ratio("mean"), ratio("sum")
print(f"supplied / true: {mean:.6f} for the mean of {batch} utterances of {frames} frames, {total:.6f} for the sum")
raise SystemExit(0 if abs(mean - batch * frames) < 1e-5 and abs(total - frames) < 1e-5 else 1)

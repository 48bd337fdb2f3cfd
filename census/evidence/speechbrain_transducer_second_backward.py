"""pip install speechbrain==1.1.2 numba

The transducer loss multiplies its saved gradient in place: a second backward gives another gradient. Runs in Numba's simulator of CUDA.
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
x = torch.randn(1, 2, 2, 3, dtype=torch.float64).log_softmax(-1).requires_grad_()
ints = [torch.tensor(numbers, dtype=torch.int32) for numbers in ([[1]], [2], [1])]
value = 3 * Transducer.apply(x, *ints, 0, "mean")
first = torch.autograd.grad(value, x, retain_graph=True)[0].clone()
second = torch.autograd.grad(value, x, retain_graph=True)[0].clone()
print(f"first backward: {first[0, 0, 0].tolist()}")
print(f"second backward, supplied: {second[0, 0, 0].tolist()}; true: that of the first")
print(f"second / first = {float(second.norm() / first.norm()):.6g}")
raise SystemExit(0 if abs(float(second.norm() / first.norm()) - 3) < 1e-9 else 1)

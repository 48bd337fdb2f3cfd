"""pip install speechbrain==1.1.2

The quaternion layer with a backward of its own adds the bias only if the bias requires a gradient: freezing it changes the value.
"""

import sys
from unittest import mock

try:
    import torchaudio  # noqa: F401
except (ImportError, OSError):
    sys.modules["torchaudio"] = mock.MagicMock(__version__="2.11.0")
import torch
from speechbrain.nnet.quaternion_networks.q_ops import QuaternionLinearCustomBackward

torch.manual_seed(0)
x, *weights = torch.randn(1, 4, dtype=torch.float64), *torch.randn(4, 1, 1, dtype=torch.float64)
bias = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
trained = QuaternionLinearCustomBackward.apply(x, *weights, bias.clone().requires_grad_()).detach()
frozen = QuaternionLinearCustomBackward.apply(x, *weights, bias)
without = QuaternionLinearCustomBackward.apply(x, *weights, 0 * bias)
print("with a bias that requires a gradient (true):", trained.tolist())
print("with the same bias frozen (supplied):       ", frozen.tolist())
print("the difference is the bias:", (trained - frozen).tolist())
raise SystemExit(0 if torch.equal(frozen, without) and torch.allclose(trained - frozen, bias) else 1)

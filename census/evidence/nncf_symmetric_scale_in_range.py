"""For signed symmetric quantisation, nncf's gradient of the scale counts inputs within the range with (output - input)
/ (2 scale), not / scale.

pip install nncf==3.4.0
"""

import os
import tempfile

os.environ["TORCHDYNAMO_DISABLE"] = "1"
os.environ["CXX"], os.environ["TORCH_EXTENSIONS_DIR"] = "no-compiler", tempfile.mkdtemp()  # nncf falls back on torch operations
import torch  # noqa: E402
from nncf.torch.quantization.quantize_functions import symmetric_quantize  # noqa: E402

torch.manual_seed(0)
low, high = -8, 7
x = torch.rand(40, dtype=torch.float64) * 1.2 - 0.6  # within the range
value = torch.tensor([1.3], dtype=torch.float64)


def plain(x, scale):  # the documented formula; the rounding passes its gradient on
    t = (x * high / scale).clamp(low, high)
    return (t + (t.round() - t).detach()) * scale / high


u = torch.randn(40, dtype=torch.float64)
scale = value.clone().requires_grad_()
out = symmetric_quantize(x, 16, low, high, scale, 1e-16)
assert torch.allclose(out, plain(x, value), atol=1e-12)
(supplied,) = torch.autograd.grad((out * u).sum(), scale)
(true,) = torch.autograd.grad((plain(x, scale) * u).sum(), scale)
ratio = (supplied / true).item()
print(f"supplied {supplied.item():.8f}, true {true.item():.8f} (straight-through rounding of the documented formula), ratio {ratio:.6f}")
print(f"level_high / (level_high - level_low) = {high / (high - low):.6f}")
raise SystemExit(0 if abs(ratio - high / (high - low)) < 1e-6 else 1)

"""nncf's symmetric_quantize_lora takes negative scales, and supplies the gradient for them with the opposite sign.

pip install nncf==3.4.0
"""

import os
import tempfile

os.environ["TORCHDYNAMO_DISABLE"] = "1"
os.environ["CXX"], os.environ["TORCH_EXTENSIONS_DIR"] = "no-compiler", tempfile.mkdtemp()  # nncf falls back on torch operations
import torch  # noqa: E402
from nncf.torch.quantization.quantize_functions import symmetric_quantize_lora  # noqa: E402

none = torch.zeros(1, 1), torch.zeros(1, 4)
worst = 0.0


def quantise(x, scale):
    return symmetric_quantize_lora(x, x.shape, none[1], none[0], scale, -8, 7, 16, 1e-16)


for value in (1.3, -1.3):
    for sign in (1.0, -1.0):  # every input beyond the range: the output is a multiple of the scale
        x, scale = sign * torch.tensor([[3.0, 4.0, 5.0, 6.0]]), torch.tensor([[value]], requires_grad=True)
        out = quantise(x, scale)
        out.sum().backward()
        true = (quantise(x, torch.tensor([[value + 0.1]])) - quantise(x, torch.tensor([[value - 0.1]]))).sum().item() / 0.2
        ratio = scale.grad.item() / true
        print(f"scale {value}, inputs {sign:+.0f}: supplied {scale.grad.item():.5f}, true {true:.5f}, ratio {ratio:.4f}")
        worst = max(worst, abs(abs(ratio) - 1), 2.0 * (ratio * value < 0) if value > 0 else 2.0 * (ratio > 0))
print("the sign is wrong where the scale is negative")
raise SystemExit(0 if worst < 0.4 else 1)

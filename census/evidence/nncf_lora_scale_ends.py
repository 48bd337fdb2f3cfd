"""nncf's symmetric_quantize_lora spans [-scale, scale * level_high / -level_low], and supplies the gradient of [scale
* level_low / level_high, scale].

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
for low, high in ((-8, 7), (-128, 127)):
    for sign in (1.0, -1.0):  # every input beyond the range: the output is a multiple of the scale
        x, scale = sign * torch.tensor([[3.0, 4.0, 5.0, 6.0]]), torch.tensor([[1.25]], requires_grad=True)
        out = symmetric_quantize_lora(x, x.shape, none[1], none[0], scale, low, high, high - low + 1, 1e-16)
        out.sum().backward()
        true = (out.sum() / scale).item()
        ratio = scale.grad.item() / true
        print(f"levels {low}..{high}, inputs {sign:+.0f}: supplied {scale.grad.item():.6f}, true {true:.6f}, ratio {ratio:.6f}")
        worst = max(worst, abs(ratio - (-low / high)))
print("the ratio is -level_low / level_high")
raise SystemExit(0 if worst < 1e-5 else 1)

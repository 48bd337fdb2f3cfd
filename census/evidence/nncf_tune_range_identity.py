"""TuneRange of nncf moves one end of a range so that zero is a level, and supplies the identity as its derivative.

pip install nncf==3.4.0
"""

import os
import tempfile

os.environ["TORCHDYNAMO_DISABLE"] = "1"
os.environ["CXX"], os.environ["TORCH_EXTENSIONS_DIR"] = "no-compiler", tempfile.mkdtemp()  # nncf falls back on torch operations
import torch  # noqa: E402
from nncf.torch.quantization.quantize_functions import TuneRange  # noqa: E402

low, span = (torch.tensor([v], dtype=torch.float64, requires_grad=True) for v in (-0.41, 1.37))
h, worst = 1e-6, 0.0
for k, name in enumerate(("input_low", "input_range")):
    out = TuneRange.apply(low, span, 16)[k]
    supplied = [g.item() for g in torch.autograd.grad(out, (low, span))]
    true = []
    for j in range(2):
        high, below = ([t.detach() + (s * h if i == j else 0.0) for i, t in enumerate((low, span))] for s in (1, -1))
        true.append(((TuneRange.apply(*high, 16)[k] - TuneRange.apply(*below, 16)[k]) / (2 * h)).item())
    print(f"{name} tuned, by (input_low, input_range): supplied {supplied}, true {[round(t, 6) for t in true]}")
    worst = max(worst, max(abs(s - t) for s, t in zip(supplied, true, strict=True)))
raise SystemExit(0 if worst > 0.1 else 1)

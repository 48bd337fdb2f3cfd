"""On the CPU, bitsandbytes.matmul in training raises in the backward of the weight if the input has three dimensions.

pip install bitsandbytes==0.50.2
"""

import bitsandbytes as bnb
import torch

torch.manual_seed(0)
weight = torch.randn(5, 8)
results = {}
for shape in ((6, 8), (2, 3, 8)):
    layer = bnb.nn.Linear8bitLt(8, 5, bias=False, has_fp16_weights=True)
    layer.weight.data = weight.clone()
    x = torch.randn(*shape)
    try:
        layer(x).sum().backward()
        true = torch.ones(x.numel() // 8, 5).T @ x.reshape(-1, 8)
        results[shape] = torch.allclose(layer.weight.grad, true, atol=1e-4)
        print(f"input {shape}: supplied {layer.weight.grad[0, 0].item():.5f}, true {true[0, 0].item():.5f}")
    except RuntimeError as error:
        results[shape] = "raises"
        print(f"input {shape}: supplied RuntimeError: {error}, true: the same as for {(x.numel() // 8, 8)}")
raise SystemExit(0 if results[(6, 8)] is True and results[(2, 3, 8)] == "raises" else 1)

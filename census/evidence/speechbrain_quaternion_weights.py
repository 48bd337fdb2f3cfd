"""pip install speechbrain==1.1.2

In the quaternion layer with a backward of its own, three weights get no gradient if the first does not ask for one, and second derivatives are zero.
"""

import sys
from unittest import mock

try:
    import torchaudio  # noqa: F401
except (ImportError, OSError):
    sys.modules["torchaudio"] = mock.MagicMock(__version__="2.11.0")
import torch
from speechbrain.nnet.quaternion_networks.q_ops import QuaternionLinearCustomBackward, quaternion_linear_op

torch.manual_seed(0)
numbers = [torch.randn(5, 8, dtype=torch.float64), *torch.randn(4, 2, 3, dtype=torch.float64), torch.zeros(12, dtype=torch.float64)]


def gradients(function, asking):
    given = [n.clone().requires_grad_(i in asking) for i, n in enumerate(numbers)]
    function(*given).square().sum().backward()
    return [given[i].grad for i in asking]


def mixed(function):
    given = [n.clone().requires_grad_() for n in numbers]
    value = function(*given).sum() + (given[0].sum() * given[2].sum()) * 1e-3
    (by_input,) = torch.autograd.grad(value, given[0], create_graph=True)
    return torch.autograd.grad(by_input.square().sum(), given[2])[0]


own, plain = QuaternionLinearCustomBackward.apply, quaternion_linear_op
supplied, true = gradients(own, [2])[0], gradients(plain, [2])[0]
print("i_weight asks alone: supplied", None if supplied is None else "a gradient", "true", true[0].tolist())
both = (gradients(own, [1, 2])[1] - true).norm() / true.norm()
second, right = mixed(own), mixed(plain)
off = (second - right).norm() / right.norm()
print(f"second derivative by input and i_weight: supplied {second[0, 0].item():.6f}, true {right[0, 0].item():.6f}, off by {off:.3g}")
raise SystemExit(0 if supplied is None and both < 1e-12 and off > 0.1 else 1)

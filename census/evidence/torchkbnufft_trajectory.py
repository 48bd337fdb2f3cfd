"""KbNufft gives no gradient to the trajectory, on which its value depends.

pip install torchkbnufft==1.5.2
"""

import torch
import torchkbnufft as tkbn

torch.manual_seed(0)
nufft = tkbn.KbNufft(im_size=(8,), table_oversamp=2**16, dtype=torch.complex128)
image, omega = torch.randn(1, 1, 8, dtype=torch.complex128), torch.tensor([[-1.0, 0.3, 2.0]], dtype=torch.float64, requires_grad=True)


def exact(omega):
    """The sum over pixels at -4 to 3."""
    return (image * torch.exp(-1j * omega[0, :, None] * torch.arange(-4, 4))).sum(-1)


value = nufft(image, omega)
print(f"value {value[0, 0, 0].item():.4f}, exact {exact(omega)[0, 0].item():.4f}")
(true,) = torch.autograd.grad(exact(omega).abs().sum(), omega)
supplied = torch.autograd.grad(value.abs().sum(), omega, allow_unused=True)[0] if value.requires_grad else None
moved = (nufft(image, omega + 0.01).abs().sum() - nufft(image, omega - 0.01).abs().sum()).item() / 0.02
print(
    f"supplied {supplied}, true {true.tolist()}; slope of the value over 0.02 along all frequencies {moved:.3f}, true {true.sum().item():.3f}"
)
raise SystemExit(0 if supplied is None and abs(moved) > 0.1 else 1)

"""kymatio: wavelet scattering, whose modulus has a gradient at zero."""

from census.package import Package

package = Package("kymatio", "0.3.0", family="wavelets and signal processing", group="signals", modules=["kymatio"])


def noise(*shape):
    """Ordinary numbers in float64."""
    import torch

    return torch.randn(*shape, dtype=torch.float64)


@package.case(effort="quick", seconds=25)
def modulus():
    from kymatio.backend.torch_backend import ModulusStable

    return ModulusStable.apply, noise(3, 4, 2)


@package.case(effort="quick", seconds=25)
def modulus_of_one_number():
    from kymatio.backend.torch_backend import ModulusStable

    return ModulusStable.apply, noise(2)


@package.case(effort="quick", seconds=25)
def modulus_with_a_zero():
    import torch
    from kymatio.backend.torch_backend import ModulusStable

    z = noise(4, 2)
    return ModulusStable.apply, z * torch.tensor([[1.0], [0.0], [1.0], [1.0]], dtype=torch.float64)


@package.case(effort="quick", seconds=25)
def modulus_of_small_numbers():
    from kymatio.backend.torch_backend import ModulusStable

    return ModulusStable.apply, 1e-5 * noise(4, 2)


@package.case(effort="quick", seconds=25)
def modulus_of_tiny_numbers():
    from kymatio.backend.torch_backend import ModulusStable

    return ModulusStable.apply, 1e-160 * noise(4, 2)


@package.case(effort="quick", seconds=25)
def modulus_of_large_numbers():
    from kymatio.backend.torch_backend import ModulusStable

    return ModulusStable.apply, 1e155 * noise(4, 2)


@package.case(effort="quick", seconds=25)
def scattering_1d():
    from kymatio.torch import Scattering1D

    return Scattering1D(J=2, shape=(16,), Q=1).double(), noise(1, 16)


@package.case(effort="quick", seconds=25)
def scattering_2d():
    from kymatio.torch import Scattering2D

    return Scattering2D(J=1, shape=(8, 8), L=2).double(), noise(1, 8, 8)

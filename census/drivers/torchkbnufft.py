"""torchkbnufft: non-uniform Fourier transforms by Kaiser-Bessel interpolation."""

from census.package import Package

package = Package(
    "torchkbnufft",
    "1.5.2",
    family="wavelets and signal processing",
    group="signals",
    modules=["torchkbnufft"],
    note="Complex images and data are given as two real numbers in the last dimension, which the package accepts.",
)


def noise(*shape):
    """Ordinary numbers in float64."""
    import torch

    return torch.randn(*shape, dtype=torch.float64)


def trajectory(dimensions, points):
    """Frequencies between -pi and pi."""
    import torch

    return (torch.rand(dimensions, points, dtype=torch.float64) * 2 - 1) * 3


@package.case(effort="quick", seconds=25)
def interpolation_by_table():
    import torch
    import torchkbnufft as tkbn

    module = tkbn.KbInterp(im_size=(4,), grid_size=(8,), numpoints=4, dtype=torch.complex128)
    omega = trajectory(1, 5)
    return lambda image: module(image, omega), noise(1, 2, 8, 2)


@package.case(effort="quick", seconds=25)
def adjoint_interpolation_by_table():
    import torch
    import torchkbnufft as tkbn

    module = tkbn.KbInterpAdjoint(im_size=(4,), grid_size=(8,), numpoints=4, dtype=torch.complex128)
    omega = trajectory(1, 5)
    return lambda data: module(data, omega), noise(1, 2, 5, 2)


@package.case(effort="quick", seconds=25)
def nufft_by_table():
    import torch
    import torchkbnufft as tkbn

    module = tkbn.KbNufft(im_size=(4, 5), numpoints=4, dtype=torch.complex128)
    omega = trajectory(2, 6)
    return lambda image: module(image, omega, norm="ortho"), noise(1, 1, 4, 5, 2)


@package.case(effort="quick", seconds=25)
def adjoint_nufft_by_table():
    import torch
    import torchkbnufft as tkbn

    module = tkbn.KbNufftAdjoint(im_size=(4, 5), numpoints=4, dtype=torch.complex128)
    omega = trajectory(2, 6)
    return lambda data: module(data, omega), noise(1, 1, 6, 2)


@package.case(effort="quick", seconds=25)
def nufft_by_sparse_matrices():
    import torch
    import torchkbnufft as tkbn

    module, omega = tkbn.KbNufft(im_size=(6,), numpoints=4, dtype=torch.complex128), trajectory(1, 5)
    matrices = tkbn.calc_tensor_spmatrix(omega, im_size=(6,), numpoints=4)
    matrices = tuple(m.to(torch.float64) for m in matrices)
    return lambda image: module(image, omega, interp_mats=matrices), noise(1, 1, 6, 2)


@package.case(effort="quick", seconds=25)
def adjoint_nufft_by_sparse_matrices():
    import torch
    import torchkbnufft as tkbn

    module, omega = tkbn.KbNufftAdjoint(im_size=(6,), numpoints=4, dtype=torch.complex128), trajectory(1, 5)
    matrices = tkbn.calc_tensor_spmatrix(omega, im_size=(6,), numpoints=4)
    matrices = tuple(m.to(torch.float64) for m in matrices)
    return lambda data: module(data, omega, interp_mats=matrices), noise(1, 1, 5, 2)


@package.case(effort="quick", seconds=25)
def nufft_with_sensitivities():
    import torch
    import torchkbnufft as tkbn

    module = tkbn.KbNufft(im_size=(6,), numpoints=4, dtype=torch.complex128)
    omega = trajectory(1, 5)
    return lambda image, maps: module(image, omega, smaps=maps), (noise(1, 1, 6, 2), noise(1, 2, 6, 2))


@package.case(effort="quick", seconds=25)
def nufft_of_the_trajectory():
    import torch
    import torchkbnufft as tkbn

    module = tkbn.KbNufft(im_size=(6,), numpoints=4, dtype=torch.complex128)
    return lambda image, omega: module(image, omega), (noise(1, 1, 6, 2), trajectory(1, 5))


package.finding(
    "torchkbnufft-trajectory",
    kind="missing gradient",
    where="torchkbnufft/_autograd/interp.py:130",
    what="The interpolation by table returns None for the trajectory, and nothing says so; a loss that depends on the trajectory gets no gradient for it.",
    size="no gradient at all",
    cases=["nufft of the trajectory"],
    known="https://github.com/mmuckley/torchkbnufft/issues/95",
)

"""deepinv: imaging with neural networks; solvers, splines and projections with backwards of their own."""

from census.package import Package

package = Package(
    "deepinv",
    "0.5.0",
    family="wavelets and signal processing",
    group="signals",
    modules=["deepinv"],
    note="The Functions of astra, parallelproj, mri-nufft and of distributed runs need packages or processes that were not there. "
    "The denoiser's forward adds 1e-12 to twice the variance and its backward does not: 1e-12 of the gradient at ordinary noise, below the tolerance given.",
)


def noise(*shape):
    """Ordinary numbers in float64."""
    import torch

    return torch.randn(*shape, dtype=torch.float64)


def imported():
    """The package; a torchvision whose operators do not load (a build for CUDA beside a torch for the CPU) gets the two declarations that it asks for."""
    import torch

    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import deepinv

    return deepinv


def spline(function, knots=7, activations=2):
    """A spline function of x and coefficients on knots from -2 to 2."""
    import torch

    low, high = torch.tensor([-2.0], dtype=torch.float64), torch.tensor([2.0], dtype=torch.float64)
    first = torch.arange(activations) * knots
    return lambda x, c: function.apply(x, c, low, high, knots, first)


@package.case(effort="quick", seconds=25)
def linear_spline():
    imported()
    from deepinv.models.deal import LinearSplineFunc

    return spline(LinearSplineFunc), (noise(2, 2, 1, 2, 2), noise(2, 7))


@package.case(effort="quick", seconds=25)
def derivative_of_the_linear_spline():
    imported()
    from deepinv.models.deal import LinearSplineDerivativeFunc

    x, c = noise(1, 2, 1, 2, 2), noise(2, 7).requires_grad_()
    return spline(LinearSplineDerivativeFunc), (x, c)


@package.case(effort="quick", seconds=25)
def derivative_of_one_linear_spline():
    imported()
    from deepinv.models.deal import LinearSplineDerivativeFunc

    x, c = noise(1, 1, 1, 2, 2), noise(7).requires_grad_()
    return spline(LinearSplineDerivativeFunc, activations=1), (x, c)


@package.case(effort="quick", seconds=25)
def quadratic_spline():
    imported()
    from deepinv.models.deal import QuadraticSplineFunc

    return spline(QuadraticSplineFunc), (noise(2, 2, 1, 2, 2), noise(2, 7))


@package.case(effort="quick", seconds=25)
def linear_spline_with_one_knot():
    imported()
    from deepinv.models.deal import LinearSplineFunc

    return spline(LinearSplineFunc, knots=1), (noise(1, 2, 1, 2, 1), noise(2, 1))


@package.case(effort="quick", seconds=25, tolerance=1e-9)
def empirical_denoiser():
    deepinv = imported()
    import torch

    model = deepinv.models.MMSE(dataloader=noise(4, 1, 2, 2), device=torch.device("cpu"), dtype=torch.float64)
    return lambda x, sigma: model(x, sigma), (noise(3, 1, 2, 2), torch.rand(3, dtype=torch.float64) + 0.5)


@package.case(effort="quick", seconds=25, tolerance=1e-9)
def empirical_denoiser_from_a_loader():
    deepinv = imported()
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    loader = DataLoader(
        TensorDataset(noise(5, 1, 2, 2)), batch_size=2, collate_fn=lambda rows: {"x": torch.stack([row[0] for row in rows])}
    )
    model = deepinv.models.MMSE(dataloader=loader, device=torch.device("cpu"), dtype=torch.float64)
    return lambda x, sigma: model(x, sigma), (noise(2, 1, 2, 2), torch.rand(2, dtype=torch.float64) + 0.5)


def blur():
    """A linear operator of a kernel, in float64."""
    imported()
    import torch
    from deepinv.physics import LinearPhysics

    kernel = noise(4, 6)

    class Mixed(LinearPhysics):
        def A(self, x, **kwargs):
            return torch.einsum("ij,bcj->bci", kernel, x)

        def A_adjoint(self, y, **kwargs):
            return torch.einsum("ij,bci->bcj", kernel, y)

    return Mixed()


@package.case(effort="quick", seconds=25, tolerance=1e-5, second_order=False)
def least_squares():
    physics = blur()
    import torch
    from deepinv.optim.linear import least_squares_implicit_backward

    def solved(y, z, gamma):
        return least_squares_implicit_backward(physics, y, z=z, gamma=gamma, solver="CG", max_iter=200, tol=1e-15)

    return solved, (noise(2, 1, 4), noise(2, 1, 6), torch.tensor(0.7, dtype=torch.float64))


@package.case(effort="quick", seconds=25, tolerance=1e-5, second_order=False)
def least_squares_with_a_batch_of_weights():
    physics = blur()
    import torch
    from deepinv.optim.linear import least_squares_implicit_backward

    def solved(y, z, gamma):
        return least_squares_implicit_backward(physics, y, z=z, gamma=gamma, solver="CG", max_iter=200, tol=1e-15)

    return solved, (noise(2, 1, 4), noise(2, 1, 6), torch.tensor([0.7, 1.9], dtype=torch.float64))


@package.case(effort="quick", seconds=25)
def tomography():
    deepinv = imported()
    import torch

    physics = deepinv.physics.Tomography(angles=4, img_width=6, adjoint_via_backprop=False, dtype=torch.float64, normalize=False)
    return lambda x: physics.A(x), noise(1, 1, 6, 6)


@package.case(effort="quick", seconds=25)
def adjoint_tomography():
    deepinv = imported()
    import torch

    physics = deepinv.physics.Tomography(angles=4, img_width=6, adjoint_via_backprop=False, dtype=torch.float64, normalize=False)
    return lambda y: physics.A_adjoint(y), noise(1, 1, 9, 4)


@package.case(effort="quick", seconds=25)
def adjoint_function():
    imported()
    import torch
    from deepinv.physics.forward import adjoint_function

    kernel = noise(1, 1, 2, 2)

    def convolved(x):
        return torch.nn.functional.conv2d(x, kernel)

    return adjoint_function(convolved, (2, 1, 4, 4), dtype=torch.float64), noise(2, 1, 3, 3)


@package.case(effort="quick", seconds=25)
def lippmann_schwinger():
    imported()
    import torch
    from deepinv.physics.scattering import LippmannSchwingerSolver, Scattering

    config, wavenumber = Scattering.SolverConfig(max_iter=200, tol=1e-14), torch.tensor([2.0], dtype=torch.float64)
    solver = LippmannSchwingerSolver(
        img_width=4, box_length=1.0, wavenumber=wavenumber, device="cpu", dtype=torch.complex128, config=config
    )

    def field(k2, real, imaginary):
        return torch.view_as_real(solver(k2 + 0j, torch.complex(real, imaginary)))

    return field, (4 + noise(1, 1, 4, 4), noise(1, 1, 4, 4), noise(1, 1, 4, 4))


package.finding(
    "deepinv-spline-derivative",
    kind="gradient",
    where="deepinv/models/deal.py:372",
    what="The backward of the derivative of a linear spline does not multiply the gradient of the coefficients by the incoming gradient, and returns it "
    "flat, so that it raises for more than one activation.",
    size="factors of the incoming gradient",
    cases=["derivative of one linear spline", "derivative of the linear spline"],
)
package.finding(
    "deepinv-radon",
    kind="accuracy",
    where="deepinv/physics/functional/radon.py:527",
    what="With adjoint_via_backprop=False the backward of the Radon transform is a scaled back-projection, which interpolates otherwise than the adjoint does.",
    size="0.08 of the gradient for an image of 6 x 6 pixels",
    cases=["tomography", "adjoint tomography"],
    documented="deepinv/physics/tomography.py:51, the note in the docstring of Tomography",
)
package.finding(
    "deepinv-spline-second-derivative",
    kind="second derivative",
    where="deepinv/models/deal.py:301",
    what="The backwards of the linear and the quadratic spline use numbers that the forward computed from x and saved, so that second derivatives lack what "
    "goes through them, without an error.",
    size="1 to 3 times the second derivative",
    cases=["linear spline", "quadratic spline"],
)
package.finding(
    "deepinv-mmse-second-derivative",
    kind="second derivative",
    where="deepinv/models/mmse.py:232",
    what="The backward of the empirical denoiser uses the weights that the forward computed and saved, so that second derivatives lack what goes through them, "
    "without an error.",
    size="of the order of the second derivative",
    cases=["empirical denoiser", "empirical denoiser from a loader"],
    missed=True,
)

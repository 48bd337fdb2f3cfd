"""zuko: normalizing flows; its inverses, integrals and differential equations have backwards of their own."""

from census.package import Package

package = Package(
    "zuko",
    "1.6.0",
    family="normalizing flows and invertible networks",
    group="signals",
    modules=["zuko"],
    tests=["tests/test_utils.py"],
    note="odeint is audited at tolerances of 1e-9, and its gradient, which solves the adjoint equation along the same steps, to 1e-6.",
)


def noise(*shape):
    """Ordinary numbers in float64."""
    import torch

    return torch.randn(*shape, dtype=torch.float64)


@package.case()
def bisection():
    from zuko.utils import bisection

    def invert(y, scale):
        return bisection(lambda x: x**3 + scale * x, y, -9.0, 9.0, n=60, phi=(scale,))

    return invert, (noise(5), noise(1).abs() + 0.5)


@package.case()
def bisection_of_a_decreasing_function():
    from zuko.utils import bisection

    def invert(y, scale):
        return bisection(lambda x: -(x**3) - scale * x, y, 9.0, -9.0, n=60, phi=(scale,))

    return invert, (noise(2, 3), noise(3).abs() + 0.5)


@package.case()
def bisection_where_y_is_broadcast():
    import torch
    from zuko.utils import bisection

    low = torch.full((3, 4), -9.0, dtype=torch.float64)

    def invert(y, scale):
        return bisection(lambda x: x.exp() - 1 / x.exp() + scale * x, y, low, -low, n=60, phi=(scale,))

    return invert, (noise(4), noise(3, 1).abs() + 0.5)


@package.case()
def gauss_legendre_of_polynomials():
    from zuko.utils import gauss_legendre

    def integral(a, b, c):
        return gauss_legendre(lambda x: c * x**3 - x + c**2, a, b, n=3, phi=(c,))

    return integral, (noise(4), noise(4), noise(4))


@package.case()
def gauss_legendre_of_an_exponential():
    import torch
    from zuko.utils import gauss_legendre

    def integral(a, b, c):
        return gauss_legendre(lambda x: torch.exp(-c * x**2), a, b, n=5, phi=(c,))

    return integral, (noise(4), noise(4) + 2, noise(1).abs() + 0.5)


@package.case()
def gauss_legendre_with_many_nodes():
    import torch
    from zuko.utils import gauss_legendre

    def integral(a, b, c):
        return gauss_legendre(lambda x: torch.exp(-c * x**2), a, b, n=48, phi=(c,))

    return integral, (noise(4), noise(4) + 2, noise(1).abs() + 0.5)


@package.case()
def unconstrained_monotonic_transform():
    import torch
    from zuko.transforms import UnconstrainedMonotonicTransform

    def log_abs_det(x, weight):
        flow = UnconstrainedMonotonicTransform(lambda z: torch.nn.functional.softplus(weight * z) + 0.1, n=16, phi=(weight,))
        return flow(x)

    return log_abs_det, (noise(4), noise(4))


@package.case()
def inverse_of_the_unconstrained_monotonic_transform():
    import torch
    from zuko.transforms import UnconstrainedMonotonicTransform

    def inverse(y, weight):
        flow = UnconstrainedMonotonicTransform(
            lambda z: torch.nn.functional.softplus(weight * z) + 0.1, n=32, phi=(weight,), bound=20.0, eps=1e-14
        )
        return flow.inv(y)

    return inverse, (0.3 * noise(4), noise(4))


@package.case()
def sum_of_squares_polynomial():
    from zuko.transforms import SOSPolynomialTransform

    return lambda x, coefficients: SOSPolynomialTransform(coefficients)(x), (noise(3), noise(3, 2, 3))


@package.case()
def inverse_sum_of_squares_polynomial():
    from zuko.transforms import SOSPolynomialTransform

    def inverse(y, coefficients):
        return SOSPolynomialTransform(coefficients, eps=1e-14).inv(y)

    return inverse, (0.3 * noise(3), noise(3, 2, 3))


@package.case(tolerance=1e-6, effort="quick")
def odeint_of_the_state_and_parameters():
    import torch
    from zuko.utils import odeint

    def end(x, weight):
        return odeint(lambda t, x: torch.tanh(weight @ x) - 0.3 * x * torch.cos(t), x, 0.2, 1.1, phi=(weight,), atol=1e-9, rtol=1e-9)

    return end, (noise(3), noise(3, 3))


@package.case(tolerance=1e-6, effort="quick")
def odeint_of_the_final_time():
    import torch
    from zuko.utils import odeint

    x = noise(3)
    start = torch.tensor(0.2, dtype=torch.float64)
    return lambda stop: odeint(lambda t, x: torch.sin(x) - 0.3 * x * t, x, start, stop, atol=1e-9, rtol=1e-9), torch.tensor(
        1.1, dtype=torch.float64
    )


@package.case(tolerance=1e-6, effort="quick")
def odeint_of_the_initial_time():
    import torch
    from zuko.utils import odeint

    x = noise(3)
    stop = torch.tensor(1.1, dtype=torch.float64)
    return lambda start: odeint(lambda t, x: torch.sin(x) - 0.3 * x * t, x, start, stop, atol=1e-9, rtol=1e-9), torch.tensor(
        0.2, dtype=torch.float64
    )


@package.case(tolerance=1e-6, effort="quick")
def odeint_backwards_in_time():
    import torch
    from zuko.utils import odeint

    def end(x, weight):
        return odeint(lambda t, x: torch.tanh(weight * x), x, 1.0, 0.1, phi=(weight,), atol=1e-9, rtol=1e-9)

    return end, (noise(3), noise(3))


@package.case(tolerance=1e-3, effort="quick")
def odeint_with_default_tolerances():
    import torch
    from zuko.utils import odeint

    def end(x, weight):
        return odeint(lambda t, x: torch.tanh(weight @ x) - 0.3 * x, x, 0.0, 1.0, phi=(weight,))

    return end, (noise(3), noise(3, 3))


@package.case(tolerance=1e-6, effort="quick")
def odeint_of_two_states():
    import torch
    from zuko.utils import odeint

    def end(x, y, weight):
        return odeint(lambda t, x, y: (torch.tanh(weight @ y), -0.5 * x[:2] * y), (x, y), 0.0, 1.0, phi=(weight,), atol=1e-9, rtol=1e-9)

    return end, (noise(3), noise(2), noise(3, 2))


package.finding(
    "zuko-odeint-initial-time",
    kind="gradient in a configuration",
    where="zuko/utils.py:589",
    what="The gradient of odeint with respect to the initial time is f(t0, x0) times the gradient of the initial state, where it is minus that.",
    size="factor -1",
    cases=["odeint of the initial time"],
)
package.finding(
    "zuko-gauss-legendre",
    kind="undeclared estimator",
    where="zuko/utils.py:304",
    what="The gradient of the limits is the integrand at them, that of the integral; it is not the derivative of the quadrature that is returned, which "
    "shows where the nodes are too few for the integrand.",
    size="a factor of 1.1 with 5 nodes over an ordinary bell, 1e-14 with 48",
    cases=["gauss legendre of an exponential"],
)

"""xitorch: differentiable linear algebra, root finding, integration and interpolation."""

from census.package import Package

package = Package("xitorch", "0.5.1", family="differential equations and implicit layers", group="solvers", modules=["xitorch"])


def _square(n=4, seed=0, batch=()):
    import torch

    return torch.randn(*batch, n, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _matrix(a, hermitian=None):
    import xitorch

    return xitorch.LinearOperator.m(a, is_hermitian=hermitian)


@package.case(effort="quick", seconds=300.0)
def symeig_exact():
    from xitorch.linalg import symeig

    def projector(a):
        values, vectors = symeig(_matrix(a + a.mT, True), neig=2)
        return values, vectors @ vectors.mT

    return projector, _square()


@package.case(second_order=False, effort="quick", seconds=300.0)
def symeig_exact_repeated_eigenvalues():
    import torch
    from xitorch.linalg import symeig

    a = torch.diag(torch.tensor([1.0, 1.0, 2.0, 3.0], dtype=torch.float64))

    def projector(a):
        values, vectors = symeig(_matrix((a + a.mT) / 2, True), neig=2)
        return values.sum(), vectors @ vectors.mT

    return projector, a


@package.case(second_order=False, effort="quick", tolerance=1e-7, seconds=300.0)
def symeig_davidson():
    from xitorch.linalg import symeig

    def projector(a):
        values, vectors = symeig(_matrix(a + a.mT, True), neig=2, method="davidson", min_eps=1e-13, bck_options={"method": "exactsolve"})
        return values, vectors @ vectors.mT

    return projector, _square()


@package.case(second_order=False, effort="quick", tolerance=1e-7, seconds=300.0)
def symeig_davidson_generalized():
    import torch
    from xitorch.linalg import symeig

    def projector(a, b):
        metric = b @ b.mT + torch.eye(4, dtype=torch.float64)
        values, vectors = symeig(_matrix(a + a.mT, True), neig=2, M=_matrix(metric, True), method="davidson", min_eps=1e-13)
        return values, vectors @ vectors.mT

    return projector, (_square(), _square(seed=1))


@package.case(effort="quick", seconds=300.0)
def svd():
    from xitorch.linalg import svd

    def parts(a):
        u, s, vh = svd(_matrix(a[:, :3]), k=2)
        return u @ vh, s

    return parts, _square()


@package.case(effort="quick", seconds=300.0)
def solve_custom_exact_with_shift():
    import torch
    from xitorch.linalg import solve

    def solution(a, b, e, m):
        metric = m @ m.mT + torch.eye(4, dtype=torch.float64)
        return solve(_matrix(a + 6 * torch.eye(4, dtype=torch.float64), False), b, e, _matrix(metric, True), method="custom_exactsolve")

    e = torch.tensor([0.4, -0.3], dtype=torch.float64)
    return solution, (_square(), _square(seed=1)[:, :2], e, _square(seed=2))


@package.case(second_order=False, effort="quick", seconds=300.0)
def solve_custom_exact_batched_shift():
    import torch
    from xitorch.linalg import solve

    def solution(a, b, e):
        return solve(_matrix(a + 6 * torch.eye(4, dtype=torch.float64), False), b, e, method="custom_exactsolve")

    e = torch.tensor([[0.4, -0.3], [0.1, 0.2], [0.5, -0.6]], dtype=torch.float64)
    return solution, (_square(), _square(seed=1)[:, :2], e)


@package.case(second_order=False, effort="quick", tolerance=1e-6, seconds=300.0)
def rootfinder():
    import torch
    from xitorch.optimize import rootfinder

    def root(a, b):
        return rootfinder(
            lambda y, a, b: torch.tanh(0.3 * a @ y + b) + 2 * y, torch.zeros(4, 1, dtype=torch.float64), (a, b), f_tol=1e-11, x_tol=1e-11
        )

    return root, (_square(), _square(seed=1)[:, :1])


@package.case(effort="quick", seconds=300.0)
def quad_limits_and_parameters():
    import torch
    from xitorch.integrate import quad

    def integral(low, high, a, b):
        return quad(lambda x, a, b: torch.exp(-a * x**2) * torch.cos(b * x), low, high, (a, b), n=40)

    numbers = (-0.4, 1.1, 0.7, 1.3)
    return integral, tuple(torch.tensor(n, dtype=torch.float64) for n in numbers)


@package.case(second_order=False, effort="quick", seconds=300.0)
def quad_limits_alone():
    import torch
    from xitorch.integrate import quad

    return lambda low, high: quad(lambda x: torch.exp(-(x**2)), low, high, n=40), (torch.tensor(-0.4).double(), torch.tensor(1.1).double())


@package.case(second_order=False, effort="quick", seconds=300.0)
def quad_to_infinity():
    import torch
    from xitorch.integrate import quad

    def integral(low, a):
        return quad(lambda x, a: torch.exp(-a * x**2), low, torch.tensor(torch.inf, dtype=torch.float64), (a,), n=60)

    return integral, (
        torch.tensor(0.3, dtype=torch.float64).requires_grad_(),
        torch.tensor([0.7, 1.2], dtype=torch.float64).requires_grad_(),
    )


@package.case(second_order=False, effort="quick", seconds=300.0)
def mcquad():
    import torch
    from xitorch.integrate import mcquad

    def expectation(a, b):
        samples = torch.linspace(-3, 3, 41, dtype=torch.float64)

        def sampler(log_p, x0, params, **_):
            weights = torch.stack([log_p(x, *params).reshape(()) for x in samples]).softmax(0)
            return samples, weights

        return mcquad(lambda x, a: (a * x).sin() + x**2, lambda x, b: -b * (x - 0.3) ** 2, samples[0], (a,), (b,), method=sampler)

    return expectation, (torch.tensor([0.7, 1.9], dtype=torch.float64), torch.tensor([0.8], dtype=torch.float64))


@package.case(second_order=False, effort="quick", tolerance=1e-5, seconds=300.0)
def solve_ivp_times_state_and_parameters():
    import torch
    from xitorch.integrate import solve_ivp

    def solution(t, y0, a):
        return solve_ivp(lambda t, y, a: a @ y + 0.3 * torch.sin(t) * y**2, t, y0, (a,), method="rk4")

    return solution, (torch.tensor([0.1, 0.12, 0.15], dtype=torch.float64), torch.tensor([0.8, -0.4], dtype=torch.float64), _square(2))


package.finding(
    "xitorch-quad-limits-alone",
    kind="missing gradient",
    where="xitorch/integrate/quad.py:158",
    what="The backward of quad raises if the limits require a gradient and no parameter does, because it takes the last 0 saved tensors for all of them.",
    size="an error",
    cases=["quad limits alone"],
)

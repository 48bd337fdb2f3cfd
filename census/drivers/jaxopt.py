"""jaxopt: projections and isotonic regression with rules of their own, and solvers differentiated implicitly."""

from census.package import Package

package = Package("jaxopt", "0.8.5", family="JAX", group="jax", modules=["jaxopt"])


def jaxed(fn):
    """A function of JAX for the auditor."""
    from pairgrad.coherence import from_jax

    return from_jax(fn)


def of(*numbers):
    """A tensor of double precision."""
    import torch

    return torch.tensor(numbers, dtype=torch.float64)


@package.case(effort="quick", seconds=150)
def projection_onto_the_simplex():
    from jaxopt import projection

    return jaxed(projection.projection_simplex), (of(0.3, -1.2, 0.9, 0.4), of(1.3)[0])


@package.case(effort="quick", seconds=150)
def projection_onto_the_sparse_simplex():
    from jaxopt import projection

    return jaxed(lambda x: projection.projection_sparse_simplex(x, 2)), of(0.3, -1.2, 0.9, 0.4)


@package.case(effort="quick", seconds=150)
def projection_onto_balls():
    from jaxopt import projection

    return jaxed(lambda x: (projection.projection_l2_ball(x, 0.7), projection.projection_l1_ball(x, 0.7))), of(0.3, -1.2, 0.9, 0.4)


@package.case(effort="quick", seconds=150)
def isotonic_regression():
    from jaxopt import isotonic

    return jaxed(lambda y: isotonic.isotonic_l2_pav(y)), of(0.3, -1.2, 0.9, 0.4, 2.0)


@package.case(effort="quick", seconds=150)
def root_by_bisection():
    import jax.numpy as jnp
    from jaxopt import Bisection

    solver = Bisection(lambda x, a: x**3 + a * x - 1.0, 0.0, 2.0, tol=1e-15, maxiter=100)
    return jaxed(lambda a: jnp.ones(1) * solver.run(params=None, a=a).params), of(0.7)


@package.case(effort="quick", seconds=150)
def ridge_regression_by_gradient_descent():
    import jax.numpy as jnp
    import torch
    from jaxopt import GradientDescent

    def loss(w, c, x, y):
        return jnp.mean((x @ w - y) ** 2) + c * jnp.sum(w**2)

    solver = GradientDescent(loss, maxiter=2000, tol=1e-14)
    inputs = (torch.tensor(0.3, dtype=torch.float64), torch.randn(4, 2, dtype=torch.float64), torch.randn(4, dtype=torch.float64))
    return jaxed(lambda c, x, y: solver.run(jnp.zeros(2), c, x, y).params), inputs


package.finding(
    "jaxopt-isotonic-denominator",
    kind="accuracy",
    where="jaxopt/_src/isotonic.py:126",
    what="The rule of isotonic_l2_pav adds 1e-8 to the size of each block before dividing by it, so that the derivative is too small.",
    size="1e-8 of the gradient",
    cases=["isotonic regression"],
)

"""ott-jax: optimal transport on JAX."""

from census.package import Package

package = Package("ott-jax", "0.6.0", family="JAX", group="jax", modules=["ott"])


def jaxed(fn):
    """A function of JAX for the auditor."""
    from pairgrad.coherence import from_jax

    return from_jax(fn)


def randn(*shape):
    """Random numbers of the case's own seed."""
    import torch

    return torch.randn(*shape, dtype=torch.float64)


@package.case()
def norm_of_rows():
    from ott.math import utils

    return jaxed(lambda x: utils.norm(x, None, 1)), randn(3, 4)


@package.case()
def norm_of_a_zero_vector():
    import torch
    from ott.math import utils

    return jaxed(utils.norm), torch.zeros(4, dtype=torch.float64)


@package.case()
def norm_of_rows_one_of_them_zero():
    import torch
    from ott.math import utils

    return jaxed(lambda x: utils.norm(x, None, 1)), torch.cat((torch.zeros(1, 4, dtype=torch.float64), randn(2, 4)))


@package.case()
def euclidean_cost():
    from ott.geometry import costs

    return jaxed(costs.Euclidean()), (randn(4), randn(4))


@package.case()
def euclidean_cost_of_equal_points():
    from ott.geometry import costs

    x = randn(4)
    return jaxed(costs.Euclidean()), (x, x.clone())


@package.case()
def logsumexp_over_an_axis():
    from ott.math import utils

    return jaxed(lambda x: utils.logsumexp(x, 1)), randn(3, 4)


@package.case()
def logsumexp_with_weights():
    import torch
    from ott.math import utils

    return jaxed(lambda x, b: utils.logsumexp(x, 1, False, b)), (randn(3, 4), torch.rand(3, 4, dtype=torch.float64) + 0.1)


@package.case(effort="quick", seconds=150)
def logsumexp_with_weights_and_a_sign():
    from ott.math import utils

    return jaxed(lambda x, b: utils.logsumexp(x, 1, False, b, True)), (randn(3, 4), randn(3, 4))


@package.case(effort="quick", seconds=150)
def logsumexp_keeping_the_axis():
    from ott.math import utils

    return jaxed(lambda x: utils.logsumexp(x, 1, True)), randn(3, 4)


@package.case(effort="quick", seconds=150)
def logsumexp_of_a_row_of_minus_infinities():
    import jax.numpy as jnp
    from ott.math import utils

    mask = jnp.array([[0.0, 0.0], [-jnp.inf, -jnp.inf]])
    return jaxed(lambda x: jnp.exp(utils.logsumexp(x + mask, 1))), randn(2, 2)


@package.case(effort="quick", seconds=150)
def soft_minimum():
    from ott.math import utils

    return jaxed(lambda x: utils.softmin(x, 0.7, 1)), randn(3, 4)


@package.case(effort="quick", seconds=150)
def soft_minimum_and_its_gamma():
    import torch
    from ott.math import utils

    return jaxed(lambda x, gamma: utils.softmin(x, gamma, 1)), (randn(3, 4), torch.tensor(0.7, dtype=torch.float64))


@package.case(effort="quick", seconds=150)
def soft_dtw_and_its_gamma():
    import torch
    from ott.geometry import costs

    return jaxed(lambda x, y, gamma: costs.SoftDTW(gamma)(x, y)), (randn(4), randn(3), torch.tensor(0.7, dtype=torch.float64))


@package.case(effort="quick", seconds=150)
def lambert_w():
    import torch
    from ott.math import utils

    return jaxed(utils.lambertw), torch.tensor([-0.3, 0.02, 0.5, 30.0], dtype=torch.float64)


@package.case(effort="quick", seconds=150)
def lambert_w_at_zero():
    import torch
    from ott.math import utils

    return jaxed(utils.lambertw), torch.tensor([0.0, 0.5, 2.0], dtype=torch.float64)


@package.case(effort="quick", seconds=150)
def square_root_of_a_matrix():
    import jax.numpy as jnp
    from ott.math import matrix_square_root

    return jaxed(lambda a: matrix_square_root.sqrtm_only(a @ a.T + jnp.eye(3), threshold=1e-14)), randn(3, 3)


@package.case(effort="quick", seconds=150)
def inverse_square_root_of_a_matrix():
    import jax.numpy as jnp
    from ott.math import matrix_square_root

    return jaxed(lambda a: matrix_square_root.inv_sqrtm_only(a @ a.T + jnp.eye(3), threshold=1e-14)), randn(3, 3)


@package.case(effort="quick", seconds=150)
def both_square_roots_of_a_batch():
    import jax.numpy as jnp
    from ott.math import matrix_square_root

    return jaxed(lambda a: matrix_square_root.sqrtm(a @ jnp.swapaxes(a, 1, 2) + jnp.eye(3), threshold=1e-14)[:2]), randn(2, 3, 3)


@package.case(effort="quick", seconds=150)
def bures_cost():
    import jax.numpy as jnp
    from ott.geometry import costs

    cost = costs.Bures(2, sqrtm_kw={"threshold": 1e-14})

    def gaussian(m, a):
        return jnp.concatenate((m, (a @ a.T + jnp.eye(2)).ravel()))

    return jaxed(lambda m, a, n, b: cost(gaussian(m, a), gaussian(n, b))), (randn(2), randn(2, 2), randn(2), randn(2, 2))


@package.case(effort="quick", seconds=150)
def legendre_transform_of_a_regularised_cost():
    from ott.geometry import costs, regularizers

    return jaxed(costs.RegTICost(regularizers.L1(), lam=0.3).h_legendre), randn(5)


@package.case(effort="quick", seconds=30)
def legendre_transform_with_another_rho():
    from ott.geometry import costs, regularizers

    return jaxed(costs.RegTICost(regularizers.L1(), lam=0.3, rho=2.0).h_legendre), randn(5)


@package.case(effort="quick", seconds=150)
def fixed_point_loop_unrolled():
    import jax.numpy as jnp
    from ott.math import fixed_point_loop as loop

    def body(i, constant, state, compute_error):
        return 0.9 * state + 0.3 * jnp.tanh(constant * state)

    return jaxed(lambda c, s: loop.fixpoint_iter_backprop(lambda *_: True, body, 0, 12, 3, c, s)), (randn(1), randn(4))


@package.case(effort="quick", seconds=30)
def fixed_point_loop_unrolled_of_a_fixed_length():
    import jax.numpy as jnp
    from ott.math import fixed_point_loop as loop

    def body(i, constant, state, compute_error):
        return 0.9 * state + 0.3 * jnp.tanh(constant * state)

    return jaxed(lambda c, s: loop.fixpoint_iter_backprop(lambda *_: True, body, 12, 12, 3, c, s)), (randn(1), randn(4))


@package.case(effort="quick", seconds=150)
def sinkhorn_implicit():
    import jax.numpy as jnp
    from ott.geometry import pointcloud
    from ott.problems.linear import linear_problem
    from ott.solvers.linear import sinkhorn

    def cost(x, y):
        problem = linear_problem.LinearProblem(pointcloud.PointCloud(x, y, epsilon=1.0))
        return sinkhorn.Sinkhorn(threshold=1e-13, max_iterations=2000)(problem).g[:1] * jnp.ones(1)

    return jaxed(cost), (randn(4, 2), randn(3, 2))


@package.case(effort="quick", seconds=150)
def sinkhorn_cost():
    from ott.geometry import pointcloud
    from ott.problems.linear import linear_problem
    from ott.solvers.linear import sinkhorn

    def cost(x, y):
        problem = linear_problem.LinearProblem(pointcloud.PointCloud(x, y, epsilon=1.0))
        return sinkhorn.Sinkhorn(threshold=1e-13, max_iterations=2000)(problem).reg_ot_cost

    return jaxed(cost), (randn(4, 2), randn(3, 2))


@package.case(effort="quick", seconds=150)
def sinkhorn_unrolled_a_few_iterations_of_a_fixed_number():
    from ott.geometry import pointcloud
    from ott.problems.linear import linear_problem
    from ott.solvers.linear import sinkhorn

    def potentials(x, y):
        problem = linear_problem.LinearProblem(pointcloud.PointCloud(x, y, epsilon=0.3))
        solver = sinkhorn.Sinkhorn(implicit_diff=None, min_iterations=6, max_iterations=6, inner_iterations=2, threshold=0.0)
        return solver(problem).matrix

    return jaxed(potentials), (randn(4, 2), randn(3, 2))


@package.case(effort="quick", seconds=150)
def sinkhorn_unrolled_a_few_iterations():
    from ott.geometry import pointcloud
    from ott.problems.linear import linear_problem
    from ott.solvers.linear import sinkhorn

    def potentials(x, y):
        problem = linear_problem.LinearProblem(pointcloud.PointCloud(x, y, epsilon=0.3))
        solver = sinkhorn.Sinkhorn(implicit_diff=None, min_iterations=0, max_iterations=6, inner_iterations=2, threshold=0.0)
        return solver(problem).matrix

    return jaxed(potentials), (randn(4, 2), randn(3, 2))


package.finding(
    "ott-jax-fixed-length-loop",
    kind="gradient in a configuration",
    where="ott/math/fixed_point_loop.py:221",
    what="With min_iterations equal to max_iterations, the unrolled backward visits the checkpoints as 0, -1, -2, ... instead of last to first, "
    "so that each block is differentiated at the state of another one.",
    size="0.4 of the gradient, depends on how far the iteration is from its fixed point",
    cases=["fixed point loop unrolled of a fixed length", "sinkhorn unrolled a few iterations of a fixed number"],
)
package.finding(
    "ott-jax-norm-value-at-zero",
    kind="value",
    where="ott/math/utils.py:107",
    what="At a vector of zeros the rule returns the norm of a vector of ones as the value, so that under differentiation the norm is sqrt(n) and not 0.",
    size="sqrt(n) instead of 0",
    cases=["norm of a zero vector"],
)
package.finding(
    "ott-jax-euclidean-value",
    kind="value",
    where="ott/math/utils.py:107",
    what="The Euclidean cost of two equal points is sqrt(n) under differentiation, and 0 without: the value at zero of the norm's rule.",
    size="sqrt(n) instead of 0",
    cases=["euclidean cost of equal points"],
    missed=True,
)
package.finding(
    "ott-jax-norm-zero-row",
    kind="gradient at special states",
    where="ott/math/utils.py:101",
    what="The rule asks whether all elements are zero, not those along the axis, so that one zero row among others gets a gradient of NaN instead of 0.",
    size="not a number",
    cases=["norm of rows one of them zero"],
)
package.finding(
    "ott-jax-logsumexp-value",
    kind="value",
    where="ott/math/utils.py:172",
    what="Under differentiation the value of a slice of minus infinities is 0 instead of minus infinity: the rule returns the value it made finite.",
    size="0 instead of minus infinity",
    cases=["logsumexp of a row of minus infinities"],
)
package.finding(
    "ott-jax-softmin-gamma",
    kind="missing gradient",
    where="ott/math/utils.py:215",
    what="The gradient of softmin, and of SoftDTW, by gamma is zero although the value depends on gamma.",
    size="the whole gradient of gamma",
    cases=["soft minimum and its gamma", "soft dtw and its gamma"],
)
package.finding(
    "ott-jax-legendre-rho",
    kind="gradient in a configuration",
    where="ott/geometry/costs.py:436",
    what="With rho other than 1, h_legendre takes another point than the maximiser: its value is not the transform, nor its gradient the derivative.",
    size="the whole gradient at rho = 2",
    cases=["legendre transform with another rho"],
)

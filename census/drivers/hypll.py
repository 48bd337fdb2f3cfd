"""hypll: hyperbolic learning, with the Frechet mean of the Poincare ball."""

from census.package import Package

package = Package(
    "hypll",
    "0.1.1",
    family="geometry and pose",
    group="geometry",
    modules=["hypll"],
    note="The mean is iterated to 1e-12, so that defects below 1e-8 decide nothing.",
)


def points(*shape, radius=0.6):
    """Points in the ball."""
    import torch

    x = torch.randn(*shape, dtype=torch.float64)
    return radius * x / (1 + x.norm(dim=-1, keepdim=True))


def curvature(c=1.0):
    """A curvature to differentiate by."""
    import torch

    return torch.tensor(c, dtype=torch.float64)


@package.case("frechet_mean by points and curvature", seconds=200, effort="quick", second_order=False, tolerance=1e-8)
def _mean():
    from hypll.manifolds.poincare_ball.math.stats import frechet_mean

    return lambda x, c: frechet_mean(x, c), (points(4, 2), curvature(0.5))


@package.case("frechet_mean, second derivatives", seconds=240, effort="quick", tolerance=1e-8)
def _second():
    from hypll.manifolds.poincare_ball.math.stats import frechet_mean

    return lambda x: frechet_mean(x, curvature()) * x, points(3, 2)


@package.case("frechet_mean over one of two batch dimensions", seconds=60, effort="quick", second_order=False, tolerance=1e-8)
def _batches():
    from hypll.manifolds.poincare_ball.math.stats import frechet_mean

    return lambda x: frechet_mean(x, curvature(), batch_dim=1), points(2, 4, 2)


@package.case("frechet_mean of vectors in dimension 1", seconds=60, effort="quick", second_order=False, tolerance=1e-8)
def _channels():
    from hypll.manifolds.poincare_ball.math.stats import frechet_mean

    return lambda x: frechet_mean(x, curvature(), vec_dim=1, batch_dim=[0, 2]), points(3, 2, 2).movedim(-1, 1).contiguous()


@package.case("frechet_mean with keepdim", seconds=60, effort="quick", second_order=False, tolerance=1e-8)
def _keepdim():
    from hypll.manifolds.poincare_ball.math.stats import frechet_mean

    return lambda x: frechet_mean(x, curvature(), batch_dim=1, keepdim=True), points(2, 4, 3)


package.finding(
    "hypll-second-derivative",
    kind="second derivative",
    where="hypll/manifolds/poincare_ball/math/stats.py:373",
    what="The backward of frechet_mean supplies a gradient without a graph, so that the second derivative lacks its part without an error.",
    size="the whole part of the mean",
    cases=["frechet_mean, second derivatives"],
)
package.finding(
    "hypll-keepdim",
    kind="missing gradient",
    where="hypll/manifolds/poincare_ball/math/stats.py:69",
    what="With keepdim=True and further batch dimensions the backward of frechet_mean raises, because it expects the gradient of the reduced shape.",
    size="an error instead of the gradient",
    cases=["frechet_mean with keepdim"],
)

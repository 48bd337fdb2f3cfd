"""optax: projections, losses and gradient scaling with rules of their own."""

from census.package import Package

package = Package("optax", "0.2.8", family="JAX", group="jax", modules=["optax"])


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
    import optax

    return jaxed(optax.projections.projection_simplex), (of(0.3, -1.2, 0.9, 0.4), of(1.3)[0])


@package.case(effort="quick", seconds=150)
def projections_onto_balls():
    import optax

    return jaxed(lambda x: (optax.projections.projection_l1_ball(x, 0.7), optax.projections.projection_l2_ball(x, 0.7))), of(
        0.3, -1.2, 0.9, 0.4
    )


@package.case(effort="quick", seconds=150)
def safe_softmax_cross_entropy():
    import optax
    import torch

    labels = torch.tensor([[0.0, 1, 0], [0.2, 0, 0.8]], dtype=torch.float64)
    return jaxed(optax.losses.safe_softmax_cross_entropy), (torch.randn(2, 3, dtype=torch.float64).requires_grad_(), labels)


@package.case(effort="quick", seconds=150)
def weighted_logsoftmax():
    import torch
    from optax.losses import _classification

    weights = torch.tensor([[0.3, 1, 0.1], [0.2, 0.7, 0.8]], dtype=torch.float64)
    return jaxed(_classification.weighted_logsoftmax), (torch.randn(2, 3, dtype=torch.float64), weights)


@package.case(intent="scaling", why_intended="optax.scale_gradient: scales gradients for the backwards pass")
def scale_gradient():
    import optax

    return jaxed(lambda x: optax.scale_gradient(x, 0.3)), of(0.3, -1.2, 0.9)


@package.case(effort="quick", seconds=150)
def sigmoid_focal_loss_and_poly_loss():
    import optax
    import torch

    labels = torch.tensor([[0.0, 1, 0], [1, 0, 0]], dtype=torch.float64)
    return jaxed(lambda x, y: (optax.losses.sigmoid_focal_loss(x, y, alpha=0.3), optax.losses.poly_loss_cross_entropy(x, y))), (
        torch.randn(2, 3, dtype=torch.float64).requires_grad_(),
        labels,
    )


@package.case(effort="quick", seconds=150)
def cosine_distance_near_zero():
    import optax
    import torch

    return jaxed(lambda x, y: optax.losses.cosine_distance(x, y, epsilon=0.5)), (
        torch.randn(2, 3, dtype=torch.float64) * 0.1,
        torch.randn(2, 3, dtype=torch.float64),
    )

"""torchlie: differentiable Lie groups SO(3) and SE(3) as matrices."""

from census.package import Package

package = Package(
    "torchlie",
    "0.1.0",
    family="geometry and pose",
    group="geometry",
    modules=["torchlie"],
    note="Group elements are matrices with ordinary gradients. Where a function is right on the group alone, the cases begin with elements of the algebra. "
    "The functions jexp, jlog and jinv of the public namespace raise an AttributeError and could not be called.",
)


def randn(*shape):
    """Ordinary numbers in float64."""
    import torch

    return 0.7 * torch.randn(*shape, dtype=torch.float64)


def small(angle, dtype=None):
    """A rotation vector of this angle."""
    import torch

    return angle * torch.tensor([[0.6, 0.0, 0.8]], dtype=dtype or torch.float64)


def through(name):
    """Most operations of a group, from the algebra on."""
    import torchlie.functional as lie

    group = getattr(lie, name)

    def made(x, y, p):
        first, second = group.exp(x), group.exp(y)
        product = group.compose(first, group.inv(second))
        return product, group.log(product), group.adj(first), group.transform(first, p), group.untransform(second, p)

    return made


@package.case("SO3 exp, compose, inv, log, adj, transform, untransform", seconds=30)
def _so3():
    return through("SO3"), (randn(1, 3), randn(1, 3), randn(1, 3))


@package.case("SE3 exp, compose, inv, log, adj, transform, untransform", seconds=30)
def _se3():
    return through("SE3"), (randn(1, 6), randn(1, 6), randn(1, 3))


@package.case("SE3 transform and untransform, broadcast", seconds=20, second_order=False)
def _broadcast():
    from torchlie.functional import SE3

    return lambda x, p: (SE3.transform(SE3.exp(x), p), SE3.untransform(SE3.exp(x), p)), (randn(6), randn(2, 2, 3))


@package.case("SO3 left_act, left_project", seconds=20, second_order=False)
def _left():
    from torchlie.functional import SO3

    return lambda x, a: (SO3.left_act(SO3.exp(x), a), SO3.left_project(SO3.exp(x), a)), (randn(2, 3), randn(2, 2, 3, 3))


@package.case("SE3 left_act, left_project", seconds=20, second_order=False)
def _left_se3():
    from torchlie.functional import SE3

    return lambda x, a: (SE3.left_act(SE3.exp(x), a), SE3.left_project(SE3.exp(x), a)), (randn(2, 6), randn(2, 2, 3, 4))


@package.case("hat, vee, lift, project", seconds=20)
def _hat():
    from torchlie.functional import SE3, SO3

    return lambda x: tuple(f for g, v in ((SO3, x[..., :3]), (SE3, x)) for f in (g.hat(v), g.vee(g.hat(v)), g.project(g.lift(v)))), randn(
        2, 6
    )


@package.case("SO3 normalize", seconds=20, second_order=False)
def _normalize():
    from torchlie.functional import SO3

    return SO3.normalize, randn(2, 3, 3)


@package.case("SO3 normalize, second derivatives", seconds=20)
def _normalize_second():
    from torchlie.functional import SO3

    return lambda x: SO3.normalize(x) * x, randn(1, 3, 3)


@package.case("SO3 normalize at a rotation", seconds=20, second_order=False)
def _normalize_rotation():
    from torchlie.functional import SO3

    return SO3.normalize, SO3.exp(randn(1, 3))


@package.case("SE3 normalize at a rotation", seconds=20, second_order=False)
def _normalize_pose():
    from torchlie.functional import SE3

    return SE3.normalize, SE3.exp(randn(1, 6))


@package.case("SO3 quaternion_to_rotation of a quaternion that is not normalized", seconds=20)
def _quaternion():
    from torchlie.functional import SO3

    return SO3.quaternion_to_rotation, 1.5 * randn(2, 4)


@package.case("SO3 exp at angle 0.004", seconds=20, second_order=False)
def _so3_small():
    from torchlie.functional import SO3

    return SO3.exp, small(0.004)


@package.case("SO3 exp, log beyond pi", seconds=20)
def _so3_beyond():
    from torchlie.functional import SO3

    return lambda x: SO3.log(SO3.exp(x)), small(3.6)


@package.case("SO3 exp, log near pi", seconds=20, second_order=False)
def _so3_pi():
    from torchlie.functional import SO3

    return lambda x: SO3.log(SO3.exp(x)), small(3.1414)


@package.case("SE3 exp at angle 0.004", seconds=20, second_order=False)
def _se3_small():
    import torch
    from torchlie.functional import SE3

    return lambda t, w: SE3.exp(torch.cat([t, w], -1)), (randn(1, 3), small(0.004))


@package.case("SE3 exp, log at angle 0.0101", seconds=20, second_order=False)
def _se3_log_small():
    import torch
    from torchlie.functional import SE3

    return lambda t, w: SE3.log(SE3.exp(torch.cat([t, w], -1))), (randn(1, 3), small(0.0101))


@package.case("SE3 exp, log at angle 0.21 in float32", seconds=20, second_order=False)
def _se3_log_single():
    import torch
    from torchlie.functional import SE3

    return lambda t, w: SE3.log(SE3.exp(torch.cat([t, w], -1))), (randn(1, 3).float(), small(0.21, torch.float32))


@package.case("LieTensor of from_tensor", seconds=20, second_order=False)
def _lie_tensor():
    import torchlie
    from torchlie.functional import SE3

    def moved(x, p):
        pose = torchlie.from_tensor(SE3.exp(x), torchlie.SE3)
        return pose.transform(p), pose.log()

    return moved, (randn(1, 6), randn(1, 3))


package.finding(
    "torchlie-normalize-at-rotation",
    kind="gradient at special states",
    where="torchlie/functional/so3_impl.py:1130",
    what="The backward of normalize divides by differences of squared singular values and drops those that are 0, so that it is wrong at rotation matrices; "
    "the true gradient has sums of singular values only and is smooth there.",
    size="all of the gradient at the identity, 0.4 of it and more at rotations",
    cases=["SO3 normalize at a rotation", "SE3 normalize at a rotation"],
)
package.finding(
    "torchlie-normalize-second",
    kind="second derivative",
    where="torchlie/functional/so3_impl.py:1163",
    what="The backward of normalize uses factors that are no outputs of the function, so that its part of second derivatives is left out without an error.",
    size="the whole part of normalize",
    cases=["SO3 normalize, second derivatives"],
)
package.finding(
    "torchlie-se3-exp-small-angle",
    kind="value",
    where="torchlie/functional/so3_impl.py:230",
    what="Below an angle of 0.005 SE3.exp approximates the factor sin(a) / a of the translation by 4 / (4 + a^2), which is off by a^2 / 12; the backward is "
    "the derivative of the exact exponential.",
    size="1e-6 of the value, 1e-3 of the gradient by the rotation",
    cases=["SE3 exp at angle 0.004"],
)

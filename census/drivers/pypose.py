"""pypose: Lie groups and algebras of poses, with gradients in the tangent space.

The gradient of a Lie group element is documented to be that of a left perturbation, stored in the storage of the element. Cases therefore begin
with elements of the algebra and end with points or elements of the algebra, where gradients are the ordinary ones.
"""

from census.package import Package

package = Package(
    "pypose",
    "0.9.5",
    family="geometry and pose",
    group="geometry",
    modules=["pypose"],
    note="Gradients of Lie group elements are documented as left perturbations in the tangent space. Functions are audited from the algebra, "
    "through the group, to points or back to the algebra, where that convention does not show.",
)

SIZES = {"so3": 3, "se3": 6, "rxso3": 4, "sim3": 7}


def algebra(kind, x):
    """Elements of an algebra from their numbers."""
    import pypose as pp

    return getattr(pp, kind)(x)


def randn(*shape):
    """Ordinary numbers in float64."""
    import torch

    return 0.7 * torch.randn(*shape, dtype=torch.float64)


def through(kind, *names):
    """Several operations of one kind of group, from the algebra to points or back."""
    import torch

    def made(x, y, p):
        first, second = algebra(kind, x).Exp(), algebra(kind, y).Exp()
        said = {
            "Act": lambda: first.Act(p),
            "Act4": lambda: first.Act(torch.cat([p, 0.5 * p[..., :1]], -1)),
            "Mul": lambda: (first * second).Log().tensor(),
            "Inv": lambda: first.Inv().Log().tensor(),
            "Adj": lambda: first.Adj(algebra(kind, y)).tensor(),
            "AdjT": lambda: first.AdjT(algebra(kind, y)).tensor(),
            "Jinvp": lambda: first.Jinvp(algebra(kind, y)).tensor(),
        }
        return tuple(said[name]() for name in names)

    return made, (randn(1, SIZES[kind]), randn(1, SIZES[kind]), randn(1, 3))


@package.case("so3 Act, Act4, Mul, Inv, Adj, AdjT, Jinvp, first derivatives", second_order=False)
def _so3():
    return through("so3", "Act", "Act4", "Mul", "Inv", "Adj", "AdjT", "Jinvp")


@package.case("se3 Act, Act4, Mul, Inv, Adj, Jinvp, first derivatives", second_order=False)
def _se3():
    return through("se3", "Act", "Act4", "Mul", "Inv", "Adj", "Jinvp")


@package.case("rxso3 Act, Act4, Mul, Inv, Adj, AdjT, Jinvp, first derivatives", second_order=False)
def _rxso3():
    return through("rxso3", "Act", "Act4", "Mul", "Inv", "Adj", "AdjT", "Jinvp")


@package.case("se3 AdjT")
def _se3_adjt():
    return lambda x, a: algebra("se3", x).Exp().AdjT(algebra("se3", a)).tensor(), (randn(1, 6), randn(1, 6))


@package.case("sim3 AdjT")
def _sim3_adjt():
    return lambda x, a: algebra("sim3", x).Exp().AdjT(algebra("sim3", a)).tensor(), (0.1 * randn(1, 7), randn(1, 7))


@package.case("sim3 Exp, Act")
def _sim3_act():
    return lambda x, p: algebra("sim3", x).Exp().Act(p), (randn(1, 7), randn(1, 3))


@package.case("sim3 Exp, Act4, Inv, Adj")
def _sim3_more():
    return through("sim3", "Act4", "Inv", "Adj")


@package.case("sim3 Exp, Mul, Log")
def _sim3_log():
    return through("sim3", "Mul")


@package.case("so3 Exp, Act")
def _so3_act():
    return lambda x, p: algebra("so3", x).Exp().Act(p), (randn(1, 3), randn(1, 3))


@package.case("so3 Exp, Mul, Log", seconds=240)
def _so3_mul():
    return lambda x, y: (algebra("so3", x).Exp() * algebra("so3", y).Exp()).Log().tensor(), (randn(1, 3), randn(1, 3))


@package.case("so3 Act, broadcast", second_order=False)
def _broadcast():
    return lambda x, p: algebra("so3", x).Exp().Act(p), (randn(2, 3), randn(2, 2, 3))


@package.case("so3 Exp, Act at rotation 0", second_order=False)
def _so3_zero():
    import torch

    return lambda x, p: algebra("so3", x).Exp().Act(p), (torch.zeros(2, 3, dtype=torch.float64).requires_grad_(), randn(2, 3))


@package.case("so3 Exp, Log near pi", second_order=False)
def _so3_pi():
    import torch

    axis = torch.tensor([[0.6, 0.0, 0.8], [2 / 3, -1 / 3, 2 / 3]], dtype=torch.float64)
    return lambda x: algebra("so3", x).Exp().Log().tensor(), 3.14 * axis


@package.case("se3 Exp, Act at angle 1e-6 in float32", second_order=False)
def _se3_small_single():
    import torch

    phi = 1e-6 * torch.tensor([[0.6, 0.0, 0.8], [2 / 3, -1 / 3, 2 / 3]])
    return lambda t, phi, p: algebra("se3", torch.cat([t, phi], -1)).Exp().Act(p), (
        randn(2, 3).float(),
        phi.requires_grad_(),
        randn(2, 3).float(),
    )


@package.case("se3 Exp, translation", second_order=False)
def _translation():
    return lambda x: algebra("se3", x).Exp().translation(), randn(1, 6)


@package.case("sim3 Exp, scale", second_order=False)
def _scale():
    return lambda x: algebra("sim3", x).Exp().scale(), randn(1, 7)


@package.case("rxso3 Exp, scale", second_order=False)
def _rxso3_scale():
    return lambda x: algebra("rxso3", x).Exp().scale(), randn(1, 4)


@package.case("so3 Exp, euler", second_order=False)
def _euler():
    return lambda x: algebra("so3", x).Exp().euler(), randn(1, 3)


@package.case("euler2SO3, Act", second_order=False)
def _euler2so3():
    import pypose as pp

    return lambda angles, p: pp.euler2SO3(angles).Act(p), (randn(1, 3), randn(1, 3))


@package.case("mat2SO3, Act", second_order=False)
def _mat2so3():
    import pypose as pp
    import torch

    def rotated(a, p):
        return pp.mat2SO3(torch.linalg.matrix_exp(a - a.mT), check=False).Act(p)

    return rotated, (0.4 * randn(1, 3, 3), randn(1, 3))


package.finding(
    "pypose-adjt",
    kind="gradient",
    where="pypose/lietensor/operation.py:1064",
    what="The backward of AdjT multiplies grad_output by Adj(X) where the transposed matrix of Adj(X^-1) is needed: the same for SO3 and RxSO3, another one "
    "for SE3 and Sim3.",
    size="as large as the gradient itself",
    cases=["se3 AdjT", "sim3 AdjT"],
)
package.finding(
    "pypose-sim3-jacobian",
    kind="gradient",
    where="pypose/lietensor/operation.py:164",
    what="The gradients of sim3.Exp and Sim3.Log use the first terms of a series, so that they are off for ordinary angles; "
    "the values are exact.",
    size="1e-5 of the gradient at angle 0.5, 3e-4 at 1, 6e-3 at 2, 6e-2 at 3",
    cases=["sim3 Exp, Act", "sim3 Exp, Act4, Inv, Adj", "sim3 Exp, Mul, Log"],
)
package.finding(
    "pypose-coordinates",
    kind="gradient",
    where="pypose/lietensor/lietensor.py:402",
    what="translation(), scale() and euler() read the coordinates of a group element without a backward of their own, so that ordinary gradients are taken "
    "for those of the tangent space; the gradient of scale() is 0.",
    size="of the size of the gradient; all of it for scale()",
    cases=["se3 Exp, translation", "sim3 Exp, scale", "rxso3 Exp, scale", "so3 Exp, euler"],
    known="https://github.com/pypose/pypose/issues/395",
)
package.finding(
    "pypose-from-coordinates",
    kind="gradient",
    where="pypose/lietensor/convert.py:663",
    what="euler2SO3 and mat2SO3 pass gradients of the tangent space on as if they were those of the quaternion's coordinates.",
    size="0.5 of the gradient and more",
    cases=["euler2SO3, Act", "mat2SO3, Act"],
)
package.finding(
    "pypose-second-derivative",
    kind="second derivative",
    where="pypose/lietensor/operation.py:541",
    what="Backwards can be differentiated, but ordinary gradients of quaternions that arise there are taken for those of the tangent space, so that second "
    "derivatives are wrong without an error.",
    size="as large as the second derivative itself",
    cases=["so3 Exp, Act", "so3 Exp, Mul, Log"],
)
package.finding(
    "pypose-small-angle",
    kind="accuracy",
    where="pypose/lietensor/operation.py:46",
    what="Coefficients of the Jacobian of se3 are computed with cancellation down to angles of one unit of rounding, and lose all digits there.",
    size="in float32 3e-4 of the gradient at angle 1e-4, 6e-2 at 1e-6, 0.16 at 3e-7",
    cases=["se3 Exp, Act at angle 1e-6 in float32"],
)

"""memcnn: invertible couplings and checkpoints that give the memory of activations back."""

from census.package import Package

package = Package(
    "memcnn",
    "1.5.2",
    family="normalizing flows and invertible networks",
    group="signals",
    modules=["memcnn"],
    note="Implementations 0 and 1 of the couplings are deprecated in favour of -1, which leaves the gradient to autograd. AdditiveBlock and AffineBlock, "
    "deprecated as well, use 1. Invertible checkpoints refuse torch.autograd.grad, which the audit uses.",
)


def noise(*shape):
    """Ordinary numbers in float64."""
    import torch

    return torch.randn(*shape, dtype=torch.float64)


def branch(channels=2):
    """A small smooth network between as many channels."""
    from torch import nn

    return nn.Sequential(nn.Linear(channels, 3), nn.Tanh(), nn.Linear(3, channels)).double()


class Inverse:
    """The inverse of a coupling, as a module."""

    def __new__(cls, coupling):
        from torch import nn

        class Inverted(nn.Module):
            def __init__(self):
                super().__init__()
                self.coupling = coupling

            def forward(self, y):
                return self.coupling.inverse(y)

        return Inverted()


def additive(implementation, inverse=False):
    """An additive coupling of two channels each."""
    from memcnn import AdditiveCoupling

    made = AdditiveCoupling(branch(), branch(), implementation_fwd=implementation, implementation_bwd=implementation)
    return Inverse(made) if inverse else made


def affine(implementation, inverse=False):
    """An affine coupling of two channels each."""
    from memcnn import AffineAdapterNaive, AffineCoupling

    made = AffineCoupling(
        branch(), branch(), adapter=AffineAdapterNaive, implementation_fwd=implementation, implementation_bwd=implementation
    )
    return Inverse(made) if inverse else made


@package.case()
def additive_0():
    return additive(0), noise(2, 4)


@package.case(effort="quick", second_order=False)
def additive_1():
    return additive(1), noise(2, 4)


@package.case(effort="quick", second_order=False)
def inverse_additive_0():
    return additive(0, inverse=True), noise(2, 4)


@package.case(effort="quick", second_order=False)
def inverse_additive_1():
    return additive(1, inverse=True), noise(2, 4)


@package.case(effort="quick", second_order=False)
def affine_0():
    return affine(0), noise(2, 4)


@package.case(effort="quick", second_order=False)
def affine_1():
    return affine(1), noise(2, 4)


@package.case(effort="quick", second_order=False)
def inverse_affine_0():
    return affine(0, inverse=True), noise(2, 4)


@package.case(effort="quick", second_order=False)
def inverse_affine_1():
    return affine(1, inverse=True), noise(2, 4)


@package.case(effort="quick", second_order=False)
def affine_block():
    from memcnn.models.affine import AffineAdapterNaive, AffineBlock

    return AffineBlock(AffineAdapterNaive(branch()), AffineAdapterNaive(branch())), noise(2, 4)


@package.case(effort="quick", second_order=False)
def invertible_checkpoint_that_keeps_its_input():
    from memcnn import AffineAdapterNaive, AffineCoupling, InvertibleModuleWrapper

    coupling = AffineCoupling(branch(), branch(), adapter=AffineAdapterNaive)
    return InvertibleModuleWrapper(coupling, keep_input=True, keep_input_inverse=True, num_bwd_passes=1000), noise(2, 4)


@package.case(effort="quick", second_order=False)
def invertible_checkpoint():
    from memcnn import AdditiveCoupling, InvertibleModuleWrapper

    wrapped = InvertibleModuleWrapper(AdditiveCoupling(branch(), branch()), num_bwd_passes=1000)
    return lambda x: wrapped(x.clone()), noise(2, 4)


@package.case(effort="quick", second_order=False)
def two_invertible_checkpoints():
    from memcnn import AdditiveCoupling, InvertibleModuleWrapper
    from torch import nn

    return nn.Sequential(
        *[InvertibleModuleWrapper(AdditiveCoupling(branch(), branch()), keep_input=True, num_bwd_passes=1000) for _ in range(2)]
    ), noise(2, 4)


package.finding(
    "memcnn-inverse-halves",
    kind="gradient in a configuration",
    where="memcnn/models/additive.py:280",
    what="The inverses of the additive and the affine coupling in implementation 0 return the gradients of the two halves of the input in the wrong order.",
    size="halves exchanged, 0.4 to 1.2 times the gradient",
    cases=["inverse additive 0", "inverse affine 0"],
)
package.finding(
    "memcnn-affine-scale",
    kind="gradient in a configuration",
    where="memcnn/models/affine.py:460",
    what="The affine coupling in implementation 1, which AffineBlock uses, adds the gradient of the second half of the output to that of the input without the "
    "scale by which it has been multiplied.",
    size="a factor of the scale, 0.1 to 0.3 of the gradient",
    cases=["affine 1", "affine block"],
)
package.finding(
    "memcnn-inverse-affine-scale",
    kind="gradient in a configuration",
    where="memcnn/models/affine.py:572",
    what="The inverse of the affine coupling in implementation 1 adds the gradient of the first half of the output to that of the input without the scale by "
    "which it has been divided.",
    size="a factor of the scale, 0.2 to 0.3 of the gradient",
    cases=["inverse affine 1"],
)

package.finding(
    "memcnn-second-derivative",
    kind="second derivative",
    where="memcnn/models/additive.py:183",
    what="The backward returns a gradient that is not connected to the input: a second derivative through a loss that is not linear in the output lacks the "
    "derivative of the coupling's own gradient, without an error.",
    size="all of the coupling's second derivative",
    cases=["additive 0"],
)

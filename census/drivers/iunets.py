"""iunets: invertible U-Nets; their channel mixing is orthogonal, by the exponential or the Cayley transform of a skew-symmetric matrix."""

from census.package import Package

package = Package("iunets", "0.1", family="normalizing flows and invertible networks", group="signals", modules=["iunets"])


def noise(*shape):
    """Ordinary numbers in float64."""
    import torch

    return torch.randn(*shape, dtype=torch.float64)


@package.case()
def cayley_of_a_skew_symmetric_matrix():
    from iunets.cayley import cayley

    return lambda w: cayley.apply(w - w.mT), noise(3, 3)


@package.case()
def cayley_of_a_batch():
    from iunets.cayley import cayley

    return lambda w: cayley.apply(w - w.mT), 0.3 * noise(2, 4, 4)


@package.case()
def cayley_of_a_matrix():
    from iunets.cayley import cayley

    return cayley.apply, 0.3 * noise(3, 3)


@package.case()
def exponential_of_a_skew_symmetric_matrix():
    from iunets.expm import expm

    return lambda w: expm.apply(w - w.mT), noise(3, 3)


@package.case()
def exponential_of_a_batch():
    from iunets.expm import expm

    return lambda w: expm.apply(w - w.mT), noise(2, 3, 3)


@package.case()
def exponential_of_a_matrix():
    from iunets.expm import expm

    return expm.apply, noise(3, 3)


@package.case()
def exponential_of_a_small_matrix():
    from iunets.expm import expm

    return lambda w: expm.apply(0.1 * (w - w.mT)), noise(3, 3)


@package.case()
def exponential_of_a_tiny_matrix():
    from iunets.expm import expm

    return lambda w: expm.apply(1e-3 * (w - w.mT)), noise(3, 3)


@package.case()
def exponential_of_a_large_matrix():
    from iunets.expm import expm

    return lambda w: expm.apply(5 * (w - w.mT)), noise(3, 3)


@package.case()
def exponential_of_matrices_of_different_sizes():
    import torch
    from iunets.expm import expm

    sizes = torch.tensor([0.01, 8.0], dtype=torch.float64)[:, None, None]
    return lambda w: expm.apply(sizes * (w - w.mT)), noise(2, 3, 3)


@package.case()
def invertible_channel_mixing():
    import torch
    from iunets.layers import InvertibleChannelMixing2D

    made = InvertibleChannelMixing2D(in_channels=3, method="cayley", learnable=True).double()
    with torch.no_grad():
        made.weight.normal_()
    return made, noise(1, 3, 2, 2)


package.finding(
    "iunets-cayley",
    kind="gradient",
    where="iunets/cayley.py:22",
    what="The backward of the Cayley transform, the default parametrisation of orthogonal layers, solves with the wrong sign and the wrong factors: "
    "at the zero matrix it supplies minus the gradient, and elsewhere, also within the skew-symmetric matrices, another direction.",
    size="factor -1 at the zero matrix, 1 to 2 times the gradient elsewhere",
    cases=["cayley of a skew symmetric matrix", "cayley of a batch", "cayley of a matrix", "invertible channel mixing"],
)
package.finding(
    "iunets-expm-order",
    kind="gradient in a configuration",
    where="iunets/expm.py:334",
    what="The derivative of the Pade approximants of order 3 to 9 overwrites the even part of the approximant with the odd one, so the gradient of the matrix "
    "exponential is wrong for matrices of norm below 2.1 in float64 and for all in float32.",
    size="0.3 to 0.4 of the gradient",
    cases=["exponential of a small matrix", "exponential of a tiny matrix"],
)
package.finding(
    "iunets-expm-squaring",
    kind="gradient in a configuration",
    where="iunets/expm.py:139",
    what="Where the matrix is scaled and squared, the derivative is multiplied by the exponential twice from the left, where one factor belongs to the right.",
    size="0.5 to 0.7 of the gradient at norms of 6 to 15",
    cases=["exponential of a skew symmetric matrix", "exponential of a large matrix", "exponential of matrices of different sizes"],
)

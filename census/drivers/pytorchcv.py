"""pytorchcv: a collection of image models."""

from census.package import Package

package = Package("pytorchcv", "0.0.74", family="segmentation, detection and vision", group="vision", modules=["pytorchcv"])


@package.case("covariance pooling")
def covariance():
    import torch
    from pytorchcv.models.isqrtcovresnet import CovPool

    return CovPool.apply, torch.randn(2, 3, 2, 4, dtype=torch.float64)


@package.case("square root of a covariance")
def square_root():
    import torch
    from pytorchcv.models.isqrtcovresnet import NewtonSchulzSqrt

    identity = torch.eye(3, dtype=torch.float64)
    return lambda a: NewtonSchulzSqrt.apply(a @ a.mT + 0.5 * identity, 5), torch.randn(2, 3, 3, dtype=torch.float64)


@package.case("square root with two iterations")
def square_root_two():
    import torch
    from pytorchcv.models.isqrtcovresnet import NewtonSchulzSqrt

    return lambda a: NewtonSchulzSqrt.apply(a @ a.mT, 2), torch.randn(2, 3, 5, dtype=torch.float64)


@package.case("pooling layer, flattened")
def pooling():
    import torch
    from pytorchcv.models.isqrtcovresnet import iSQRTCOVPool

    pool = iSQRTCOVPool()
    return lambda x: pool(x).flatten(1), torch.randn(2, 3, 2, 4, dtype=torch.float64)


@package.case("upper triangle")
def upper_triangle():
    import torch
    from pytorchcv.models.isqrtcovresnet import Triuvec

    return Triuvec.apply, torch.randn(2, 4, 4, dtype=torch.float64)


@package.case("reversible block")
def reversible():
    import torch
    from pytorchcv.models.revnet import ReversibleBlock

    block = ReversibleBlock(torch.nn.Conv2d(2, 2, 1), torch.nn.Conv2d(2, 2, 3, padding=1)).double()
    return block, torch.randn(2, 4, 3, 3, dtype=torch.float64)


@package.case(
    "one-bit weights",
    intent="straight-through",
    why_intended="pytorchcv.models.wrn1bit_cifar: fake sign op for 1-bit weights",
)
def one_bit():
    import torch
    from pytorchcv.models.wrn1bit_cifar import Binarize

    return Binarize.apply, torch.randn(3, 2, 2, 1, dtype=torch.float64)


@package.case("shake-drop")
def shake_drop():
    import torch
    from pytorchcv.models.shakedropresnet_cifar import ShakeDrop

    alpha = torch.tensor([0.3, -0.6], dtype=torch.float64).view(-1, 1, 1, 1)
    return lambda x: ShakeDrop.apply(x, torch.zeros(1, dtype=torch.float64), alpha), torch.randn(2, 2, 2, 2, dtype=torch.float64)


@package.case("shake-shake")
def shake_shake():
    import torch
    from pytorchcv.models.shakeshakeresnet_cifar import ShakeShake

    alpha = torch.tensor([0.3, 0.6], dtype=torch.float64).view(-1, 1, 1, 1)
    return lambda x, y: ShakeShake.apply(x, y, alpha), tuple(torch.randn(2, 2, 2, 2, 2, dtype=torch.float64))


package.finding(
    "pytorchcv-square-root-second-derivative",
    kind="second derivative",
    where="pytorchcv/models/isqrtcovresnet.py:85",
    what="The backward of the Newton-Schulz square root takes the iterates that the forward saved as constants, so that second derivatives are wrong.",
    size="0.35 of a second derivative",
    cases=["square root of a covariance", "square root with two iterations", "pooling layer, flattened"],
)
package.finding(
    "pytorchcv-reversible-second-derivative",
    kind="second derivative",
    where="pytorchcv/models/revnet.py:82",
    what="The gradient of a reversible block has no graph, so that second derivatives leave the block out where another term keeps them from raising.",
    size="all of the second derivative of the block",
    cases=["reversible block"],
)
package.finding(
    "pytorchcv-shake-drop",
    kind="undeclared estimator",
    where="pytorchcv/models/shakedropresnet_cifar.py:28",
    what="The backward multiplies by another random factor than the forward, as the method intends.",
    size="a random factor",
    cases=["shake-drop"],
    documented="CIFARShakeDropResNet: 'ShakeDrop Regularization for Deep Residual Learning', arXiv 1802.02375",
)
package.finding(
    "pytorchcv-shake-shake",
    kind="undeclared estimator",
    where="pytorchcv/models/shakeshakeresnet_cifar.py:29",
    what="The backward mixes the branches with another random weight than the forward, as the method intends.",
    size="a random factor",
    cases=["shake-shake"],
    documented="CIFARShakeShakeResNet: 'Shake-Shake regularization', arXiv 1705.07485",
)

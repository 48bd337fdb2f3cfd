"""skada: domain adaptation with scikit-learn and PyTorch."""

from census.package import Package

package = Package("skada", "0.6.0", family="domain adaptation", group="geometry", modules=["skada"])

WHY = "docstring of GradientReversalLayer: 'reverses the gradient by multiplying it by a negative scalar during the backpropagation'"


@package.case(intent="reversal", why_intended=WHY, seconds=20)
def GradientReversalLayer():
    import torch
    from skada.deep.modules import GradientReversalLayer

    return lambda x: GradientReversalLayer.apply(x, 0.7), torch.randn(3, 4, dtype=torch.float64)


@package.case("GradientReversalLayer with sample weights", intent="reversal", why_intended=WHY, seconds=20)
def _weights():
    import torch
    from skada.deep.modules import GradientReversalLayer

    weights = torch.rand(3, 1, dtype=torch.float64)
    return lambda x: GradientReversalLayer.apply(x, 1.0, weights), torch.randn(3, 4, dtype=torch.float64)


@package.case(
    intent="reversal",
    why_intended="docstring of the layer in front of it, GradientReversalLayer; the parameters behind it have ordinary gradients",
    seconds=20,
)
def DomainClassifier():
    import torch
    from skada.deep.modules import DomainClassifier

    torch.manual_seed(0)
    net = DomainClassifier(num_features=4, n_classes=2).double().eval().requires_grad_(False)
    return lambda x: net(x), torch.randn(3, 4, dtype=torch.float64)


package.finding(
    "skada-sample-weight",
    kind="missing gradient",
    where="skada/deep/modules.py:153",
    what="GradientReversalLayer takes sample_weight as a third argument, and its backward returns two gradients, which raises if the argument is given.",
    size="an error instead of the gradient",
    cases=["GradientReversalLayer with sample weights"],
)

"""pytorch-revgrad: a gradient reversal layer."""

from census.package import Package

package = Package("pytorch-revgrad", "0.2.0", family="domain adaptation", group="geometry", modules=["pytorch_revgrad"])

WHY = "README and docstring of RevGrad: 'simply reverses the gradient in the backward pass'"


@package.case(intent="reversal", why_intended=WHY, seconds=20)
def RevGrad():
    import torch
    from pytorch_revgrad import RevGrad

    return RevGrad(), torch.randn(3, 4, dtype=torch.float64)


@package.case("RevGrad, alpha 0.3", intent="reversal", why_intended=WHY, seconds=20)
def _alpha():
    import torch
    from pytorch_revgrad import RevGrad

    layer = RevGrad(alpha=0.3)
    return lambda x: layer(x.exp()).sin(), torch.randn(3, 4, dtype=torch.float64)


@package.case("revgrad with alpha in float32", intent="reversal", why_intended=WHY, seconds=20)
def _single():
    import torch
    from pytorch_revgrad.functional import revgrad

    return lambda x: revgrad(x, torch.tensor(2.0)), torch.randn(2, 3, 4, dtype=torch.float64)

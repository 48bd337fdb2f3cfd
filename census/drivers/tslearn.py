"""tslearn: machine learning on time series, with a soft-DTW loss."""

import os

from census.package import Package

package = Package("tslearn", "0.10.0", family="losses and metric learning", group="vision", modules=["tslearn"])


def _compiled(loss, inputs):
    """After a first call: Numba compiles for half a minute."""
    import torch

    for dtype in ("float32", "float64"):
        copies = [x.detach().to(getattr(torch, dtype)).requires_grad_() for x in inputs]
        loss(*(1.0 * x for x in copies)).sum().backward()
    return loss, inputs


def _loss(first, second, dtype="float64", **options):
    os.environ["NUMBA_NUM_THREADS"] = "1"
    import torch
    from tslearn.metrics import SoftDTWLossPyTorch

    x, y = torch.randn(2, first, 2), torch.randn(2, second, 2)
    return _compiled(SoftDTWLossPyTorch(**options), (x.to(getattr(torch, dtype)), y.to(getattr(torch, dtype))))


@package.case("loss of equal lengths")
def equal():
    return _loss(4, 4)


@package.case("loss of unequal lengths, single precision")
def single():
    return _loss(5, 3, "float32")


@package.case("loss with a small gamma, single precision")
def sharp():
    return _loss(4, 4, "float32", gamma=0.05)


@package.case("divergence, single precision")
def divergence():
    return _loss(4, 5, "float32", normalize=True)


@package.case("loss in a Sakoe-Chiba band, single precision")
def band():
    return _loss(5, 5, "float32", global_constraint="sakoe_chiba", sakoe_chiba_radius=1)


@package.case("loss in an Itakura parallelogram, single precision")
def parallelogram():
    return _loss(6, 6, "float32", global_constraint="itakura", itakura_max_slope=2.0)


@package.case("loss of distances in a band, single precision")
def distances():
    os.environ["NUMBA_NUM_THREADS"] = "1"
    import torch
    from tslearn.metrics import SoftDTWLossPyTorch

    given = torch.rand(2, 5, 5)
    return SoftDTWLossPyTorch(dist_func=lambda x, y: x, global_constraint="sakoe_chiba"), (given.requires_grad_(), given.clone().detach())


package.finding(
    "tslearn-single-precision",
    kind="accuracy",
    where="tslearn/metrics/soft_dtw_loss_pytorch.py:94",
    what="Value and gradient of float64 arguments go through float32 tensors, so that both have single precision only.",
    size="2e-5 of the gradient with gamma=0.1",
    cases=["loss of equal lengths"],
    missed=True,
)
package.finding(
    "tslearn-second-derivative",
    kind="second derivative",
    where="tslearn/metrics/soft_dtw_loss_pytorch.py:107",
    what="The backward computes the alignment outside of autograd, and second derivatives leave its dependence on the distances out.",
    size="29% of a curvature",
    cases=[
        "loss of equal lengths",
        "loss of unequal lengths, single precision",
        "divergence, single precision",
        "loss in a Sakoe-Chiba band, single precision",
        "loss in an Itakura parallelogram, single precision",
        "loss of distances in a band, single precision",
    ],
)

package.finding(
    "tslearn-band-edits-distances",
    kind="edits or keeps state",
    where="tslearn/metrics/soft_dtw_loss_pytorch.py:90",
    what="With a global constraint, infinities are written into the matrix that dist_func returned.",
    size="every distance outside of the band",
    cases=["loss of distances in a band, single precision"],
)

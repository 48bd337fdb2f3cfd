"""pysdtw: soft dynamic time warping."""

import os

from census.package import Package

package = Package("pysdtw", "0.0.5", family="losses and metric learning", group="vision", modules=["pysdtw"])


def _compiled(loss, inputs):
    """After a first call: Numba compiles for half a minute."""
    import torch

    for dtype in ("float32", "float64"):
        copies = [x.detach().to(getattr(torch, dtype)).requires_grad_() for x in inputs]
        loss(*(1.0 * x for x in copies)).sum().backward()
    return loss, inputs


def _loss(first, second, dtype="float64", **options):
    os.environ["NUMBA_NUM_THREADS"] = "1"
    import pysdtw
    import torch

    x, y = torch.randn(2, first, 2), torch.randn(2, second, 2)
    return _compiled(pysdtw.SoftDTW(use_cuda=False, **options), (x.to(getattr(torch, dtype)), y.to(getattr(torch, dtype))))


def _packed(dtype="float32", first=(4, 2), second=(4, 2), **options):
    os.environ["NUMBA_NUM_THREADS"] = "1"
    import pysdtw
    import torch
    from torch.nn.utils.rnn import pack_padded_sequence

    loss = pysdtw.SoftDTW(use_cuda=False, **options)

    def called(x, y):
        return loss(
            pack_padded_sequence(x, torch.tensor(first), batch_first=True), pack_padded_sequence(y, torch.tensor(second), batch_first=True)
        )

    return _compiled(
        called, (torch.randn(2, first[0], 2, dtype=getattr(torch, dtype)), torch.randn(2, second[0], 2, dtype=getattr(torch, dtype)))
    )


@package.case("loss of equal lengths")
def equal():
    return _loss(4, 4, "float64")


@package.case("loss of unequal lengths, single precision")
def single():
    return _loss(5, 3, "float32")


@package.case("loss with a small gamma, single precision")
def sharp():
    return _loss(4, 4, "float32", gamma=0.05)


@package.case("loss of packed sequences, single precision")
def packed():
    return _packed()


@package.case("loss in a band, single precision")
def band():
    return _loss(5, 5, "float32", bandwidth=1)


@package.case("loss of unequal lengths in a band, single precision")
def band_unequal():
    return _loss(5, 3, "float32", bandwidth=2)


@package.case("loss of packed sequences in a band, single precision")
def band_packed():
    return _packed(first=(6, 4), second=(4, 4), bandwidth=1)


@package.case("exact distances, single precision")
def exact():
    from pysdtw.distance import pairwise_l2_squared_exact

    return _loss(3, 5, "float32", dist_func=pairwise_l2_squared_exact)


@package.case("loss of packed sequences with cosine distances, single precision")
def packed_cosine():
    def distances(x, y):
        import torch

        return 1 - torch.nn.functional.cosine_similarity(x.unsqueeze(2), y.unsqueeze(1), dim=3)

    return _packed(dist_func=distances)


package.finding(
    "pysdtw-single-precision",
    kind="accuracy",
    where="pysdtw/sdtw_cpu.py:22",
    what="Value and gradient of float64 arguments go through float32 tensors, so that both have single precision only.",
    size="2e-5 of the gradient with gamma=0.1",
    cases=["loss of equal lengths"],
    missed=True,
)
package.finding(
    "pysdtw-second-derivative",
    kind="second derivative",
    where="pysdtw/sdtw_cpu.py:40",
    what="The backward computes the alignment outside of autograd, and second derivatives leave its dependence on the distances out.",
    size="29% of a curvature",
    cases=[
        "loss of equal lengths",
        "loss of unequal lengths, single precision",
        "loss of packed sequences, single precision",
        "loss in a band, single precision",
        "loss of unequal lengths in a band, single precision",
        "exact distances, single precision",
    ],
)

package.finding(
    "pysdtw-band-packed",
    kind="gradient in a configuration",
    where="pysdtw/sdtw_cpu.py:101",
    what="With a bandwidth and sequences of several lengths, the backward places the band by the padded lengths and the forward by the real ones.",
    size="NaN, where a sequence is shorter than the longest",
    cases=["loss of packed sequences in a band, single precision"],
)
package.finding(
    "pysdtw-packed-padding",
    kind="gradient in a configuration",
    where="pysdtw/sdtw_cpu.py:105",
    what="The backward of a shorter pair in a padded batch begins with the distance of its padding, which is not part of the value.",
    size="a factor of exp(-d / gamma), where d is the distance of two zero vectors",
    cases=["loss of packed sequences with cosine distances, single precision"],
)

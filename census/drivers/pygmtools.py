"""pygmtools: graph matching; the graduated assignment solver has a backward."""

from census.package import Package

package = Package("pygmtools", "0.6.0", family="geometry and pose", group="geometry", modules=["pygmtools"])


@package.case(seconds=60, effort="quick")
def gamgm():
    import pygmtools
    import torch

    adjacency = torch.rand(3, 4, 4)
    adjacency = adjacency + adjacency.mT
    start = torch.full((12, 4), 0.25) + torch.randn(12, 4) / 1000

    def matched(w):
        result = pygmtools.gamgm(adjacency, w, n_univ=4, U0=start, sk_init_tau=0.1, sk_iter=5, max_iter=2, backend="pytorch")
        return result[0, 1], result[1, 2]

    return matched, torch.rand(3, 3, 4, 4)


package.finding(
    "pygmtools-gamgm-sign",
    kind="undeclared estimator",
    where="pygmtools/pytorch_backend.py:754",
    what="The perturbation of the documented black-box differentiation is the product of grad_output with itself, so that the gradient of a loss and "
    "that of its negative are the same.",
    size="sign lost: the same gradient for L and -L",
    cases=["gamgm"],
)

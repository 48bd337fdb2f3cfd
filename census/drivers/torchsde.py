"""torchsde: stochastic differential equations, with adjoint gradients along the same Brownian path."""

from census.package import Package

package = Package(
    "torchsde",
    "0.2.6",
    family="differential equations and implicit layers",
    group="solvers",
    modules=["torchsde"],
    note="Only the reversible Heun method has an adjoint that is exact for a given step; the others approach the derivative with the step.",
)


def _sde(noise, end, dt):
    """A module that integrates a drift and a diffusion to `end` by steps `dt`, and its start."""
    import torch

    class Noisy(torch.nn.Module):
        noise_type, sde_type = noise, "stratonovich"

        def __init__(self):
            super().__init__()
            self.a = torch.nn.Parameter(torch.tensor([0.7, -0.4], dtype=torch.float64))
            self.b = torch.nn.Parameter(torch.tensor([0.3, 0.2], dtype=torch.float64))

        def f(self, t, y):
            return torch.sin(self.a * y) + 0.2 * t

        def g(self, t, y):
            diagonal = self.b * torch.cos(y)
            return diagonal if noise == "diagonal" else torch.stack([diagonal, 0.1 * y, self.b * y.flip(-1)], -1)

    class Solution(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.sde = Noisy()

        def forward(self, y0):
            import torchsde

            torch.manual_seed(0)
            width = 2 if noise == "diagonal" else 3
            bm = torchsde.BrownianInterval(0.0, end, size=(1, width), dtype=torch.float64, entropy=1)
            ts = torch.tensor([0.0, end / 2, end], dtype=torch.float64)
            return torchsde.sdeint_adjoint(
                self.sde, y0, ts, bm=bm, method="reversible_heun", adjoint_method="adjoint_reversible_heun", dt=dt
            )

    return Solution(), torch.tensor([[0.8, -0.3]], dtype=torch.float64)


@package.case(effort="quick", seconds=300.0)
def reversible_heun_diagonal_noise():
    return _sde("diagonal", end=0.5, dt=0.125)


@package.case(second_order=False, effort="quick", seconds=300.0)
def reversible_heun_general_noise():
    return _sde("general", end=0.5, dt=0.125)


@package.case(second_order=False, effort="quick", seconds=300.0)
def reversible_heun_with_times_that_round():
    return _sde("diagonal", 0.4, 0.1)


package.finding(
    "torchsde-reversible-heun-extra-step",
    kind="accuracy",
    where="torchsde/_core/adjoint.py:99",
    what=(
        "The backward adds up the times on its own: with dt=0.1 to 0.4 rounding leaves 3e-17 of an interval, which becomes one step more. "
        "The adjoint of reversible Heun is then not exact; the check of the spacing allows for rounding and does not warn."
    ),
    size="0.008 of the gradient",
    cases=["reversible heun with times that round"],
)

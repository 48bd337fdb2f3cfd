"""normflows: normalizing flows; the log-determinant of residual flows is differentiated within the forward."""

from census.package import Package

package = Package(
    "normflows",
    "1.7.3",
    family="normalizing flows and invertible networks",
    group="signals",
    modules=["normflows"],
    note="A Neumann estimator's value is not the log-determinant but a random number whose gradient is unbiased; here both come from the same random numbers.",
)


def block(**options):
    """An invertible residual block in training mode, and a batch for it."""
    import torch
    from normflows.flows.residual import iResBlock
    from torch import nn

    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(0.5)
    made = iResBlock(net, n_power_series=3, **options).double()
    made.geom_p.requires_grad_(False), made.lamb.requires_grad_(False)
    return made.train(), torch.randn(4, 3, dtype=torch.float64)


@package.case(effort="quick")
def residual_block_by_autograd():
    made, x = block(neumann_grad=False)
    return lambda x: made(x, 0), x


@package.case(effort="quick")
def log_determinant_with_gradient_in_the_forward():
    made, x = block(neumann_grad=False, grad_in_forward=True)
    return lambda x: made(x, 0)[1], x


@package.case(effort="quick")
def sum_of_the_log_determinant_with_gradient_in_the_forward():
    made, x = block(neumann_grad=False, grad_in_forward=True)
    return lambda x: made(x, 0)[1].sum(), x


@package.case(effort="quick")
def residual_block_with_gradient_in_the_forward():
    made, x = block(neumann_grad=False, grad_in_forward=True)

    def both(x):
        y, log_det = made(x, 0)
        return y.square().sum() + log_det.sum()

    return both, x


@package.case(effort="quick")
def residual_block_with_parameters():
    import torch

    made, x = block(neumann_grad=False, grad_in_forward=True)

    class Both(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.block = made

        def forward(self, x):
            y, log_det = self.block(x, 0)
            return y.square().sum() + log_det.sum()

    return Both(), x


@package.case(effort="quick")
def residual_block_of_one_sample():
    made, x = block(neumann_grad=False, grad_in_forward=True)
    return lambda x: made(x, 0), x[:1]


package.finding(
    "normflows-log-determinant-weights",
    kind="gradient",
    where="normflows/flows/residual.py:335",
    what="The gradient of the log-determinants of a batch is computed in the forward for their sum, and multiplied in the backward by the weight of the first "
    "sample alone.",
    size="factors of the weights; right where all samples have the same weight",
    cases=["log determinant with gradient in the forward"],
)

package.finding(
    "normflows-second-derivative",
    kind="second derivative",
    where="normflows/flows/residual.py:336",
    what="The backward of the memory-efficient log-determinant returns gradients that are not connected to the input, so that second derivatives lack its own "
    "part, without an error.",
    size="all of the log-determinant's second derivative",
    cases=["sum of the log determinant with gradient in the forward", "residual block of one sample"],
)
package.finding(
    "normflows-second-backward",
    kind="edits or keeps state",
    where="normflows/flows/residual.py:337",
    what="The backward multiplies the gradients that it saved in place, so that a second backward through a retained graph raises.",
    size="an error in place of the gradient",
    cases=[
        "residual block with gradient in the forward",
        "residual block with parameters",
        "log determinant with gradient in the forward",
        "sum of the log determinant with gradient in the forward",
        "residual block of one sample",
    ],
)

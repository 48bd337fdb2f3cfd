"""revtorch: reversible sequences, whose backward recomputes the activations."""

from census.package import Package

package = Package(
    "revtorch",
    "0.2.4",
    family="normalizing flows and invertible networks",
    group="signals",
    modules=["revtorch"],
    note="Parameters get their gradients as a side effect of backward(), as a docstring says; torch.autograd.grad does not return them. By default a sequence "
    "forgets its output in the first backward, as documented, and cannot be audited.",
)


def sequence(blocks=2, **options):
    """A reversible sequence of small smooth blocks over four channels."""
    import torch
    from revtorch import ReversibleBlock, ReversibleSequence
    from torch import nn

    def branch():
        return nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 2)).double()

    made = ReversibleSequence(nn.ModuleList([ReversibleBlock(branch(), branch()) for _ in range(blocks)]), **options)
    return made, torch.randn(3, 4, dtype=torch.float64)


@package.case(effort="quick", seconds=25)
def sequence_of_the_input():
    made, x = sequence(eagerly_discard_variables=False)
    return lambda x: made(x), x


@package.case(effort="quick", seconds=25)
def sequence_with_parameters():
    return sequence(eagerly_discard_variables=False)


@package.case(effort="quick", seconds=25)
def sequence_along_the_last_dimension_of_images():
    import torch
    from revtorch import ReversibleBlock, ReversibleSequence
    from torch import nn

    made = ReversibleSequence(
        nn.ModuleList([ReversibleBlock(nn.Conv1d(2, 2, 3, padding=1).double(), nn.Tanh(), split_along_dim=2)]),
        eagerly_discard_variables=False,
    )
    return lambda x: made(x), torch.randn(1, 2, 6, dtype=torch.float64)

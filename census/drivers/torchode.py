"""torchode: a parallel solver of ordinary differential equations, with a backsolving adjoint."""

from census.package import Package

package = Package(
    "torchode",
    "1.0.1",
    family="differential equations and implicit layers",
    group="solvers",
    modules=["torchode"],
    note="Adjoint gradients are the derivative to the tolerance of the integration: defects below 1e-4 of the gradient were not judged.",
)


def _backsolve(first):
    """The solution at times from `first` on, of a start at time 0."""
    import torch
    import torchode

    class Field(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = torch.nn.Parameter(torch.tensor(0.7, dtype=torch.float64))

        def forward(self, t, y):
            return self.a * torch.sin(t[..., None] + y)

    class Solution(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.field = Field()

        def forward(self, y0):
            term = torchode.ODETerm(self.field)
            control = torchode.IntegralController(atol=1e-8, rtol=1e-8, term=term)
            solver = torchode.BacksolveAdjoint(term, torchode.Dopri5(term=term), control)
            t_eval = torch.tensor([[first, 0.4]], dtype=torch.float64)
            start = torch.zeros(1, dtype=torch.float64)
            return solver.solve(torchode.InitialValueProblem(y0, start, start + 0.4, t_eval)).ys

    return Solution(), torch.tensor([[0.8, 0.3]], dtype=torch.float64)


@package.case(second_order=False, effort="quick", tolerance=1e-4, seconds=300.0)
def backsolve_from_the_start():
    return _backsolve(0.0)


@package.case(second_order=False, effort="quick", tolerance=1e-4, seconds=300.0)
def backsolve_with_later_times():
    return _backsolve(0.2)


@package.case(second_order=False, effort="quick", tolerance=1e-4, seconds=300.0)
def backsolve_times():
    import torch
    import torchode

    class Field(torch.nn.Module):
        def forward(self, t, y):
            return 0.7 * torch.sin(t[..., None] + y)

    y0 = torch.tensor([[0.8]], dtype=torch.float64, requires_grad=True)

    def solution(t_eval):
        term = torchode.ODETerm(Field())
        control = torchode.IntegralController(atol=1e-8, rtol=1e-8, term=term)
        solver = torchode.BacksolveAdjoint(term, torchode.Dopri5(term=term), control)
        start = torch.zeros(1, dtype=torch.float64)
        return solver.solve(torchode.InitialValueProblem(y0, start, start + 0.4, t_eval)).ys[:, 1]

    return solution, torch.tensor([[0.0, 0.2, 0.4]], dtype=torch.float64)


package.finding(
    "torchode-backsolve-later-times",
    kind="gradient in a configuration",
    where="torchode/adjoints.py:404",
    what=(
        "If the first time of t_eval is later than t_start, BacksolveAdjoint stops at that time: the gradients of the start and of the parameters "
        "lack the part from there to t_start."
    ),
    size="0.4 of the gradient",
    cases=["backsolve with later times"],
)
package.finding(
    "torchode-backsolve-times",
    kind="missing gradient",
    where="torchode/adjoints.py:426",
    what="BacksolveAdjoint gives no gradient for t_start, t_end and t_eval.",
    size="all of it",
    cases=["backsolve times"],
)

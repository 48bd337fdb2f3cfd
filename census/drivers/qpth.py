"""qpth: quadratic programs as layers."""

from census.package import Package

package = Package(
    "qpth",
    "0.0.18",
    family="differential equations and implicit layers",
    group="solvers",
    modules=["qpth"],
    note="Its metadata asks for numpy below 2. It runs with numpy 2.4.6 and was installed without its dependencies.",
)


def _numbers():
    """Q, p, G, h, A, b with one inequality that holds with equality, and one that does not."""
    import torch

    numbers = (
        [[2.0, 0.3, 0.1], [0.3, 1.5, -0.2], [0.1, -0.2, 1.8]],
        [-1.0, 0.4, 0.7],
        [[1.0, 0.2, 0.0], [0.0, 1.0, 1.0]],
        [0.1, 2.0],
        [[1.0, 1.0, 1.0]],
        [0.2],
    )
    return tuple(torch.tensor(n, dtype=torch.float64) for n in numbers)


def _solve(q, *others):
    from qpth.qp import QPFunction

    return QPFunction(verbose=-1, check_Q_spd=False, maxIter=40)((q + q.mT) / 2, *others)


@package.case(second_order=False, effort="quick", tolerance=1e-5, seconds=300.0)
def one_program():
    return _solve, tuple(t[None] for t in _numbers())


@package.case(second_order=False, effort="quick", tolerance=1e-5, seconds=300.0)
def two_programs_with_shared_parameters():
    import torch

    q, p, g, h, a, b = _numbers()
    p = torch.stack([p, 1.1 * p])
    return lambda q, p, h, b: _solve(q, p, g, h, a, b), (q, p, h, b)


@package.case(effort="quick", tolerance=1e-5, seconds=300.0)
def second_order():
    q, p, g, h, a, b = (t[None] for t in _numbers())
    return lambda q, p: _solve(q, p, g, h, a, b), (q, p)


package.finding(
    "qpth-shared-parameters",
    kind="gradient in a configuration",
    where="qpth/qp.py:160",
    what="Gradients of parameters that all programs of a batch share are averaged over the batch, where the derivative is the sum.",
    size="1 over the size of the batch",
    cases=["two programs with shared parameters"],
)
package.finding(
    "qpth-second-derivative",
    kind="second derivative",
    where="qpth/qp.py:150",
    what="The backward takes the factorisation of the optimality system for a constant: second derivatives of the solution are wrong, and nothing raises.",
    size="0.3 of the second derivative",
    cases=["second order"],
    missed=True,
)

"""torch-sla: sparse linear algebra with adjoint gradients."""

from census.package import Package

package = Package("torch-sla", "0.4.0", family="differential equations and implicit layers", group="solvers", modules=["torch_sla"])


def _pattern():
    import torch

    row = torch.tensor([0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 0])
    col = torch.tensor([0, 1, 0, 1, 2, 1, 2, 3, 2, 3, 3])
    val = torch.tensor([4.0, -1.0, -0.7, 3.5, 0.8, -1.1, 4.5, 0.6, -0.9, 3.8, 0.5], dtype=torch.float64)
    return row, col, val


def _symmetric():
    """Row, col, the values that are free, and where they go."""
    import torch

    row = torch.tensor([0, 1, 2, 3, 0, 1, 1, 2, 2, 3])
    col = torch.tensor([0, 1, 2, 3, 1, 0, 2, 1, 3, 2])
    free = torch.tensor([4.0, 3.1, 5.2, 2.7, 0.9, -0.8, 0.6], dtype=torch.float64)
    return row, col, free, torch.tensor([0, 1, 2, 3, 4, 4, 5, 5, 6, 6])


def _b():
    import torch

    return torch.tensor([1.0, -0.5, 2.0, 0.3], dtype=torch.float64)


@package.case()
def spsolve_scipy_lu():
    from torch_sla import spsolve

    row, col, val = _pattern()
    return lambda val, b: spsolve(val, row, col, (4, 4), b, backend="scipy", method="lu"), (val, _b())


@package.case(second_order=False, effort="quick")
def spsolve_scipy_lu_two_right_hand_sides():
    import torch
    from torch_sla import spsolve

    row, col, val = _pattern()
    b = torch.stack([_b(), _b().flip(0)], 1)
    return lambda val, b: spsolve(val, row, col, (4, 4), b, backend="scipy", method="lu"), (val, b)


@package.case()
def spsolve_pytorch_bicgstab():
    from torch_sla import spsolve

    row, col, val = _pattern()
    return lambda val, b: spsolve(val, row, col, (4, 4), b, backend="pytorch", method="bicgstab", atol=1e-15), (val, _b())


@package.case(second_order=False, effort="quick")
def spsolve_pytorch_lsqr_rectangular():
    import torch
    from torch_sla import spsolve

    row, col, val = _pattern()
    row, col = torch.cat([row, torch.tensor([4, 4])]), torch.cat([col, torch.tensor([0, 2])])
    val, b = torch.cat([val, val.new_tensor([0.9, -1.2])]), torch.cat([_b(), val.new_tensor([1.5])])
    return lambda val, b: spsolve(val, row, col, (5, 4), b, backend="pytorch", method="lsqr", atol=1e-15), (val, b)


@package.case(second_order=False, effort="quick")
def spsolve_batch_same_layout_cg():
    import torch
    from torch_sla import spsolve_batch_same_layout

    row, col, free, where = _symmetric()
    free, b = torch.stack([free, 1.3 * free + 0.1]), torch.stack([_b(), _b().flip(0)])
    return lambda free, b: spsolve_batch_same_layout(free[:, where], row, col, (4, 4), b, method="cg", atol=1e-15), (free, b)


@package.case(second_order=False, effort="quick")
def spsolve_batch_same_layout_gmres():
    import torch
    from torch_sla import spsolve_batch_same_layout

    row, col, val = _pattern()
    val, b = torch.stack([val, 1.3 * val + 0.1]), torch.stack([_b(), _b().flip(0)])
    return lambda val, b: spsolve_batch_same_layout(val, row, col, (4, 4), b, method="gmres", atol=1e-15), (val, b)


@package.case()
def det():
    from torch_sla import SparseTensor

    row, col, val = _pattern()
    return lambda val: SparseTensor(val, row, col, (4, 4)).det(), val


@package.case(second_order=False, effort="quick")
def det_below_1e_15():
    from torch_sla import SparseTensor

    row, col, val = _pattern()
    return lambda val: SparseTensor(val, row, col, (4, 4)).det(), 1e-5 * val


@package.case(second_order=False, effort="quick")
def logdet():
    from torch_sla import SparseTensor

    row, col, val = _pattern()
    return lambda val: SparseTensor(val, row, col, (4, 4)).logdet(), val


@package.case()
def eigsh_values():
    from torch_sla import SparseTensor

    row, col, free, where = _symmetric()
    return lambda free: SparseTensor(free[where], row, col, (4, 4)).eigsh(k=2, which="LA")[0], free


@package.case(second_order=False, effort="quick")
def eigsh_vectors():
    from torch_sla import SparseTensor

    row, col, free, where = _symmetric()

    def projector(free):
        vectors = SparseTensor(free[where], row, col, (4, 4)).eigsh(k=1, which="LA")[1]
        return vectors @ vectors.mT

    return projector, free


@package.case(second_order=False, effort="quick")
def svd_values():
    from torch_sla import SparseTensor

    row, col, val = _pattern()
    return lambda val: SparseTensor(val, row, col, (4, 4)).svd(k=2)[1], val


@package.case(second_order=False, effort="quick")
def svd_vectors():
    from torch_sla import SparseTensor

    row, col, val = _pattern()

    def projector(val):
        vectors = SparseTensor(val, row, col, (4, 4)).svd(k=1)[0]
        return vectors @ vectors.mT

    return projector, val


@package.case(second_order=False, effort="quick")
def sparse_times_sparse():
    from torch_sla import SparseTensor

    row, col, val = _pattern()

    def product(a, b):
        return (SparseTensor(a, row, col, (4, 4)) @ SparseTensor(b, col, row, (4, 4))).to_dense()

    return product, (val, val.flip(0))


@package.case(second_order=False, effort="quick")
def nonlinear_solve_symmetric():
    import torch
    from torch_sla import nonlinear_solve

    a = torch.tensor([[4.0, 1.0, 0.0], [1.0, 3.0, 0.5], [0.0, 0.5, 5.0]], dtype=torch.float64)
    b = torch.tensor([1.0, -0.5, 2.0], dtype=torch.float64)

    def solution(b, c):
        return nonlinear_solve(lambda u, b, c: a @ u + c * u**3 - b, torch.zeros_like(b), b, c, tol=1e-14, atol=1e-14)

    return solution, (b, torch.tensor([0.3, 0.5, 0.2], dtype=torch.float64))


@package.case(second_order=False, effort="quick")
def nonlinear_solve_nonsymmetric():
    import torch
    from torch_sla import nonlinear_solve

    a = torch.tensor([[0.0, 0.4, 0.0], [-0.4, 0.0, 0.3], [0.2, -0.1, 0.0]], dtype=torch.float64)
    b = torch.tensor([1.0, -0.5, 2.0], dtype=torch.float64)

    def solution(b):
        return nonlinear_solve(
            lambda u, b: u - torch.tanh(a @ u) - b, torch.zeros_like(b), b, method="picard", tol=1e-15, atol=1e-15, max_iter=200
        )

    return solution, b


@package.case(second_order=False, effort="quick")
def nonlinear_solve_of_a_sparse_tensor():
    import torch
    from torch_sla import SparseTensor

    row, col, val = _pattern()

    def solution(val, f):
        matrix = SparseTensor(val, row, col, (4, 4))
        return matrix.nonlinear_solve(lambda u, A, f: A @ u + 0.3 * u**3 - f, torch.zeros_like(f), f, tol=1e-15, atol=1e-15)

    return solution, (val, _b())


@package.case(second_order=False, effort="quick")
def vi_solve_with_bounds():
    import torch
    from torch_sla import vi_solve

    a = torch.tensor([[4.0, 1.0, 0.0], [0.6, 3.0, 0.5], [0.0, 0.4, 5.0]], dtype=torch.float64)
    b = torch.tensor([4.0, -3.5, 2.0], dtype=torch.float64)
    lower, upper = torch.tensor([-9.0, -0.3, -9.0], dtype=torch.float64), torch.tensor([0.7, 9.0, 9.0], dtype=torch.float64)

    def jacobian(u, b):
        row, col = torch.cartesian_prod(torch.arange(3), torch.arange(3)).mT
        return (a + torch.diag(0.3 * u**2)).reshape(-1), row, col, (3, 3)

    def solution(b, lower, upper):
        return vi_solve(
            lambda u, b: a @ u + 0.1 * u**3 - b,
            torch.zeros_like(b),
            b,
            lower=lower,
            upper=upper,
            jacobian_fn=jacobian,
            tol=1e-14,
            atol=1e-14,
        )

    return solution, (b, lower, upper)


package.finding(
    "torch-sla-second-derivative",
    kind="second derivative",
    where="torch_sla/linear_solve.py:132",
    what=(
        "Backwards compute the adjoint solution, the entries of the inverse or the eigenvectors as constants, without once_differentiable: "
        "second derivatives through spsolve (SciPy), det and eigsh are incomplete, and nothing raises."
    ),
    size="0.3 of the second derivative and more",
    cases=["spsolve scipy lu", "det", "eigsh values"],
)
package.finding(
    "torch-sla-least-squares",
    kind="gradient in a configuration",
    where="torch_sla/linear_solve.py:389",
    what="The gradient of the values of a rectangular matrix (lsqr, lsmr) is that of a square system, without the term of the residual.",
    size="0.6 of the gradient",
    cases=["spsolve pytorch lsqr rectangular"],
)
package.finding(
    "torch-sla-det-small",
    kind="gradient at special states",
    where="torch_sla/sparse_tensor/autograd.py:146",
    what="Where the determinant is below 1e-15 in absolute value its gradient is set to zero, whatever the scale of the matrix.",
    size="all of it",
    cases=["det below 1e 15"],
)
package.finding(
    "torch-sla-logdet-no-gradient",
    kind="missing gradient",
    where="torch_sla/det.py:503",
    what="logdet by LU or Cholesky, which is taken below 256 rows, returns a detached value; the docstring promises the adjoint.",
    size="all of it",
    cases=["logdet"],
)
package.finding(
    "torch-sla-eigsh-vectors",
    kind="missing gradient",
    where="torch_sla/sparse_tensor/autograd.py:372",
    what="eigsh returns eigenvectors that require a gradient; its backward ignores their cotangent.",
    size="all of it",
    cases=["eigsh vectors"],
)
package.finding(
    "torch-sla-svd-vectors",
    kind="missing gradient",
    where="torch_sla/sparse_tensor/autograd.py:787",
    what="svd gives no gradient through the singular vectors.",
    size="all of it",
    cases=["svd vectors"],
    documented="docstrings of SparseTensor.svd and SvdAdjoint; a RuntimeWarning",
)
package.finding(
    "torch-sla-nonlinear-solve-nonsymmetric",
    kind="gradient in a configuration",
    where="torch_sla/nonlinear_solve.py:527",
    what=(
        "Without jacobian_fn, the adjoint system of nonlinear_solve is solved by conjugate gradients, which do not converge if the Jacobian is not symmetric; "
        "linear_method is not used there, and nothing warns."
    ),
    size="1.7 times the gradient",
    cases=["nonlinear solve nonsymmetric"],
)

"""linear_operator: structured matrices of GPyTorch, with solves, quadratic forms, determinants and roots."""

from census.package import Package

package = Package("linear-operator", "0.6.1", family="Gaussian processes and probability", group="probability", modules=["linear_operator"])


def definite(a):
    """A positive definite matrix made of any square one."""
    import torch

    return a @ a.mT + torch.eye(a.shape[-1], dtype=a.dtype)


@package.case()
def matmul():
    import torch
    from linear_operator import operators

    return lambda a, v: operators.DenseLinearOperator(a).matmul(v), (
        torch.randn(4, 3, dtype=torch.float64),
        torch.randn(3, 2, dtype=torch.float64),
    )


@package.case()
def matmul_with_a_vector():
    import torch
    from linear_operator import operators

    return lambda a, v: operators.DenseLinearOperator(a).matmul(v), (
        torch.randn(4, 3, dtype=torch.float64),
        torch.randn(3, dtype=torch.float64),
    )


@package.case()
def matmul_batched_and_a_vector_of_one_batch():
    import torch
    from linear_operator import operators

    return lambda a, v: operators.DenseLinearOperator(a).matmul(v), (
        torch.randn(3, 2, 3, dtype=torch.float64),
        torch.randn(3, 2, dtype=torch.float64),
    )


@package.case()
def matmul_with_two_broadcast_batch_dimensions():
    import torch
    from linear_operator import operators

    inputs = torch.randn(2, 3, 4, 3, 3, dtype=torch.float64), torch.randn(3, 1, 3, 2, dtype=torch.float64)
    return lambda a, v: operators.DenseLinearOperator(a).matmul(v), inputs


@package.case()
def matmul_of_a_kronecker_product():
    import torch
    from linear_operator import operators

    def product(a, b, v):
        return operators.KroneckerProductLinearOperator(operators.DenseLinearOperator(a), operators.DenseLinearOperator(b)).matmul(v)

    return product, (torch.randn(2, 2, dtype=torch.float64), torch.randn(3, 3, dtype=torch.float64), torch.randn(6, 2, dtype=torch.float64))


@package.case()
def matmul_of_a_toeplitz_matrix():
    import torch
    from linear_operator import operators

    return lambda c, v: operators.ToeplitzLinearOperator(c).matmul(v), (
        torch.randn(5, dtype=torch.float64),
        torch.randn(5, 2, dtype=torch.float64),
    )


@package.case()
def matmul_of_batched_toeplitz_matrices():
    import torch
    from linear_operator import operators

    inputs = torch.randn(3, 1, 4, dtype=torch.float64), torch.randn(2, 3, 2, 4, 2, dtype=torch.float64)
    return lambda c, v: operators.ToeplitzLinearOperator(c).matmul(v), inputs


@package.case()
def matmul_of_a_product_of_elements():
    import torch
    from linear_operator import operators

    def product(a, b, v):
        return operators.MulLinearOperator(operators.DenseLinearOperator(definite(a)), operators.RootLinearOperator(b)).matmul(v)

    return product, (torch.randn(4, 4, dtype=torch.float64), torch.randn(4, 2, dtype=torch.float64), torch.randn(4, 3, dtype=torch.float64))


@package.case()
def matmul_of_an_interpolated_matrix():
    import torch
    from linear_operator import operators

    left, right = torch.tensor([[0, 1], [1, 2], [3, 3]]), torch.tensor([[2, 3], [0, 0]])

    def product(a, p, q, v):
        return operators.InterpolatedLinearOperator(operators.DenseLinearOperator(a), left, p, right, q).matmul(v)

    shapes = (4, 4), (3, 2), (2, 2), (2, 3)
    return product, tuple(torch.randn(*shape, dtype=torch.float64) for shape in shapes)


@package.case()
def matmul_of_an_interpolated_rectangular_matrix():
    import torch
    from linear_operator import operators

    left, right = torch.tensor([[0, 1], [1, 2], [3, 3]]).expand(2, 3, 2), torch.tensor([[2, 4], [0, 0]]).expand(2, 2, 2)

    def product(a, p, q, v):
        return operators.InterpolatedLinearOperator(operators.DenseLinearOperator(a), left, p, right, q).matmul(v)

    shapes = (2, 4, 5), (2, 3, 2), (2, 2, 2), (2, 2, 3)
    return product, (torch.randn(*shapes[0], dtype=torch.float64), *(torch.randn(*shape, dtype=torch.float64) for shape in shapes[1:]))


@package.case()
def matmul_of_a_scaled_batch():
    import torch
    from linear_operator import operators

    def product(a, c, v):
        return operators.ConstantMulLinearOperator(operators.DenseLinearOperator(a), c).matmul(v)

    shapes = (2, 3, 4, 4), (2, 1), (4, 2)
    return product, tuple(torch.randn(*shape, dtype=torch.float64) for shape in shapes)


@package.case()
def matmul_of_a_repeated_batch():
    import torch
    from linear_operator import operators

    def product(a, v):
        return operators.BatchRepeatLinearOperator(operators.DenseLinearOperator(a), torch.Size((2, 3))).matmul(v)

    return product, (torch.randn(2, 3, 3, dtype=torch.float64), torch.randn(2, 6, 3, 2, dtype=torch.float64))


@package.case()
def matmul_of_block_diagonal_matrices():
    import torch
    from linear_operator import operators

    def product(a, v):
        return operators.BlockDiagLinearOperator(operators.DenseLinearOperator(a)).matmul(v)

    return product, (torch.randn(3, 2, 2, dtype=torch.float64), torch.randn(6, 2, dtype=torch.float64))


@package.case()
def matmul_of_a_masked_matrix():
    import torch
    from linear_operator import operators

    rows, columns = torch.tensor([True, False, True, True]), torch.tensor([True, True, False])

    def product(a, v):
        return operators.MaskedLinearOperator(operators.DenseLinearOperator(a), rows, columns).matmul(v)

    return product, (torch.randn(4, 3, dtype=torch.float64), torch.randn(2, 2, dtype=torch.float64))


@package.case()
def dense_times_sparse():
    import torch
    from linear_operator import dsmm

    indices = torch.tensor([[0, 0, 1, 1], [0, 2, 1, 2], [1, 0, 3, 1]])

    def product(values, v):
        return dsmm(torch.sparse_coo_tensor(indices, values.detach(), (2, 3, 4)), v)

    values = torch.randn(4, dtype=torch.float64)
    return lambda v: product(values, v), torch.randn(4, 2, dtype=torch.float64)


@package.case()
def dense_times_sparse_with_values_that_vary():
    import torch
    from linear_operator import dsmm

    indices = torch.tensor([[0, 2, 1], [1, 0, 3]])

    def product(values, v):
        return dsmm(torch.sparse_coo_tensor(indices, values, (3, 4)), v)

    return product, (torch.randn(3, dtype=torch.float64), torch.randn(4, 2, dtype=torch.float64))


@package.case()
def solve():
    import torch
    from linear_operator import operators

    def solved(a, b):
        return operators.DenseLinearOperator(definite(a)).solve(b)

    return solved, (torch.randn(4, 4, dtype=torch.float64), torch.randn(4, 2, dtype=torch.float64))


@package.case()
def solve_with_a_left_side():
    import torch
    from linear_operator import operators

    def solved(a, b, left):
        return operators.DenseLinearOperator(definite(a)).solve(b, left)

    shapes = (4, 4), (4, 2), (3, 4)
    return solved, tuple(torch.randn(*shape, dtype=torch.float64) for shape in shapes)


@package.case()
def solve_with_a_vector_and_a_left_side():
    import torch
    from linear_operator import operators

    def solved(a, b, left):
        return operators.DenseLinearOperator(definite(a)).solve(b, left)

    return solved, (torch.randn(4, 4, dtype=torch.float64), torch.randn(4, dtype=torch.float64), torch.randn(3, 4, dtype=torch.float64))


@package.case()
def solve_batched():
    import torch
    from linear_operator import operators

    def solved(a, b):
        return operators.DenseLinearOperator(definite(a)).solve(b)

    return solved, (torch.randn(2, 3, 3, dtype=torch.float64), torch.randn(3, 2, dtype=torch.float64))


@package.case()
def solve_with_a_toeplitz_matrix():
    import torch
    from linear_operator import operators

    def solved(c, b):
        return operators.ToeplitzLinearOperator(c + torch.tensor([6.0, 0, 0, 0], dtype=torch.float64)).solve(b)

    return solved, (torch.randn(4, dtype=torch.float64), torch.randn(4, 2, dtype=torch.float64))


@package.case()
def solve_with_an_ill_conditioned_matrix():
    import torch
    from linear_operator import operators

    scales = torch.tensor([1.0, 1e-1, 1e-3, 1e-4], dtype=torch.float64)

    def solved(a, b):
        return operators.DenseLinearOperator((definite(a) * scales).mT * scales).solve(b)

    return solved, (torch.randn(4, 4, dtype=torch.float64), torch.randn(4, 2, dtype=torch.float64))


def held(**values):
    """Sets settings of the package for all that follows in this process, and the others named here to their defaults: backwards read them too."""
    from linear_operator import settings

    defaults = {"max_cholesky_size": 800, "cg_tolerance": 1.0, "max_cg_iterations": 1000, "min_preconditioning_size": 2000}
    defaults |= {"minres_tolerance": 1e-4, "num_contour_quadrature": 15, "tridiagonal_jitter": 1e-6, "max_root_decomposition_size": 100}
    for name, default in defaults.items():
        getattr(settings, name)._set_value(values.get(name, default))


ITERATED = {"max_cholesky_size": 1, "cg_tolerance": 1e-13, "max_cg_iterations": 200}


@package.case()
def solve_by_conjugate_gradients():
    import torch
    from linear_operator import operators

    held(**ITERATED)

    def solved(a, b):
        return operators.DenseLinearOperator(definite(a)).solve(b)

    return solved, (torch.randn(4, 4, dtype=torch.float64), torch.randn(4, 2, dtype=torch.float64))


@package.case()
def inv_quad():
    import torch
    from linear_operator import operators

    held(**ITERATED)

    def form(a, b):
        return operators.DenseLinearOperator(definite(a)).inv_quad(b)

    return form, (torch.randn(4, 4, dtype=torch.float64), torch.randn(4, 2, dtype=torch.float64))


@package.case()
def inv_quad_of_columns():
    import torch
    from linear_operator import operators

    held()

    def form(a, b):
        return operators.DenseLinearOperator(definite(a)).inv_quad(b, reduce_inv_quad=False)

    return form, (torch.randn(2, 3, 3, dtype=torch.float64), torch.randn(2, 3, 2, dtype=torch.float64))


@package.case()
def inv_quad_logdet():
    import torch
    from linear_operator import operators

    held()

    def both(a, b):
        return operators.DenseLinearOperator(definite(a)).inv_quad_logdet(b, logdet=True)

    return both, (torch.randn(4, 4, dtype=torch.float64), torch.randn(4, 2, dtype=torch.float64))


@package.case()
def inv_quad_logdet_iterated_quadratic_form():
    import torch
    from linear_operator import operators

    held(**ITERATED)

    def form(a, b):
        return operators.DenseLinearOperator(definite(a)).inv_quad_logdet(b, logdet=True, reduce_inv_quad=False)[0]

    return form, (torch.randn(4, 4, dtype=torch.float64), torch.randn(4, 2, dtype=torch.float64))


@package.case()
def inv_quad_logdet_iterated_with_probes_that_span():
    import torch
    from linear_operator import operators

    held(**ITERATED)

    probes = torch.linalg.qr(torch.randn(4, 4, dtype=torch.float64))[0] * 2

    class Probed(operators.DenseLinearOperator):
        """Orthogonal probes as long as the dimension: the trace is exact."""

        def _probe_vectors_and_norms(self):
            return probes / 2, torch.full((1, 4), 2.0, dtype=torch.float64)

    def both(a, b):
        return Probed(definite(a)).inv_quad_logdet(b, logdet=True)

    return both, (torch.randn(4, 4, dtype=torch.float64), torch.randn(4, 2, dtype=torch.float64))


@package.case()
def sqrt_inv_matmul():
    import torch
    from linear_operator import operators

    held(minres_tolerance=1e-14, num_contour_quadrature=25)

    def root(a, b):
        return operators.DenseLinearOperator(definite(a)).sqrt_inv_matmul(b)

    return root, (torch.randn(4, 4, dtype=torch.float64), torch.randn(4, 2, dtype=torch.float64))


@package.case()
def sqrt_inv_matmul_with_a_left_side():
    import torch
    from linear_operator import operators

    held(minres_tolerance=1e-14, num_contour_quadrature=25)

    def root(a, b, left):
        return operators.DenseLinearOperator(definite(a)).sqrt_inv_matmul(b, left)

    shapes = (4, 4), (4, 2), (3, 4)
    return root, tuple(torch.randn(*shape, dtype=torch.float64) for shape in shapes)


@package.case()
def pivoted_cholesky():
    import torch
    from linear_operator import operators

    held()

    return lambda a: operators.DenseLinearOperator(definite(a)).pivoted_cholesky(2), torch.randn(4, 4, dtype=torch.float64)


@package.case()
def pivoted_cholesky_of_full_rank():
    import torch
    from linear_operator import operators

    held()

    return lambda a: operators.DenseLinearOperator(definite(a)).pivoted_cholesky(4), torch.randn(2, 4, 4, dtype=torch.float64)


@package.case()
def root_decomposition_by_lanczos():
    import torch
    from linear_operator import operators

    held(max_cholesky_size=1, tridiagonal_jitter=0.0)

    def squared(a):
        root = operators.DenseLinearOperator(definite(a)).root_decomposition(method="lanczos").root.to_dense()
        return root @ root.mT

    return squared, torch.randn(4, 4, dtype=torch.float64)


@package.case()
def root_decomposition_by_lanczos_of_low_rank():
    import torch
    from linear_operator import operators

    held(max_cholesky_size=1, max_root_decomposition_size=2, tridiagonal_jitter=0.0)

    def squared(a):
        root = operators.DenseLinearOperator(definite(a)).root_decomposition(method="lanczos").root.to_dense()
        return root @ root.mT

    return squared, torch.randn(4, 4, dtype=torch.float64)


@package.case()
def root_inv_decomposition_by_lanczos():
    import torch
    from linear_operator import operators

    held(max_cholesky_size=1, tridiagonal_jitter=0.0)

    def squared(a):
        root = operators.DenseLinearOperator(definite(a)).root_inv_decomposition(method="lanczos").root.to_dense()
        return root @ root.mT

    return squared, torch.randn(4, 4, dtype=torch.float64)


@package.case()
def diagonalization_by_lanczos():
    import torch
    from linear_operator import operators

    held(tridiagonal_jitter=0.0)

    def rebuilt(a):
        values, vectors = operators.DenseLinearOperator(definite(a)).diagonalization(method="lanczos")
        vectors = vectors.to_dense() if hasattr(vectors, "to_dense") else vectors
        return values, vectors.square()

    return rebuilt, torch.randn(4, 4, dtype=torch.float64)


@package.case()
def diagonalization_by_lanczos_of_a_toeplitz_matrix():
    import torch
    from linear_operator import operators

    held(tridiagonal_jitter=0.0)

    def spectrum(c):
        matrix = operators.ToeplitzLinearOperator(c + torch.tensor([6.0, 0, 0, 0], dtype=torch.float64))
        return matrix.diagonalization(method="lanczos")[0]

    return spectrum, torch.randn(4, dtype=torch.float64)


@package.case()
def diagonalization_by_lanczos_of_a_product_with_its_transpose():
    import torch
    from linear_operator import operators

    held(tridiagonal_jitter=0.0)

    def spectrum(a):
        return operators.RootLinearOperator(a).diagonalization(method="lanczos")[0]

    return spectrum, torch.randn(4, 4, dtype=torch.float64)


package.finding(
    "linear-operator-matmul-broadcast-sum",
    kind="gradient in a configuration",
    where="linear_operator/functions/_matmul.py:61",
    what="The gradient of a right-hand side that is broadcast over some batch dimensions is summed over other ones, where a "
    "dimension of size 1 is not the last of them.",
    size="of the size of the gradient",
    cases=["matmul with two broadcast batch dimensions"],
)


package.finding(
    "linear-operator-toeplitz-broadcast-sum",
    kind="gradient in a configuration",
    where="linear_operator/operators/toeplitz_linear_operator.py:64",
    what="The gradient of the column of batched Toeplitz matrices that are broadcast is summed over other batch dimensions than those.",
    size="of the size of the gradient",
    cases=["matmul of batched toeplitz matrices"],
)


package.finding(
    "linear-operator-bilinear-derivative-second-derivative",
    kind="second derivative",
    where="linear_operator/operators/_linear_operator.py:370",
    what="The derivative of a matrix of several parts is taken on detached copies, so that the second derivative lacks its terms, "
    "without an error.",
    size="up to the whole second derivative",
    cases=["matmul of a kronecker product", "matmul of a product of elements"],
)


package.finding(
    "linear-operator-dsmm-sparse-gradient",
    kind="missing gradient",
    where="linear_operator/functions/_dsmm.py:17",
    what="The values of the sparse matrix get None as their gradient, without an error.",
    size="the whole gradient",
    cases=["dense times sparse with values that vary"],
)


package.finding(
    "linear-operator-solve-with-left-side-second-derivative",
    kind="second derivative",
    where="linear_operator/functions/_solve.py:116",
    what="The second derivative of a solve with a left side takes the saved solutions for constants.",
    size="of the size of the second derivative",
    cases=["solve with a left side", "solve with a vector and a left side"],
)


package.finding(
    "linear-operator-inv-quad-second-derivative",
    kind="second derivative",
    where="linear_operator/functions/_inv_quad.py:74",
    what="The second derivative of the quadratic form takes the saved solution for a constant, although the function was made to "
    "be twice differentiable (pull request 603 of GPyTorch).",
    size="of the size of the second derivative",
    cases=["inv quad", "inv quad of columns"],
)


package.finding(
    "linear-operator-inv-quad-logdet-second-derivative",
    kind="second derivative",
    where="linear_operator/functions/_inv_quad_logdet.py:203",
    what="The second derivative of the iterated quadratic form and determinant takes the saved solutions for constants, although "
    "the function was made to be twice differentiable (pull request 603 of GPyTorch).",
    size="of the size of the second derivative",
    cases=["inv quad logdet iterated quadratic form", "inv quad logdet iterated with probes that span"],
)


package.finding(
    "linear-operator-sqrt-inv-matmul-second-derivative",
    kind="second derivative",
    where="linear_operator/functions/_sqrt_inv_matmul.py:120",
    what="The second derivative takes the saved solutions of the shifted systems for constants.",
    size="of the size of the second derivative",
    cases=["sqrt inv matmul", "sqrt inv matmul with a left side"],
)


package.finding(
    "linear-operator-pivoted-cholesky-second-derivative",
    kind="second derivative",
    where="linear_operator/functions/_pivoted_cholesky.py:144",
    what="The gradient is made by a backward on detached copies, so that the second derivative lacks its terms, without an error.",
    size="up to the whole second derivative",
    cases=["pivoted cholesky", "pivoted cholesky of full rank"],
)


package.finding(
    "linear-operator-root-decomposition-second-derivative",
    kind="second derivative",
    where="linear_operator/functions/_root_decomposition.py:148",
    what="The second derivative of a root by Lanczos takes the saved eigenvectors and eigenvalues for constants.",
    size="0.1 of the second derivative",
    cases=["root decomposition by lanczos"],
)


package.finding(
    "linear-operator-root-decomposition-low-rank",
    kind="undeclared estimator",
    where="linear_operator/functions/_root_decomposition.py:169",
    what="The gradient of a root of low rank R is not that of R R^T; it takes the subspace that Lanczos found for a constant.",
    size="0.7 of the gradient at rank 2 of 4",
    cases=["root decomposition by lanczos of low rank"],
)


package.finding(
    "linear-operator-diagonalization-jitter",
    kind="accuracy",
    where="linear_operator/functions/_diagonalization.py:80",
    what="The differences of eigenvalues are taken to be larger by 1e-10, without regard to their sign or size.",
    size="1e-11 of the gradient with gaps of order 1, 3e-6 with a gap of 1e-5",
    cases=["diagonalization by lanczos"],
)


package.finding(
    "linear-operator-diagonalization-of-structured-matrices",
    kind="gradient",
    where="linear_operator/functions/_diagonalization.py:91",
    what="The gradient with respect to the dense matrix is returned as the one of the tensor that represents it, the column of a "
    "Toeplitz matrix or a root.",
    size="of the size of the gradient",
    cases=["diagonalization by lanczos of a toeplitz matrix", "diagonalization by lanczos of a product with its transpose"],
)

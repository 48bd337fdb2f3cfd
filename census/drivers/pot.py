"""POT: optimal transport. The torch backend sets gradients of values that solvers return, and has a square root of matrices."""

from census.package import Package

package = Package("POT", "0.9.7.post1", family="optimal transport", group="solvers", modules=["ot"])


def _torch():
    import torch

    return torch, torch.Generator().manual_seed(0)


def _matrices(torch, generator, n=5, m=6):
    x, y = (torch.randn(k, 2, generator=generator, dtype=torch.float64) for k in (n, m))
    return torch.cdist(x, x), torch.cdist(y, y)


@package.case()
def emd2_cost_and_weights():
    torch, generator = _torch()
    import ot

    cost = torch.rand(4, 5, generator=generator, dtype=torch.float64)
    w, v = torch.randn(4, generator=generator, dtype=torch.float64), torch.randn(5, generator=generator, dtype=torch.float64)
    return lambda cost, w, v: ot.emd2(w.softmax(0), v.softmax(0), cost), (cost, w, v)


@package.case(second_order=False)
def emd2_several_targets():
    torch, generator = _torch()
    import ot

    cost = torch.rand(4, 5, generator=generator, dtype=torch.float64)
    w, v = torch.randn(4, generator=generator, dtype=torch.float64), torch.randn(5, 3, generator=generator, dtype=torch.float64)
    return lambda cost, w, v: torch.stack(list(ot.emd2(w.softmax(0), v.softmax(0), cost))), (cost, w, v)


@package.case()
def emd2_points():
    torch, generator = _torch()
    import ot

    x, y = torch.randn(4, 2, generator=generator, dtype=torch.float64), torch.randn(4, 2, generator=generator, dtype=torch.float64)
    a = torch.full((4,), 0.25, dtype=torch.float64)
    return lambda x, y: ot.emd2(a, a, ot.dist(x, y)), (x.requires_grad_(), y.requires_grad_())


@package.case()
def emd2_lazy_points():
    torch, generator = _torch()
    import ot

    x, y = torch.randn(4, 2, generator=generator, dtype=torch.float64), torch.randn(4, 2, generator=generator, dtype=torch.float64)
    w, v = torch.randn(4, generator=generator, dtype=torch.float64), torch.randn(4, generator=generator, dtype=torch.float64)
    return lambda w, v, x, y: ot.emd2_lazy(x, y, w.softmax(0), v.softmax(0), return_matrix=False), (w, v, x, y)


@package.case()
def matrix_square_root():
    torch, generator = _torch()
    from ot.backend import get_backend

    a = torch.randn(4, 4, generator=generator, dtype=torch.float64)
    return lambda a: get_backend(a).sqrtm(a @ a.mT + torch.eye(4, dtype=torch.float64)), a


@package.case()
def matrix_square_root_batched_equal_eigenvalues():
    torch, _ = _torch()
    from ot.backend import get_backend

    a = torch.eye(3, dtype=torch.float64).repeat(2, 1, 1) * torch.tensor([1.0, 2.0], dtype=torch.float64)[:, None, None]
    return lambda a: get_backend(a).sqrtm(a @ a.mT), a


@package.case()
def bures_wasserstein_distance():
    torch, generator = _torch()
    import ot

    a, b = torch.randn(3, 3, generator=generator, dtype=torch.float64), torch.randn(3, 3, generator=generator, dtype=torch.float64)
    m, n = torch.randn(3, generator=generator, dtype=torch.float64), torch.randn(3, generator=generator, dtype=torch.float64)
    eye = torch.eye(3, dtype=torch.float64)
    return lambda m, n, a, b: ot.gaussian.bures_wasserstein_distance(m, n, a @ a.mT + eye, b @ b.mT + eye), (m, n, a, b)


@package.case()
def solve_kl_envelope():
    torch, generator = _torch()
    import ot

    cost = torch.rand(4, 5, generator=generator, dtype=torch.float64)
    w, v = torch.randn(4, generator=generator, dtype=torch.float64), torch.randn(5, generator=generator, dtype=torch.float64)

    def value(cost, w, v):
        return ot.solve(cost, w.softmax(0), v.softmax(0), reg=0.5, grad="envelope", max_iter=2000, tol=1e-15).value

    return value, (cost, w, v)


@package.case()
def solve_entropy_envelope():
    torch, generator = _torch()
    import ot

    cost = torch.rand(4, 5, generator=generator, dtype=torch.float64)
    w, v = torch.randn(4, generator=generator, dtype=torch.float64), torch.randn(5, generator=generator, dtype=torch.float64)

    def value(cost, w, v):
        return ot.solve(cost, w.softmax(0), v.softmax(0), reg=0.5, reg_type="entropy", grad="envelope", max_iter=2000, tol=1e-15).value

    return value, (cost, w, v)


@package.case()
def gromov_wasserstein2_square():
    torch, generator = _torch()
    import ot

    c1, c2 = _matrices(torch, generator)
    w, v = torch.randn(5, generator=generator, dtype=torch.float64), torch.randn(6, generator=generator, dtype=torch.float64)
    inputs = tuple(t.requires_grad_() for t in (w, v, c1, c2))
    return lambda w, v, c1, c2: ot.gromov_wasserstein2(
        c1, c2, w.softmax(0), v.softmax(0), tol_rel=1e-14, tol_abs=1e-14, symmetric=False
    ), inputs


@package.case()
def gromov_wasserstein2_kl():
    torch, generator = _torch()
    import ot

    c1, c2 = (c + 0.5 for c in _matrices(torch, generator))
    p, q = torch.full((5,), 0.2, dtype=torch.float64), torch.full((6,), 1 / 6, dtype=torch.float64)

    def value(c1, c2):
        return ot.gromov_wasserstein2(c1, c2, p, q, "kl_loss", tol_rel=1e-14, tol_abs=1e-14, symmetric=False)

    return value, (c1.requires_grad_(), c2.requires_grad_())


@package.case(second_order=False)
def fused_gromov_wasserstein2():
    torch, generator = _torch()
    import ot

    c1, c2 = _matrices(torch, generator)
    m = torch.rand(5, 6, generator=generator, dtype=torch.float64)
    p, q = torch.full((5,), 0.2, dtype=torch.float64), torch.full((6,), 1 / 6, dtype=torch.float64)

    def value(m, c1, c2, alpha):
        return ot.fused_gromov_wasserstein2(m, c1, c2, p, q, alpha=alpha, tol_rel=1e-14, tol_abs=1e-14, symmetric=False)

    alpha = torch.tensor(0.6, dtype=torch.float64)
    return value, tuple(t.requires_grad_() for t in (m, c1, c2, alpha))


@package.case(second_order=False, effort="quick", seconds=400.0)
def partial_gromov_wasserstein2():
    torch, generator = _torch()
    import ot

    c1, c2 = _matrices(torch, generator, 3, 4)
    p, q = torch.full((3,), 1 / 3, dtype=torch.float64), torch.full((4,), 1 / 4, dtype=torch.float64)

    def value(c1, c2):
        return ot.gromov.partial_gromov_wasserstein2(c1, c2, p, q, m=0.6, tol=1e-14, symmetric=False)

    return value, (c1.requires_grad_(), c2.requires_grad_())


@package.case(second_order=False, effort="quick", seconds=400.0)
def co_optimal_transport2():
    torch, generator = _torch()
    from ot.coot import co_optimal_transport2

    x, y = torch.randn(4, 3, generator=generator, dtype=torch.float64), torch.randn(5, 4, generator=generator, dtype=torch.float64)
    w = [torch.randn(k, generator=generator, dtype=torch.float64) for k in (4, 3, 5, 4)]

    def value(x, y, a, b, c, d):
        return co_optimal_transport2(x, y, a.softmax(0), b.softmax(0), c.softmax(0), d.softmax(0), tol_bcd=1e-14)

    return value, (x, y, *w)


@package.case(second_order=False, effort="quick", seconds=400.0)
def co_optimal_transport2_with_costs():
    torch, generator = _torch()
    from ot.coot import co_optimal_transport2

    x, y = torch.randn(4, 3, generator=generator, dtype=torch.float64), torch.randn(5, 4, generator=generator, dtype=torch.float64)
    m, n = torch.rand(4, 5, generator=generator, dtype=torch.float64), torch.rand(3, 4, generator=generator, dtype=torch.float64)
    return lambda x, y, m, n: co_optimal_transport2(x, y, alpha=(0.7, 0.3), M_samp=m, M_feat=n, tol_bcd=1e-14), (x, y, m, n)


@package.case(second_order=False, effort="quick", tolerance=1e-4, seconds=300.0)
def unbalanced_co_optimal_transport2():
    torch, generator = _torch()
    from ot.gromov import unbalanced_co_optimal_transport2

    x, y = torch.randn(2, 2, generator=generator, dtype=torch.float64), torch.randn(2, 2, generator=generator, dtype=torch.float64)
    tight = {"max_iter": 300, "tol": 1e-10, "max_iter_ot": 300, "tol_ot": 1e-10}
    return lambda x: unbalanced_co_optimal_transport2(x, y, reg_marginals=2.0, epsilon=0.5, **tight), x


package.finding(
    "pot-partial-gromov-wasserstein2-marginals",
    kind="gradient",
    where="ot/gromov/_partial.py:482",
    what=(
        "The gradients of C1 and C2 weight the matrices with the marginals p and q, where the plan of a partial problem has smaller marginals; "
        "the derivative has those of the plan. partial_fused_gromov_wasserstein2 (line 964) does the same."
    ),
    size="2 times the gradient and more",
    cases=["partial gromov wasserstein2"],
)
package.finding(
    "pot-solve-kl-envelope-weights",
    kind="gradient in a configuration",
    where="ot/solvers/_linear.py:508",
    what=(
        'With reg_type="KL" and grad="envelope" the gradients of the weights a and b are those of the entropic value, '
        "without the term that comes from the reference measure a b^T of the divergence."
    ),
    size="2.6 times the gradient",
    cases=["solve kl envelope"],
)
package.finding(
    "pot-envelope-second-derivative",
    kind="second derivative",
    where="ot/backend.py:2092",
    what=(
        "The gradients that are set for a value enter its backward as constants, so second derivatives miss that the plan and the potentials "
        "change with the arguments, and nothing raises."
    ),
    size="all of the change of the plan and the potentials",
    cases=["emd2 cost and weights", "solve entropy envelope", "gromov wasserstein2 square"],
)
package.finding(
    "pot-emd2-lazy-points",
    kind="missing gradient",
    where="ot/lp/_network_simplex.py:1074",
    what="emd2_lazy, and solve_sample(lazy=True), compute the cost from the points and give no gradient for them.",
    size="all of it",
    cases=["emd2 lazy points"],
)
package.finding(
    "pot-emd2-several-targets",
    kind="missing gradient",
    where="ot/lp/_network_simplex.py:872",
    what="If b has several columns, the backward of each cost returns a gradient of the shape of one column for all of b, and autograd raises.",
    size="an error",
    cases=["emd2 several targets"],
)
package.finding(
    "pot-coot-linear-terms",
    kind="missing gradient",
    where="ot/coot.py:514",
    what="co_optimal_transport2 gives no gradient for M_samp and M_feat, on which its value depends if alpha is not zero.",
    size="all of it",
    cases=["co optimal transport2 with costs"],
)
package.finding(
    "pot-unbalanced-coot-epsilon",
    kind="gradient in a configuration",
    where="ot/gromov/_unbalanced.py:875",
    what=(
        "With epsilon > 0 the gradients that unbalanced_co_optimal_transport2 sets are not the derivative of the value that it returns, "
        "for converged plans; with epsilon = 0 they are."
    ),
    size="0.1 of the gradient",
    cases=["unbalanced co optimal transport2"],
)

"""entmax: sparse alternatives to softmax, and their losses."""

from census.package import Package

package = Package(
    "entmax",
    "1.3",
    family="sorting, sparse attention and discrete choice",
    group="attention",
    modules=["entmax"],
)


def _x(*shape):
    import torch

    return torch.randn(*shape, dtype=torch.float64)


def _scores(*shape):
    return _x(*shape).requires_grad_()


def _labels():
    import torch

    return torch.tensor([1, 2, 3, 0])


@package.case()
def sparsemax():
    from entmax import sparsemax

    return sparsemax, _x(4, 7)


@package.case("sparsemax, partial sort along dimension 1")
def sparsemax_partial():
    from entmax import sparsemax

    return lambda x: sparsemax(0.3 * x, dim=1, k=2), _x(3, 7, 2)


@package.case()
def entmax15():
    from entmax import entmax15

    return lambda x: entmax15(2 * x), _x(4, 7)


@package.case("entmax15, full support")
def entmax15_full():
    from entmax import entmax15

    return lambda x: entmax15(0.2 * x), _x(4, 5)


@package.case("entmax15, partial sort, first dimension")
def entmax15_partial():
    from entmax import entmax15

    return lambda x: entmax15(x, dim=0, k=2), _x(7, 3)


@package.case("entmax_bisect in x and alpha")
def entmax_bisect():
    import torch
    from entmax import entmax_bisect

    return lambda x, alpha: entmax_bisect(x, alpha), (_x(4, 7), torch.tensor(1.4, dtype=torch.float64))


@package.case("entmax_bisect, alpha 2.5")
def entmax_bisect_steep():
    from entmax import entmax_bisect

    return lambda x: entmax_bisect(x, 2.5), _x(4, 7)


@package.case("entmax_bisect, an alpha for each head, sum left as it is")
def entmax_bisect_heads():
    import torch
    from entmax import entmax_bisect

    def heads(x, alpha):
        return entmax_bisect(x, alpha, ensure_sum_one=False)

    return heads, (_x(2, 3, 5), torch.tensor([[[1.2], [1.5], [1.9]]], dtype=torch.float64))


@package.case("sparsemax_bisect, first dimension")
def sparsemax_bisect():
    from entmax import sparsemax_bisect

    return lambda x: sparsemax_bisect(x, dim=0), _x(7, 3)


@package.case()
def normmax_bisect():
    from entmax import normmax_bisect

    return lambda x: normmax_bisect(x, 1.7), _x(4, 7)


@package.case("normmax_bisect, alpha 2, dimension 1")
def normmax_bisect_two():
    from entmax import normmax_bisect

    return lambda x: normmax_bisect(x, dim=1), _x(2, 7, 3)


@package.case()
def budget_bisect():
    from entmax import budget_bisect

    return lambda x: budget_bisect(x, budget=2), _x(4, 7)


@package.case("budget_bisect, several rows of one batch entry")
def budget_bisect_rows():
    from entmax import budget_bisect

    return lambda x: budget_bisect(x, budget=3), _x(2, 3, 7)


@package.case("budget_bisect, batch and one head")
def budget_bisect_head():
    from entmax import budget_bisect

    return lambda x: budget_bisect(x, budget=2), _x(3, 1, 7)


@package.case()
def sparsemax_loss():
    from entmax import sparsemax_loss

    return sparsemax_loss, (_scores(4, 7), _labels())


@package.case("SparsemaxLoss, mean, one row ignored")
def sparsemax_loss_ignored():
    from entmax import SparsemaxLoss

    return SparsemaxLoss(k=3, ignore_index=2), (_scores(4, 7), _labels())


@package.case()
def sparsemax_bisect_loss():
    from entmax import sparsemax_bisect_loss

    return sparsemax_bisect_loss, (_scores(4, 7), _labels())


@package.case()
def entmax15_loss():
    from entmax import entmax15_loss

    return entmax15_loss, (_scores(4, 7), _labels())


@package.case("Entmax15Loss, sum")
def entmax15_loss_sum():
    from entmax import Entmax15Loss

    return Entmax15Loss(reduction="sum"), (_scores(4, 7), _labels())


@package.case()
def entmax_bisect_loss():
    from entmax import entmax_bisect_loss

    return lambda x, y: entmax_bisect_loss(x, y, alpha=1.3), (_scores(4, 7), _labels())


@package.case("entmax_bisect_loss in x and alpha")
def entmax_bisect_loss_alpha():
    import torch
    from entmax import entmax_bisect_loss

    return lambda x, alpha, y: entmax_bisect_loss(x, y, alpha), (
        _scores(4, 7),
        torch.tensor(1.3, dtype=torch.float64).requires_grad_(),
        _labels(),
    )


@package.case()
def normmax_bisect_loss():
    from entmax import normmax_bisect_loss

    return normmax_bisect_loss, (_scores(4, 7), _labels())


@package.case("entmax_bisect in alpha, full support", seconds=40)
def entmax_bisect_alpha():
    import torch
    from entmax import entmax_bisect

    x = 0.2 * _x(2, 5)
    return lambda alpha: entmax_bisect(x, alpha), torch.tensor(1.4, dtype=torch.float64)


package.finding(
    "entmax-budget-bisect-one-row",
    kind="gradient in a configuration",
    where="entmax/root_finding.py:252",
    what="For scores of shape (batch, 1, n), the mean that the gradient subtracts is broadcast over pairs of batch entries, and the excess "
    "is summed; each entry should have its own mean.",
    size="twice the gradient",
    cases=["budget_bisect, batch and one head"],
)
package.finding(
    "entmax-loss-second-derivative",
    kind="second derivative",
    where="entmax/losses.py:52",
    what="The gradient of the losses depends on the scores through a saved tensor that is neither input nor output, so their second "
    "derivative in the scores is zero; the true one is the Jacobian of the mapping.",
    size="all of the second derivative",
    cases=[
        "sparsemax loss",
        "SparsemaxLoss, mean, one row ignored",
        "sparsemax bisect loss",
        "entmax15 loss",
        "Entmax15Loss, sum",
        "entmax bisect loss",
        "normmax bisect loss",
    ],
)
package.finding(
    "entmax-loss-alpha",
    kind="missing gradient",
    where="entmax/losses.py:53",
    what="entmax_bisect_loss and normmax_bisect_loss accept a tensor alpha, and supply no gradient for it, although the value depends on it.",
    size="all of the gradient in alpha",
    cases=["entmax_bisect_loss in x and alpha"],
)
package.finding(
    "entmax-second-derivative-nan",
    kind="second derivative",
    where="entmax/activations.py:187",
    what="The second derivatives of entmax15, entmax_bisect and normmax_bisect are NaN as soon as one output is zero, because a power of the "
    "output is differentiated at zero; the true ones are finite.",
    size="NaN in place of all elements of the row",
    cases=["entmax15", "entmax15, partial sort, first dimension", "entmax_bisect, alpha 2.5", "normmax bisect"],
)
package.finding(
    "entmax-alpha-second-derivative",
    kind="second derivative",
    where="entmax/root_finding.py:39",
    what="alpha is kept outside of the graph, so second derivatives in alpha leave out that the gradient itself depends on alpha.",
    size="one sixth of the second derivative",
    cases=["entmax_bisect in alpha, full support"],
    missed=True,
)

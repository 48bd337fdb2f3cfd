"""pytorch-tabnet: attentive tabular models, with sparse attention masks."""

from census.package import Package

package = Package(
    "pytorch-tabnet", "4.1.0", family="sorting, sparse attention and discrete choice", group="vision", modules=["pytorch_tabnet"]
)


@package.case("sparsemax of rows")
def sparsemax_rows():
    import torch
    from pytorch_tabnet.sparsemax import Sparsemax

    return lambda x: Sparsemax(dim=-1)(1.0 * x), torch.randn(4, 7, dtype=torch.float64)


@package.case("sparsemax of the argument itself")
def sparsemax_argument():
    import torch
    from pytorch_tabnet.sparsemax import Sparsemax

    return Sparsemax(dim=-1), torch.randn(4, 7, dtype=torch.float64)


@package.case("sparsemax of a batch of single rows")
def sparsemax_single_rows():
    import torch
    from pytorch_tabnet.sparsemax import Sparsemax

    return lambda x: Sparsemax(dim=-1)(1.0 * x), torch.randn(3, 1, 6, dtype=torch.float64)


@package.case("sparsemax along the middle dimension")
def sparsemax_middle():
    import torch
    from pytorch_tabnet.sparsemax import Sparsemax

    return lambda x: Sparsemax(dim=1)(1.0 * x), torch.randn(2, 5, 3, dtype=torch.float64)


@package.case("entmax of rows")
def entmax_rows():
    import torch
    from pytorch_tabnet.sparsemax import Entmax15

    return Entmax15(dim=-1), torch.randn(4, 7, dtype=torch.float64)


@package.case("entmax of wide scores, second last of three dimensions")
def entmax_wide():
    import torch
    from pytorch_tabnet.sparsemax import Entmax15

    return lambda x: Entmax15(dim=1)(4 * x), torch.randn(2, 5, 3, dtype=torch.float64)


@package.case()
def entmoid():
    import torch
    from pytorch_tabnet.sparsemax import entmoid15

    return entmoid15, torch.randn(3, 4, dtype=torch.float64)


@package.case("entmoid, saturated in part")
def entmoid_saturated():
    import torch
    from pytorch_tabnet.sparsemax import entmoid15

    return entmoid15, torch.tensor([-3.1, -1.9, -0.4, 0.3, 1.7, 1.99, 2.5, 4.0], dtype=torch.float64)


package.finding(
    "pytorch-tabnet-sparsemax-single-rows",
    kind="gradient in a configuration",
    where="pytorch_tabnet/sparsemax.py:64",
    what="For a batch of single rows the size of the support loses a dimension, and the gradient of each row is that of all rows added up.",
    size="2.3 times the gradient",
    cases=["sparsemax of a batch of single rows"],
    known="https://github.com/deep-spin/entmax/pull/18",
)
package.finding(
    "pytorch-tabnet-sparsemax-edits-input",
    kind="edits or keeps state",
    where="pytorch_tabnet/sparsemax.py:51",
    what="The forward subtracts the maximum of each row from the tensor that it is given.",
    size="the maximum of each row",
    cases=["sparsemax of the argument itself"],
)
package.finding(
    "pytorch-tabnet-entmax-second-derivative",
    kind="second derivative",
    where="pytorch_tabnet/sparsemax.py:135",
    what="The second derivative of entmax is NaN where an output is zero, because that of the square root is infinite there.",
    size="NaN in all elements of the row",
    cases=["entmax of wide scores, second last of three dimensions"],
)

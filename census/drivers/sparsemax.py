"""sparsemax: the projection to the simplex as a layer."""

from census.package import Package

package = Package(
    "sparsemax",
    "0.1.9",
    family="sorting, sparse attention and discrete choice",
    group="attention",
    modules=["sparsemax"],
    tests=["tests/test_sparsemax.py"],
)


def _layer(dim, *shape):
    import torch
    from sparsemax import Sparsemax

    return Sparsemax(dim), torch.randn(*shape, dtype=torch.float64)


@package.case()
def rows():
    return _layer(-1, 4, 7)


@package.case("first dimension of two")
def first_of_two():
    return _layer(0, 5, 3)


@package.case("middle dimension of three")
def middle():
    return _layer(1, 2, 5, 3)


@package.case("last dimension of four")
def last_of_four():
    return _layer(3, 2, 1, 3, 4)


@package.case("second last dimension of four, wide scores")
def second_last():
    import torch
    from sparsemax import Sparsemax

    return lambda x: Sparsemax(-2)(5 * x), torch.randn(2, 2, 5, 3, dtype=torch.float64)


@package.case("one vector")
def vector():
    return _layer(-1, 6)

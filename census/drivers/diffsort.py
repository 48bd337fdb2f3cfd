"""diffsort: differentiable sorting networks."""

from census.package import Package

package = Package("diffsort", "0.2.0", family="sorting, sparse attention and discrete choice", group="attention", modules=["diffsort"])


def _sort(**options):
    from diffsort import DiffSortNet

    return lambda x: DiffSortNet("odd_even", x.shape[1], **options)(x)


def _x(*shape):
    import torch

    return torch.randn(*shape, dtype=torch.float64)


@package.case("NormalCDF")
def normal_cdf():
    from diffsort.functional import NormalCDF

    return lambda x: NormalCDF.apply(x, 0.1), 0.1 * _x(6)


@package.case("NormalCDF, width 0.5, tails")
def normal_cdf_tails():
    from diffsort.functional import NormalCDF

    return lambda x: NormalCDF.apply(x, 0.5), 3 * _x(6)


@package.case("odd-even network, Gaussian")
def gaussian():
    return _sort(distribution="gaussian"), 0.2 * _x(2, 4)


@package.case("bitonic network, Gaussian, steepness 2")
def bitonic():
    from diffsort import DiffSortNet

    return lambda x: DiffSortNet("bitonic", 4, steepness=2.0, distribution="gaussian")(x), _x(3, 4)


@package.case("odd-even network, optimal distribution")
def optimal():
    return _sort(distribution="optimal"), 0.3 * _x(2, 4)


package.finding(
    "diffsort-sigma",
    kind="accuracy",
    where="diffsort/functional.py:15",
    what="The width of the normal distribution is saved in torch's default dtype, float32, so gradients of float64 arguments are right to 8 digits.",
    size="1e-8 to 5e-8 of the gradient",
    cases=["NormalCDF", "odd-even network, Gaussian"],
)

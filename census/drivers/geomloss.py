"""geomloss: distances between sampled measures."""

from census.package import Package

package = Package(
    "geomloss",
    "0.3.1",
    family="optimal transport",
    group="solvers",
    modules=["geomloss"],
    note="Sinkhorn divergences have no backward of their own; the backends that need KeOps were not reached.",
)


def _measures(batch=()):
    import torch

    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(*batch, k, 2, generator=generator, dtype=torch.float64) for k in (4, 5))
    w, v = (torch.randn(*batch, k, generator=generator, dtype=torch.float64) for k in (4, 5))
    return w, x, v, y


def _loss(name, w, x, v, y, **more):
    from geomloss import SamplesLoss

    return SamplesLoss(name, backend="tensorized", **more)(w.softmax(-1), x, v.softmax(-1), y)


@package.case(effort="quick", seconds=300.0)
def energy():
    return lambda w, x, v, y: _loss("energy", w, x, v, y), _measures()


@package.case(effort="quick", seconds=300.0)
def gaussian():
    return lambda w, x, v, y: _loss("gaussian", w, x, v, y, blur=1.0), _measures()


@package.case(second_order=False, effort="quick", seconds=300.0)
def laplacian_of_a_batch():
    return lambda w, x, v, y: _loss("laplacian", w, x, v, y, blur=0.8), _measures((2,))


@package.case(second_order=False, effort="quick", seconds=300.0)
def gaussian_without_weights():
    from geomloss import SamplesLoss

    _, x, _, y = _measures((2,))
    return SamplesLoss("gaussian", blur=1.0, backend="tensorized"), (x, y)


@package.case(second_order=False, effort="quick", seconds=300.0)
def gaussian_potentials():
    return lambda w, x, v, y: _loss("gaussian", w, x, v, y, blur=1.0, potentials=True), _measures()


@package.case(second_order=False, effort="quick", seconds=300.0)
def energy_of_points_that_coincide():
    import torch

    w, x, v, y = _measures()
    y = torch.cat([x[:2], y[2:]])
    return lambda w, x: _loss("energy", w, x, v, y), (w, x)


package.finding(
    "geomloss-kernel-second-derivative",
    kind="second derivative",
    where="geomloss/_legacy/kernel_samples.py:50",
    what=(
        "Kernel losses detach one of two equal arguments and double the gradient of the other; "
        "the first derivative is right, second derivatives miss the detached part, double the rest again, and nothing raises."
    ),
    size="6 times the second derivative, with the other sign",
    cases=["energy", "gaussian"],
)
package.finding(
    "geomloss-kernel-potentials",
    kind="gradient in a configuration",
    where="geomloss/_legacy/kernel_samples.py:138",
    what="With potentials=True the doubled and detached arguments enter the potentials themselves, whose gradients are then not those of their values.",
    size="1.3 times the gradient",
    cases=["gaussian potentials"],
)

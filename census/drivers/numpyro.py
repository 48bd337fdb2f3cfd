"""numpyro: distributions and functions with rules of their own."""

from census.package import Package

package = Package("numpyro", "0.19.0", family="JAX", group="jax", modules=["numpyro"], note="The newest release that runs on JAX 0.6.")


def jaxed(fn):
    """A function of JAX for the auditor."""
    from pairgrad.coherence import from_jax

    return from_jax(fn)


def of(*numbers):
    """A tensor of double precision."""
    import torch

    return torch.tensor(numbers, dtype=torch.float64)


@package.case(effort="quick", seconds=150)
def log1mexp():
    from numpyro.distributions import util

    return jaxed(util.log1mexp), of(-1e-3, -0.5, -0.8, -30.0)


@package.case(effort="quick", seconds=150)
def truncated_power_law():
    from numpyro import distributions

    return jaxed(lambda x, a, low, high: distributions.DoublyTruncatedPowerLaw(a, low, high).log_prob(x)), (
        of(1.5),
        of(-1.7),
        of(0.8),
        of(3.0),
    )


@package.case(effort="quick", seconds=150)
def truncated_power_law_at_minus_one():
    from numpyro import distributions

    return jaxed(lambda a: distributions.DoublyTruncatedPowerLaw(a, 0.8, 3.0).log_prob(1.5)), of(-1.0)


@package.case(effort="quick", seconds=150)
def truncated_power_law_distribution_function():
    from numpyro import distributions

    return jaxed(lambda x, a, low, high: distributions.DoublyTruncatedPowerLaw(a, low, high).cdf(x)), (of(1.5), of(-1.7), of(0.8), of(3.0))


@package.case(effort="quick", seconds=150)
def truncated_power_law_distribution_function_at_minus_one():
    from numpyro import distributions

    return jaxed(lambda a: distributions.DoublyTruncatedPowerLaw(a, 0.8, 3.0).cdf(1.5)), of(-1.0)


@package.case(effort="quick", seconds=150)
def truncated_power_law_distribution_function_beyond_its_support():
    from numpyro import distributions

    return jaxed(lambda x: distributions.DoublyTruncatedPowerLaw(-1.7, 0.8, 3.0).cdf(x)), of(3.5, 0.5)


@package.case(effort="quick", seconds=150)
def truncated_power_law_quantile():
    from numpyro import distributions

    return jaxed(lambda x, a, low, high: distributions.DoublyTruncatedPowerLaw(a, low, high).icdf(x)), (of(0.4), of(-1.7), of(0.8), of(3.0))


package.finding(
    "numpyro-power-law-at-minus-one",
    kind="gradient at special states",
    where="numpyro/distributions/truncated.py:533",
    what="At alpha = -1 the derivatives by alpha are means of two others, 0.001 apart on either side, and beyond its support cdf has a gradient.",
    size="1e-9 of the gradient of log_prob, 1e-7 of that of cdf; all of it beyond the support",
    cases=[
        "truncated power law at minus one",
        "truncated power law distribution function at minus one",
        "truncated power law distribution function beyond its support",
    ],
)

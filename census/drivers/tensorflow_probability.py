"""TensorFlow Probability on JAX: special functions and distributions whose derivatives are written by hand."""

from census.package import Package

package = Package("tensorflow-probability", "0.25.0", family="JAX", group="jax", modules=["tensorflow_probability.substrates.jax"])


def jaxed(fn):
    """A function of JAX for the auditor."""
    from pairgrad.coherence import from_jax

    return from_jax(fn)


def of(*numbers):
    """A tensor of double precision."""
    import torch

    return torch.tensor(numbers, dtype=torch.float64)


@package.case(effort="quick", seconds=150)
def igammainv():
    import tensorflow_probability.substrates.jax as tfp

    return jaxed(tfp.math.igammainv), (of(1.3, 0.6, 4.0), of(0.4, 0.2, 0.9))


@package.case(effort="quick", seconds=150)
def igammacinv():
    import tensorflow_probability.substrates.jax as tfp

    return jaxed(tfp.math.igammacinv), (of(1.3, 0.6, 4.0), of(0.4, 0.2, 0.9))


@package.case(effort="quick", seconds=150)
def betainc():
    import tensorflow_probability.substrates.jax as tfp

    return jaxed(tfp.math.betainc), (of(1.3, 0.6, 4.0), of(2.4, 0.7, 3.0), of(0.4, 0.2, 0.9))


@package.case(effort="quick", seconds=150)
def betaincinv():
    import tensorflow_probability.substrates.jax as tfp

    return jaxed(tfp.math.betaincinv), (of(1.3, 0.6), of(2.4, 0.7), of(0.4, 0.2))


@package.case(effort="quick", seconds=150)
def owens_t():
    import tensorflow_probability.substrates.jax as tfp

    return jaxed(tfp.math.owens_t), (of(0.7, -0.3, 2.0), of(1.4, 0.2, -3.0))


@package.case(effort="quick", seconds=150)
def lambert_w():
    import tensorflow_probability.substrates.jax as tfp

    return jaxed(tfp.math.lambertw), of(-0.3, 0.02, 0.5, 30.0)


@package.case(effort="quick", seconds=150)
def lambert_w_at_zero():
    import tensorflow_probability.substrates.jax as tfp

    return jaxed(tfp.math.lambertw), of(0.0, 0.5)


@package.case(effort="quick", seconds=150)
def lbeta():
    import tensorflow_probability.substrates.jax as tfp

    return jaxed(tfp.math.lbeta), (of(1.3, 0.6, 12.0), of(2.4, 40.0, 9.0))


@package.case(effort="quick", seconds=150)
def log_gamma_difference():
    import tensorflow_probability.substrates.jax as tfp

    return jaxed(tfp.math.log_gamma_difference), (of(1.3, 0.6), of(2.4, 40.0))


@package.case(effort="quick", seconds=150)
def dawson_and_erfcx():
    import tensorflow_probability.substrates.jax as tfp

    return jaxed(lambda x: (tfp.math.dawsn(x), tfp.math.erfcx(x), tfp.math.logerfcx(x))), of(0.7, -1.3, 4.0)


@package.case(effort="quick", seconds=150)
def log_cosh_at_and_near_zero():
    import tensorflow_probability.substrates.jax as tfp

    return jaxed(tfp.math.log_cosh), of(0.0, 1e-3, 0.5, -20.0)


@package.case(effort="quick", seconds=150)
def bessel_iv_ratio():
    import tensorflow_probability.substrates.jax as tfp

    return jaxed(lambda z: tfp.math.bessel_iv_ratio(1.3, z)), of(2.4, 0.3)


@package.case(effort="quick", seconds=150, second_order=False)
def bessel_iv_ratio_and_its_order():
    import tensorflow_probability.substrates.jax as tfp

    return jaxed(tfp.math.bessel_iv_ratio), (of(1.3), of(2.4))


@package.case(effort="quick", seconds=150)
def log_bessel_ive():
    import tensorflow_probability.substrates.jax as tfp

    return jaxed(lambda z: tfp.math.log_bessel_ive(1.3, z)), of(2.4, 0.3)


@package.case(effort="quick", seconds=150)
def log_bessel_kve():
    import tensorflow_probability.substrates.jax as tfp

    return jaxed(lambda z: tfp.math.log_bessel_kve(1.3, z)), of(2.4, 0.3)


@package.case(effort="quick", seconds=150)
def distribution_function_of_student_t():
    import tensorflow_probability.substrates.jax as tfp

    return jaxed(lambda df, t: tfp.distributions.StudentT(df, 0.0, 1.0).cdf(t)), (of(3.3, 0.8), of(0.7, -1.2))


@package.case(effort="quick", seconds=150)
def distribution_function_of_von_mises():
    import tensorflow_probability.substrates.jax as tfp

    return jaxed(lambda x, k: tfp.distributions.VonMises(0.0, k).cdf(x)), (of(0.7, -2.0), of(3.3, 0.5))


@package.case(effort="quick", seconds=150, second_order=False)
def distribution_function_of_noncentral_chi2():
    import tensorflow_probability.substrates.jax as tfp

    return jaxed(lambda x, df, nc: tfp.distributions.NoncentralChi2(df, nc).cdf(x)), (of(3.7), of(2.3), of(1.4))


@package.case(effort="quick", seconds=150)
def quadratic_form_and_logdet_of_a_positive_matrix():
    import jax.numpy as jnp
    import tensorflow_probability.substrates.jax as tfp
    import torch

    def forms(a, b):
        m = a @ a.T + jnp.eye(3)
        return tfp.math.hpsd_logdet(m), tfp.math.hpsd_solve(m, b), tfp.math.hpsd_quadratic_form_solve(m, b)

    return jaxed(forms), (torch.randn(3, 3, dtype=torch.float64), torch.randn(3, 2, dtype=torch.float64))


@package.case(
    intent="clamped-straight-through",
    why_intended="tfp.math.clip_by_value_preserve_gradient: like clip_by_value, but the gradient is that of the identity",
)
def clip_by_value_preserve_gradient():
    import tensorflow_probability.substrates.jax as tfp

    return jaxed(lambda x: tfp.math.clip_by_value_preserve_gradient(x, -1.0, 1.0)), of(0.3, 2.0, -1.5)


package.finding(
    "tensorflow-probability-igammainv-second",
    kind="second derivative",
    where="tensorflow_probability/substrates/jax/math/special.py:1505",
    what="The derivative of igammainv and igammacinv by a is detached from its arguments, so that second derivatives lack a part, without an error.",
    size="4 times the second derivative by a at (1.3, 0.4); 0.2 of the mixed one",
    cases=["igammainv", "igammacinv"],
)

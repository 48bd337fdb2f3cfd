"""JAX: functions with rules of their own in jax.nn, jax.scipy and jax.numpy, at their borders and degenerate states."""

from census.package import Package

package = Package("jax", "0.6.2", family="JAX", group="jax", modules=["jax.scipy", "jax.nn", "jax.numpy", "jax._src.scipy", "jax._src.nn", "jax._src.numpy"],
                  note="The newest release that TensorFlow Probability 0.25 runs on.")  # fmt: skip


def jaxed(fn):
    """A function of JAX for the auditor."""
    from pairgrad.coherence import from_jax

    return from_jax(fn)


def of(*numbers):
    """A tensor of double precision."""
    import torch

    return torch.tensor(numbers, dtype=torch.float64)


def randn(*shape):
    """Random numbers of the case's own seed."""
    import torch

    return torch.randn(*shape, dtype=torch.float64)


@package.case(effort="quick", seconds=150)
def hyp1f1():
    from jax.scipy import special

    return jaxed(special.hyp1f1), (of(1.3, 0.4), of(2.2, 1.1), of(3.0, 20.0))


@package.case(effort="quick", seconds=30)
def hyp1f1_of_a_large_argument():
    import jax.numpy as jnp
    from jax.scipy import special

    return jaxed(lambda a, b, x: jnp.log(special.hyp1f1(a, b, x))), (of(1.3), of(2.2), of(300.0))


@package.case(effort="quick", seconds=30)
def spence():
    from jax.scipy import special

    return jaxed(special.spence), of(0.3, 0.7, 1.2, 3.0)


@package.case(effort="quick", seconds=30)
def spence_at_one():
    from jax.scipy import special

    return jaxed(special.spence), of(1.0)


@package.case(effort="quick", seconds=30)
def spence_at_two():
    from jax.scipy import special

    return jaxed(special.spence), of(2.0)


@package.case(effort="quick", seconds=30)
def log_ndtr():
    from jax.scipy import special

    return jaxed(special.log_ndtr), of(-15.0, -1.0, 0.3, 4.0)


@package.case(effort="quick", seconds=30)
def log_ndtr_in_the_tail():
    from jax.scipy import special

    return jaxed(special.log_ndtr), of(-20.1)


@package.case(effort="quick", seconds=30)
def poch():
    from jax.scipy import special

    return jaxed(special.poch), (of(1.3, 2.0), of(2.2, 0.0))


@package.case(effort="quick", seconds=30)
def zeta():
    from jax.scipy import special

    return jaxed(special.zeta), (of(3.0, 1.1), of(0.5, 2.0))


@package.case(effort="quick", seconds=30)
def xlogy_and_xlog1py_at_zero():
    from jax.scipy import special

    return jaxed(lambda x, y: (special.xlogy(x, y), special.xlog1py(x, y))), (of(0.0, 0.4), of(0.3, 1.2))


@package.case(effort="quick", seconds=30)
def gammainc():
    from jax.scipy import special

    return jaxed(special.gammainc), (of(0.5, 2.0), of(0.3, 5.0))


@package.case(effort="quick", seconds=30)
def betaln():
    from jax.scipy import special

    return jaxed(special.betaln), (of(2.3, 0.5), of(40.0, 1.1))


@package.case(effort="quick", seconds=150)
def sinc_at_zero():
    import jax.numpy as jnp

    return jaxed(jnp.sinc), of(0.0, 0.4, -1.3)


@package.case(effort="quick", seconds=30)
def logit_and_logsumexp_with_signs():
    from jax.scipy import special

    return jaxed(lambda x, b: special.logsumexp(x, axis=1, b=b, return_sign=True)), (randn(3, 4), randn(3, 4))


@package.case(effort="quick", seconds=30)
def relu6_and_relu():
    import jax

    return jaxed(lambda x: (jax.nn.relu6(x), jax.nn.relu(x), jax.nn.silu(x), jax.nn.squareplus(x))), of(-1.0, 2.0, 5.5, 7.0)


@package.case(effort="quick", seconds=30)
def softmax_where():
    import jax
    import jax.numpy as jnp

    mask = jnp.array([[True, False, True], [True, True, False]])
    return jaxed(lambda x: jax.nn.softmax(x, axis=1, where=mask)), randn(2, 3)


@package.case(effort="quick", seconds=30)
def determinant_of_a_singular_matrix():
    import jax.numpy as jnp
    import torch

    return jaxed(jnp.linalg.det), torch.tensor([[1.0, 2, 3], [2, 4, 6], [0.5, -1, 2]], dtype=torch.float64)


@package.case(effort="quick", seconds=150)
def determinant_of_a_matrix_with_a_zero_column():
    import jax.numpy as jnp
    import torch

    return jaxed(jnp.linalg.det), torch.tensor([[0.0, 2, 1, -1], [0, 1, 3, 2], [0, -1, 1, 1], [0, 3, -2, 1]], dtype=torch.float64)


@package.case(effort="quick", seconds=30)
def pinv_of_low_rank():
    import jax.numpy as jnp

    return jaxed(lambda a, b: jnp.linalg.pinv(a @ b, rtol=1e-8)), (randn(4, 2), randn(2, 3))


@package.case(effort="quick", seconds=30)
def slogdet_and_inverse():
    import jax.numpy as jnp

    return jaxed(lambda a: (jnp.linalg.slogdet(a)[1], jnp.linalg.inv(a))), randn(3, 3)


@package.case(effort="quick", seconds=30)
def expm_and_sqrtm():
    from jax.scipy import linalg

    return jaxed(linalg.expm), randn(3, 3)


@package.case(effort="quick", seconds=150)
def odeint():
    import jax.numpy as jnp
    from jax.experimental.ode import odeint

    return jaxed(lambda y, k: odeint(lambda y, t, k: -k * y * jnp.cos(t), y, jnp.array([0.0, 0.5, 1.0]), k, rtol=1e-10, atol=1e-12)), (
        randn(2),
        of(0.7),
    )


package.finding(
    "jax-hyp1f1-large-argument",
    kind="gradient at special states",
    where="jax/_src/scipy/special.py (_hyp1f1_a_derivative, _hyp1f1_b_derivative)",
    what="The series of the derivatives by a and b end after 250 terms, which is too early from x = 180 on, where the value is right.",
    size="3e-4 of the derivative at x = 200, all of it at 300",
    cases=["hyp1f1 of a large argument"],
    known="https://github.com/jax-ml/jax/issues/21503",
)
package.finding(
    "jax-spence-between-one-and-two",
    kind="gradient",
    where="jax/_src/scipy/special.py (_spence_calc)",
    what="The gradient of spence is not a number for arguments above 1 up to 2, and 0 at 1; it is log(x) / (1 - x).",
    size="not a number",
    cases=["spence", "spence at one", "spence at two"],
)
package.finding(
    "jax-log-ndtr-tail",
    kind="accuracy",
    where="jax/_src/scipy/special.py (_log_ndtr_jvp)",
    what="Below -20 the derivative is computed with the value, an asymptotic series of three terms by default, whose error it takes relative to 1.",
    size="4e-9 of the gradient at -20.1 in float64",
    cases=["log ndtr in the tail"],
)
package.finding(
    "jax-det-zero-column",
    kind="gradient at special states",
    where="jax/_src/numpy/linalg.py (_cofactor_solve)",
    what="The rule of the determinant from 4 x 4 on assumes that the zero pivot of a singular matrix is the last one, which it is not if a column is zero.",
    size="the whole gradient at a matrix whose first column is zero",
    cases=["determinant of a matrix with a zero column"],
)

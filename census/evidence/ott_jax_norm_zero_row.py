"""One zero row gets a gradient of NaN, all zero rows get 0. pip install ott-jax==0.6.0 "jax[cpu]"."""

import jax
import jax.numpy as jnp
from ott.math import utils

jax.config.update("jax_enable_x64", True)


def total(x):
    return utils.norm(x, None, 1).sum()


both = jax.grad(total)(jnp.zeros((2, 2)))
one = jax.grad(total)(jnp.array([[0.0, 0.0], [3.0, 4.0]]))
print(f"two zero rows: supplied {both.tolist()}, documented [[0, 0], [0, 0]]")
print(f"one zero row: supplied {one.tolist()}, documented [[0, 0], [0.6, 0.8]]")
raise SystemExit(0 if bool(jnp.isnan(one[0]).all()) and not both.any() else 1)

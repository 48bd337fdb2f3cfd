"""The Euclidean cost of a point and itself is sqrt(n) under differentiation. pip install ott-jax==0.6.0 "jax[cpu]"."""

import jax
import jax.numpy as jnp
from ott.geometry import costs

jax.config.update("jax_enable_x64", True)
x = jnp.array([0.3, -1.2, 0.8, 0.1])
cost, (value, gradient) = costs.Euclidean()(x, x), jax.value_and_grad(costs.Euclidean())(x, x)
print(f"without a gradient {cost}; with one: supplied {value}, true 0.0, gradient {gradient.tolist()}")
pairs = costs.Euclidean().all_pairs
total = jax.value_and_grad(lambda z: pairs(z, z).sum())(jnp.stack((x, 2 * x)))[0]
print(f"sum over all pairs of two points: supplied {total}, true {pairs(jnp.stack((x, 2 * x)), jnp.stack((x, 2 * x))).sum()}")
raise SystemExit(0 if cost == 0 and value == 2 else 1)

"""The norm of zeros is sqrt(n) under differentiation. pip install ott-jax==0.6.0 "jax[cpu]"."""

import jax
import jax.numpy as jnp
from ott.geometry import costs
from ott.math import utils

jax.config.update("jax_enable_x64", True)
x = jnp.array([0.3, -1.2, 0.8, 0.1])
plain, (differentiated, gradient) = utils.norm(jnp.zeros(4)), jax.value_and_grad(utils.norm)(jnp.zeros(4))
print(f"norm of four zeros: supplied with a gradient {differentiated}, without {plain}, true 0.0; gradient {gradient}")
cost, with_gradient = costs.Euclidean()(x, x), jax.value_and_grad(costs.Euclidean())(x, x)[0]
print(f"Euclidean cost of equal points: supplied with a gradient {with_gradient}, without {cost}, true 0.0")
raise SystemExit(0 if plain == cost == 0 and differentiated == with_gradient == 2 else 1)

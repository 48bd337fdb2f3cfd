"""The log of a sum of zeros is 0 under differentiation. pip install ott-jax==0.6.0 "jax[cpu]"."""

import jax
import jax.numpy as jnp
from ott.math import utils

jax.config.update("jax_enable_x64", True)
x = jnp.full(3, -jnp.inf)
plain, (differentiated, gradient) = utils.logsumexp(x), jax.value_and_grad(utils.logsumexp)(x)
print(f"supplied with a gradient {differentiated}, without {plain}, true -inf; gradient {gradient.tolist()}")
raise SystemExit(0 if plain == -jnp.inf and differentiated == 0 else 1)

"""The derivative of isotonic_l2_pav is too small by 1e-8. pip install jaxopt==0.8.5 "jax[cpu]==0.6.2"."""

import jax
import jax.numpy as jnp
from jaxopt.isotonic import isotonic_l2_pav

jax.config.update("jax_enable_x64", True)
y = jnp.array([0.3, -1.2, 0.9, 0.4, 2.0])
print(f"solution {isotonic_l2_pav(y).tolist()}: blocks of 2, 2 and 1")
supplied = jax.jacobian(isotonic_l2_pav)(y)
h = 2.0**-10  # the function is linear here, so that differences are exact but for rounding
true = jnp.stack([(isotonic_l2_pav(y.at[i].add(h)) - isotonic_l2_pav(y.at[i].add(-h))) / (2 * h) for i in range(5)], 1)
for i, j in ((0, 0), (0, 1), (4, 4)):
    print(f"d solution[{i}] / d y[{j}]: supplied {float(supplied[i, j]):.15f}, true {float(true[i, j]):.15f}")
raise SystemExit(0 if abs(float(supplied[4, 4]) - 1) > 5e-9 and abs(float(true[4, 4]) - 1) < 1e-12 else 1)

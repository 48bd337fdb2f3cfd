"""The gradient of the determinant of a 4 x 4 matrix with a zero column is wrong. pip install "jax[cpu]==0.6.2"."""

import jax
import jax.numpy as jnp

jax.config.update("jax_enable_x64", True)
m = jnp.array([[0.0, 2, 1, -1], [0, 1, 3, 2], [0, -1, 1, 1], [0, 3, -2, 1]])
h = 2.0**-6  # the determinant is linear in each element, so that differences are exact but for rounding
true = jnp.array([[(jnp.linalg.det(m.at[i, j].add(h)) - jnp.linalg.det(m.at[i, j].add(-h))) / (2 * h) for j in range(4)] for i in range(4)])
supplied = jax.grad(jnp.linalg.det)(m)
near = jax.grad(jnp.linalg.det)(m.at[0, 0].add(1e-9))
print(f"rank {int(jnp.linalg.matrix_rank(m))}, determinant {float(jnp.linalg.det(m))}")
for name, gradient in (("supplied", supplied), ("true", true), ("supplied 1e-9 beside it", near)):
    print(f"{name}: first column {[round(float(x), 6) + 0.0 for x in gradient[:, 0]]}")
raise SystemExit(0 if float(abs(supplied - true).max()) > 0.1 * float(abs(true).max()) else 1)

"""h_legendre of RegTICost with rho = 2 is not the transform, nor its gradient the derivative. pip install ott-jax==0.6.0 "jax[cpu]"."""

import jax
import jax.numpy as jnp
from ott.geometry import costs, regularizers

jax.config.update("jax_enable_x64", True)
z, h = jnp.array([0.5, -1.2, 2.0]), 1e-4
borne_out = True
for rho in (1.0, 2.0):
    cost = costs.RegTICost(regularizers.L1(), lam=0.3, rho=rho)
    supplied = jax.grad(cost.h_legendre)(z)
    true = [float((cost.h_legendre(z.at[i].add(h)) - cost.h_legendre(z.at[i].add(-h))) / (2 * h)) for i in range(3)]
    grid = jnp.linspace(-3, 3, 60001)  # the transform of rho/2 x^2 + 0.3 |x|, coordinate by coordinate
    transform = sum(float((grid * c - rho / 2 * grid**2 - 0.3 * abs(grid)).max()) for c in z)
    print(f"rho = {rho}: supplied {supplied.tolist()}, true {[round(t, 6) for t in true]}")
    print(f"           value {float(cost.h_legendre(z)):.6f}, the Legendre transform {transform:.6f}")
    off = float(abs(supplied - jnp.array(true)).max())
    borne_out &= (off > 0.1) == (rho != 1)
raise SystemExit(0 if borne_out else 1)

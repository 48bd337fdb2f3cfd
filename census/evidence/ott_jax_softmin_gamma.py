"""softmin and SoftDTW get no gradient for gamma. pip install ott-jax==0.6.0 "jax[cpu]"."""

import jax
import jax.numpy as jnp
from ott.geometry import costs
from ott.math import utils

jax.config.update("jax_enable_x64", True)
x, y, h = jnp.array([0.3, -1.2, 0.8, 0.1]), jnp.array([0.2, 0.9, -0.4]), 1e-4


def plain(gamma):
    return -gamma * jax.scipy.special.logsumexp(-x / gamma)


def soft_dtw(gamma):
    return costs.SoftDTW(gamma)(x, y)


borne_out = True
for name, fn in (("softmin", lambda gamma: utils.softmin(x, gamma)), ("SoftDTW", soft_dtw)):
    first, half = ((fn(0.7 + s) - fn(0.7 - s)) / (2 * s) for s in (h, h / 2))
    supplied, true = jax.grad(fn)(0.7), half + (half - first) / 3
    print(f"{name}: supplied {supplied}, true {true:.9f}")
    borne_out &= supplied == 0 and abs(true) > 1e-3
print(f"softmin by autodiff of its formula: {jax.grad(plain)(0.7):.9f}")
raise SystemExit(0 if borne_out else 1)

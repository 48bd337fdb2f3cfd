"""The derivative of spence is NaN in (1, 2] and 0 at 1; it is log(x) / (1 - x), and -1 at 1. pip install "jax[cpu]==0.6.2"."""

import math

import jax
from jax.scipy.special import spence

jax.config.update("jax_enable_x64", True)
bad = 0
for x in (0.3, 0.99, 1.0, 1.2, 1.5, 1.7, 2.0, 2.5):
    supplied, true = float(jax.grad(spence)(x)), -1.0 if x == 1 else math.log(x) / (1 - x)
    bad += not abs(supplied - true) < 1e-6
    print(f"x = {x}: value {float(spence(x)):.9f}, supplied {supplied:.9f}, true {true:.9f}")
raise SystemExit(0 if bad >= 3 else 1)

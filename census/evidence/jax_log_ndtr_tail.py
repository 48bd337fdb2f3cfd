"""The gradient of log_ndtr just below -20 in float64 is off by 4e-9. pip install "jax[cpu]==0.6.2" mpmath."""

import jax
import mpmath
from jax.scipy.special import log_ndtr

jax.config.update("jax_enable_x64", True)
mpmath.mp.dps = 30
off = {}
for x in (-30.0, -20.1, -19.9, -8.0):
    value, true = mpmath.log(mpmath.ncdf(x)), mpmath.npdf(x) / mpmath.ncdf(x)
    supplied = float(jax.grad(log_ndtr)(x))
    off[x] = float(abs(supplied / true - 1))
    print(
        f"x = {x}: supplied {supplied:.12f}, true {float(true):.12f}, off by {off[x]:.1e}; value off by {float(abs(float(log_ndtr(x)) / value - 1)):.1e}"
    )
raise SystemExit(0 if off[-20.1] > 1e-10 and off[-19.9] < 1e-12 else 1)

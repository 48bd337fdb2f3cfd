"""The derivatives of hyp1f1 by a and b stop after 250 terms. pip install "jax[cpu]==0.6.2" mpmath."""

import jax
import mpmath
from jax.scipy.special import hyp1f1

jax.config.update("jax_enable_x64", True)
mpmath.mp.dps = 30
worst = 0.0
for x in (50.0, 150.0, 200.0, 300.0):
    value = float(float(hyp1f1(1.3, 2.2, x)) / mpmath.hyp1f1(1.3, 2.2, x) - 1)
    for name, at in (("a", 0), ("b", 1)):
        supplied = float(jax.grad(hyp1f1, argnums=at)(1.3, 2.2, x))
        true = mpmath.diff(lambda v, at=at, x=x: mpmath.hyp1f1(*((v, 2.2) if at == 0 else (1.3, v)), x), 1.3 if at == 0 else 2.2)
        off = float(abs(supplied / true - 1))
        worst = max(worst, off)
        print(f"x = {x}, by {name}: supplied {supplied:.6e}, true {float(true):.6e}, off by {off:.1e}; the value by {value:.1e}")
raise SystemExit(0 if worst > 0.5 else 1)

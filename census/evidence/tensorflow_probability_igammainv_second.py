"""Second derivatives of igammainv and igammacinv are wrong. pip install tensorflow-probability==0.25.0 "jax[cpu]==0.6.2"."""

import jax
import jax.numpy as jnp
import tensorflow_probability.substrates.jax as tfp

jax.config.update("jax_enable_x64", True)
a, p, h = jnp.float64(1.3), jnp.float64(0.4), 1e-3
borne_out = True
for fn in (tfp.math.igammainv, tfp.math.igammacinv):
    first = jax.grad(fn)
    for name, at in (("a", 0), ("p", 1)):
        moved = (lambda s, first=first: first(a + s, p)) if at == 0 else (lambda s, first=first: first(a, p + s))
        wide, half = ((moved(s) - moved(-s)) / (2 * s) for s in (h, h / 2))
        supplied, true = float(jax.grad(first, argnums=at)(a, p)), float(half + (half - wide) / 3)
        print(f"{fn.__name__}: derivative by {name} of the derivative by a: supplied {supplied:.9f}, true {true:.9f}")
        borne_out &= abs(supplied - true) > 1e-2 * abs(true)
raise SystemExit(0 if borne_out else 1)

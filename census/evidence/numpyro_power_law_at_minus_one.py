"""At alpha = -1 the derivative by alpha of DoublyTruncatedPowerLaw is a difference of step 1e-3. pip install numpyro==0.19.0 "jax[cpu]==0.6.2"."""

import math

import jax
from numpyro.distributions import DoublyTruncatedPowerLaw

jax.config.update("jax_enable_x64", True)
low, high, x = 0.8, 3.0, 1.5
width, at = math.log(high / low), math.log(x / low)
# With s = alpha + 1, the log density is log s - log(e^(s width) - 1) + s at - log x, and cdf is (e^(s at) - 1) / (e^(s width) - 1).
true = {"log_prob": at - width / 2, "cdf": at * (at - width) / (2 * width)}
borne_out = False
for name, value in true.items():
    supplied = float(jax.grad(lambda alpha, name=name: getattr(DoublyTruncatedPowerLaw(alpha, low, high), name)(x))(-1.0))
    print(f"{name}: supplied {supplied:.15f}, true {value:.15f}, off by {abs(supplied / value - 1):.1e}")
    borne_out |= abs(supplied / value - 1) > 1e-11
outside = float(jax.grad(lambda v: DoublyTruncatedPowerLaw(-1.7, low, high).cdf(v))(3.5))
print(f"cdf above the support, where it is 1: supplied {outside:.6f}, true 0")
raise SystemExit(0 if borne_out and outside != 0 else 1)

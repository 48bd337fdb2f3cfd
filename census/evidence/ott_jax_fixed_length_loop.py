"""With min_iterations == max_iterations the unrolled gradient of ott's fixed point loop is wrong. pip install ott-jax==0.6.0 "jax[cpu]"."""

import jax
import jax.numpy as jnp
from ott.math import fixed_point_loop

jax.config.update("jax_enable_x64", True)
start = jnp.array([0.5, 0.2])


def body(iteration, constant, state, compute_error):
    return 0.9 * state + 0.3 * jnp.tanh(constant * state)


def looped(constant, least):
    return fixed_point_loop.fixpoint_iter_backprop(lambda *_: True, body, least, 12, 3, constant, start).sum()


def plain(constant):
    state = start
    for i in range(12):
        state = body(i, constant, state, False)
    return state.sum()


value, supplied = jax.value_and_grad(lambda c: looped(c, 12))(0.7)
_, other = jax.value_and_grad(lambda c: looped(c, 0))(0.7)
same, true = jax.value_and_grad(plain)(0.7)
print(f"values {value:.12f} and {same:.12f}")
print(f"min_iterations = 12: supplied {supplied:.12f}, true {true:.12f}")
print(f"min_iterations = 0:  supplied {other:.12f}")
borne_out = abs(value - same) < 1e-12 and abs(other - true) < 1e-10 and abs(supplied - true) > 1e-3 * abs(true)
raise SystemExit(0 if borne_out else 1)

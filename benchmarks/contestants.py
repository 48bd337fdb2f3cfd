"""What is timed: the realizations of pairgrad, AR/FR written out in plain torch, scipy, and TensorFlow Probability on JAX."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from types import FunctionType
from typing import Any

import numpy as np
import torch

import pairgrad
from benchmarks.timing import Call

QUANTITIES = ("slope", "value", "difference")
FORWARD, BACKWARD = "forward", "forward+backward"
DIRECTIONS = (FORWARD, BACKWARD)
EAGER, COMPILED, FUSED, LIBRARY = "eager", "compiled", "compiled, FMA", "library"
DTYPES = {"float64": torch.float64, "float32": torch.float32}

PRINTED = "arfr-printed"
RECURRENCES = ("original", "consistent", "consistent-autograd", "log-miller")
FIXED_DEPTH = ("paired", PRINTED, "arfr", "scott", "log-bessel")
PEERS = ("scipy", "tfp-jax")
CONTESTANTS = FIXED_DEPTH + RECURRENCES + PEERS

_COMPILE_OPTIONS: dict[str, dict[str, Any] | None] = {COMPILED: None, FUSED: {"cpp.enable_floating_point_contract_flag": "fast"}}
_SEED = 20240607
_SHIFTED_BELOW = 64  # dimension below which `paired` takes recurrence steps, which torch.compile needs a minute for
_BACKWARD_AT = 512  # the dimension at which backward is compiled, by torch or by JAX, unless everything is
_DEEP_FROM = 512  # dimension from which compiling a recurrence takes minutes


class NotAvailable(Exception):
    """A contestant that cannot be timed here; the message is what the table says."""


@dataclass(frozen=True)
class Setting:
    """One cell: who computes what, how, in which dtype and dimension."""

    contestant: str
    mode: str
    dtype: str
    dim: int
    quantity: str
    direction: str

    @property
    def slow(self) -> bool:
        """Whether it may be timed on fewer elements; not when compiled, because every size would be compiled anew."""
        return self.mode in (EAGER, LIBRARY) and self.contestant in RECURRENCES + PEERS


def settings(dtype: str, dim: int, contestants: tuple[str, ...], *, full: bool) -> Iterator[Setting]:
    """Every cell of a dtype and dimension; without `full`, those that keep a run at about ten minutes."""
    for name in CONTESTANTS:
        if name in contestants:
            for quantity in QUANTITIES:
                for direction in DIRECTIONS:
                    for mode in _modes(name, dtype, dim, quantity, direction, full=full):
                        yield Setting(name, mode, dtype, dim, quantity, direction)


def _modes(name: str, dtype: str, dim: int, quantity: str, direction: str, *, full: bool) -> tuple[str, ...]:
    if name == "scipy":
        return (LIBRARY,) if (dtype, quantity, direction) == ("float64", "slope", FORWARD) else ()
    if name == "tfp-jax":
        wanted = full or (quantity != "difference" and (direction == FORWARD or dim == _BACKWARD_AT))
        return (LIBRARY,) if wanted else ()
    if name in RECURRENCES:
        if not full and (dtype == "float32" or quantity == "difference"):
            return ()  # they compute in float64 whatever the dtype, and subtract two values
        return (EAGER, COMPILED) if _recurrence_compiles(name, dim, direction, full=full) else (EAGER,)
    if full:
        return (EAGER, COMPILED, FUSED)
    if direction == BACKWARD:
        return (EAGER, COMPILED) if dim == _BACKWARD_AT and name in ("paired", PRINTED, "arfr") else (EAGER,)
    if dim < _SHIFTED_BELOW and name in ("paired", "log-bessel"):
        return (EAGER, COMPILED) if name == "paired" and quantity == "slope" else (EAGER,)
    if name in ("paired", PRINTED):
        return (EAGER, COMPILED, FUSED)
    return (EAGER,) if quantity == "difference" else (EAGER, COMPILED)


def _recurrence_compiles(name: str, dim: int, direction: str, *, full: bool) -> bool:
    if name not in ("original", "consistent"):
        return False
    return dim < _DEEP_FROM if full else dim < 16 and direction == FORWARD


@cache
def arguments(dtype: str, dim: int, elements: int) -> tuple[torch.Tensor, torch.Tensor]:
    """x, with x / nu log-uniform on [1e-2, 1e2], and x + 1; the same for every contestant."""
    nu = dim / 2 - 1
    exponents = torch.rand(elements, generator=torch.Generator().manual_seed(_SEED), dtype=torch.float64) * 4 - 2
    x = (nu * 10**exponents).to(DTYPES[dtype])
    return x, x + 1


def maker(setting: Setting) -> Callable[[int], Call]:
    """n -> a call on n elements, which returns its results. Raises NotAvailable where the contestant is not installed."""
    if setting.contestant == "scipy":
        return _scipy(setting)
    if setting.contestant == "tfp-jax":
        return _tfp(setting)
    return _torch(setting)


def nonfinite_share(result: Any) -> float:
    """Share of the elements of the (first) result that are NaN or infinite."""
    first = result[0] if isinstance(result, tuple) else result
    return 1 - float(np.isfinite(first.detach().numpy() if isinstance(first, torch.Tensor) else np.asarray(first)).mean())


def printed_slope(dim: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """A_R, eq. a2, as it is printed."""
    nu = dim / 2 - 1

    def slope(x: torch.Tensor) -> torch.Tensor:
        s = torch.sqrt(nu**2 + x * x)
        return x / (nu + s) - x / (2 * s**2) + x * (4 * nu**2 - x * x) / (8 * s**5)

    return slope


def printed_value(dim: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """F_R, eq. f2, as it is printed."""
    nu = dim / 2 - 1

    def value(x: torch.Tensor) -> torch.Tensor:
        s = torch.sqrt(nu**2 + x * x)
        return s - nu * torch.log(nu + s) - torch.log(s) / 2 + (3 * x * x - 2 * nu**2) / (24 * s**3)

    return value


def torch_function(contestant: str, dim: int, quantity: str) -> Callable[..., torch.Tensor]:
    """The function that a torch contestant offers for a quantity: of x, or of x and x + 1 for the difference."""
    if contestant == PRINTED:
        if quantity == "slope":
            return printed_slope(dim)
        value = printed_value(dim)
        return value if quantity == "value" else lambda a, b: value(b) - value(a)
    if contestant == "consistent-autograd":
        return getattr(pairgrad.potential(dim, "consistent", derivative="autograd"), quantity)
    return getattr(pairgrad.potential(dim, contestant), quantity)


def _own_code(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """The same function through a code object of its own.

    torch.compile keeps its results per code object and searches through them at every call. Contestants that share a method would pay
    for each other.
    """

    def call(*inputs: torch.Tensor) -> torch.Tensor:
        return function(*inputs)

    return FunctionType(call.__code__.replace(), call.__globals__, closure=call.__closure__)


def _torch(setting: Setting) -> Callable[[int], Call]:
    function = torch_function(setting.contestant, setting.dim, setting.quantity)
    if setting.mode != EAGER:
        function = torch.compile(_own_code(function), fullgraph=True, options=_COMPILE_OPTIONS[setting.mode])
    count = 2 if setting.quantity == "difference" else 1

    def make(elements: int) -> Call:
        inputs = arguments(setting.dtype, setting.dim, elements)[:count]
        if setting.direction == FORWARD:

            def forward() -> torch.Tensor:
                with torch.no_grad():
                    return function(*inputs)

            return forward
        leaves = [t.clone().requires_grad_() for t in inputs]
        cotangent = torch.ones_like(leaves[0])

        def both() -> tuple[torch.Tensor, ...]:
            result = function(*leaves)
            return result, *torch.autograd.grad(result, leaves, cotangent)

        return both

    return make


def _installed(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise NotAvailable("not installed") from error
    except (ImportError, AttributeError) as error:
        raise NotAvailable(f"installed, but does not import: {error}") from error


def _scipy(setting: Setting) -> Callable[[int], Call]:
    ive = _installed("scipy.special").ive
    nu = setting.dim / 2 - 1

    def make(elements: int) -> Call:
        x = arguments(setting.dtype, setting.dim, elements)[0].numpy()

        def ratio() -> np.ndarray:
            with np.errstate(all="ignore"):
                return ive(nu + 1, x) / ive(nu, x)

        return ratio

    return make


def restrict_jax(threads: int) -> None:
    """Holds XLA to one thread where torch has one; must come before the first import of JAX."""
    if threads == 1:
        flags = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flags}".strip()


def _tfp(setting: Setting) -> Callable[[int], Call]:
    """bessel_iv_ratio(nu + 1, x) = I_{nu+1} / I_nu; the value is log_bessel_ive(nu, x) + x - nu log x; differences by subtraction."""
    jax = _installed("jax")
    tfp_math = _installed("tensorflow_probability.substrates.jax").math
    jnp = jax.numpy
    jax.config.update("jax_enable_x64", True)
    nu = np.dtype(setting.dtype).type(setting.dim / 2 - 1)

    def value(x: Any) -> Any:
        return tfp_math.log_bessel_ive(nu, x) + (x - nu * jnp.log(x))

    functions: dict[str, Callable[..., Any]] = {
        "slope": lambda x: tfp_math.bessel_iv_ratio(nu + 1, x),
        "value": value,
        "difference": lambda a, b: value(b) - value(a),
    }
    function = functions[setting.quantity]

    def both(*inputs: Any) -> tuple[Any, ...]:
        result, pullback = jax.vjp(function, *inputs)
        return result, *pullback(jnp.ones_like(result))

    compiled = jax.jit(function if setting.direction == FORWARD else both)
    count = 2 if setting.quantity == "difference" else 1

    def make(elements: int) -> Call:
        inputs = [jnp.asarray(t.numpy()) for t in arguments(setting.dtype, setting.dim, elements)[:count]]
        call = lambda: jax.block_until_ready(compiled(*inputs))  # noqa: E731
        call()  # compiles for this shape
        return call

    return make

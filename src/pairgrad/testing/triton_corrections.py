"""What `pairgrad.testing.triton_interpreter` replaces in Triton's interpreter, in its autotuner and in torch's module for GPUs. Checked with triton 3.7.0.

Everything private of Triton that pairgrad touches is in this file; `changes` says what is missing where another version does not have it.
"""

from __future__ import annotations

import ast
import functools
import re
import warnings
from collections.abc import Callable, Iterator
from types import FunctionType, SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
import triton.language as tl
import triton.runtime.interpreter as interpreter
from triton.backends.compiler import GPUTarget
from triton.language.extra import libdevice
from triton.language.extra.cuda import libdevice as cuda_libdevice
from triton.runtime import Autotuner, InterpreterError, JITFunction, driver
from triton.runtime.interpreter import FunctionRewriter, GridExecutor, InterpretedFunction, InterpreterBuilder, TensorHandle

from pairgrad.ground.devices import GPU, HOST

FLOAT8 = "float8: Triton's interpreter rounds conversions to it wrongly, which no verdict should rest on"
TF32 = "tf32: products of float32 are exact here, where a GPU may round their factors to TF32: the verdict is on the formula"
_FLOAT8 = (tl.float8e5, tl.float8e5b16, tl.float8e4nv, tl.float8e4b8, tl.float8e4b15)
_CAPABILITY = (8, 0)  # the GPU that is pretended: kernels for later ones ask for more than the interpreter has
_PROPERTIES = {
    "max_shared_mem": 166_912,
    "multiprocessor_count": 4,  # few: persistent kernels start a program on each, and the interpreter runs them one by one
    "max_num_regs": 65_536,
    "warpSize": 32,
}
_SAME_NAME = """
    acos acosh asin asinh atan atan2 atanh ceil copysign cos cosh erf erfc erfinv exp exp2 expm1 floor fmax fmin fmod hypot isinf isnan
    lgamma log log10 log1p log2 nextafter pow rsqrt sin sinh sqrt tan tanh trunc
"""
_BY_TORCH = {name: getattr(torch, name) for name in _SAME_NAME.split()}
_BY_TORCH |= {"fabs": torch.abs, "rint": torch.round, "fdivide": torch.div, "finite": torch.isfinite, "isfinite": torch.isfinite}


class Change(NamedTuple):
    """An attribute and what it is for a time."""

    owner: Any
    name: str
    value: Any


def interprets() -> bool:
    """Whether `@triton.jit` made functions of the interpreter when Triton itself was imported."""
    return isinstance(tl.sum, InterpretedFunction)


def changes(notes: list[str]) -> Iterator[Change]:
    """All that is replaced; `notes` is told the pitfalls that kernels meet."""
    yield from _bfloat16(notes)
    yield Change(InterpreterBuilder, "create_extern_elementwise", _libdevice)
    yield from _launches()
    yield Change(InterpretedFunction, "rewritten_fn", {})
    yield Change(FunctionRewriter, "ast_transformer", _Rewriting())
    yield Change(interpreter, "_implicit_cvt", _typed(interpreter._implicit_cvt))
    yield Change(Autotuner, "run", _first_configuration(Autotuner.run))
    yield Change(JITFunction, "run", _refused)
    for name, called in vars(cuda_libdevice).items():
        if tl.core.is_builtin(called):
            yield from _with_code(called, _external(None), {"_semantic": interpreter.interpreter_semantic})
            if isinstance(generic := getattr(libdevice, name, None), FunctionType):
                yield from _with_code(generic, _delegate, {"_called": called})
    if not torch.get_device_module(GPU).is_available():
        yield from _device()


def _is_bfloat16(handle: Any) -> bool:
    """The results of comparisons have the dtype of their operands, and are bool."""
    return isinstance(handle, TensorHandle) and handle.dtype.scalar == tl.bfloat16 and handle.data.dtype == np.uint16


def _widened(handle: Any) -> Any:
    """In float32, exactly: the interpreter holds the bits of bfloat16 as integers."""
    return TensorHandle((handle.data.astype(np.uint32) << 16).view(np.float32), tl.float32) if _is_bfloat16(handle) else handle


def _narrowed(numbers: Any) -> TensorHandle:
    """In bfloat16, rounded to nearest, ties to even."""
    bits = np.asarray(numbers).astype(np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return TensorHandle(np.where(np.isnan(numbers), 0x7FC0, rounded).astype(np.uint16), tl.bfloat16)


def _in_float32(method: Callable[..., TensorHandle]) -> Callable[..., TensorHandle]:
    """An operation with operands in bfloat16 made in float32; its last operand says what the result is rounded to."""

    @functools.wraps(method)
    def made(self: Any, *args: Any) -> TensorHandle:
        if not any(map(_is_bfloat16, args)):
            return method(self, *args)
        result = method(self, *map(_widened, args))
        is_number = _is_bfloat16([arg for arg in args if isinstance(arg, TensorHandle)][-1]) and result.data.dtype == np.float32
        return _narrowed(result.data) if is_number else result

    return made


def _bfloat16(notes: list[str]) -> Iterator[Change]:
    cast, convert = InterpreterBuilder.cast_impl, InterpreterBuilder.create_fp_to_fp
    product, atomic = _in_float32(InterpreterBuilder.create_dot), InterpreterBuilder.create_atomic_rmw
    semantic, reduce = interpreter.interpreter_semantic, interpreter.ReduceScanOpInterface.apply
    add = interpreter._ir.ATOMIC_OP.FADD

    def cast_impl(self: Any, src: TensorHandle, dst_type: Any) -> TensorHandle:
        wide = _widened(src)
        return _narrowed(wide.data) if dst_type.scalar == tl.bfloat16 else cast(self, wide, dst_type)

    def create_fp_to_fp(self: Any, src: TensorHandle, dst_type: Any, rounding_mode: Any) -> TensorHandle:
        if dst_type.scalar in _FLOAT8 and FLOAT8 not in notes:
            notes.append(FLOAT8)
            warnings.warn(FLOAT8, stacklevel=2)
        return convert(self, src, dst_type, rounding_mode)

    def create_dot(self: Any, a: TensorHandle, b: TensorHandle, d: TensorHandle, precision: Any, imprecise: Any) -> TensorHandle:
        if a.dtype.scalar == tl.float32 and "TF32" in str(precision) and TF32 not in notes:
            notes.append(TF32)
        return product(self, a, b, d, precision, imprecise)

    def create_atomic_rmw(self: Any, op: Any, ptr: TensorHandle, val: TensorHandle, mask: TensorHandle, *order: Any) -> TensorHandle:
        if not (_is_bfloat16(val) and op == add):
            return atomic(self, op, ptr, val, mask, *order)
        before, always = np.zeros_like(val.data), np.ones(1, bool)
        for place in zip(*np.nonzero(mask.data), strict=True):  # one after another: they may have the same address
            address = TensorHandle(ptr.data[place].reshape(1), ptr.dtype)
            held = self.create_masked_load(address, TensorHandle(always, tl.int1), None, None, None, False)
            before[place] = held.data[0]
            added = self.create_fadd(held, TensorHandle(val.data[place].reshape(1), tl.bfloat16))
            self.create_masked_store(address, added, TensorHandle(always, tl.int1), None, None)
        return TensorHandle(before, tl.bfloat16)

    def apply(self: Any, input: Any) -> Any:
        if isinstance(input, tuple) and any(tensor.dtype == tl.bfloat16 for tensor in input):
            wide = tuple(semantic.cast(tensor, tl.float32) if tensor.dtype == tl.bfloat16 else tensor for tensor in input)
            pairs = zip(reduce(self, wide), input, strict=False)
            return tuple(semantic.cast(found, given.dtype) if found.dtype == tl.float32 else found for found, given in pairs)
        return reduce(self, input)

    yield Change(interpreter.ReduceScanOpInterface, "apply", apply)
    for name in ("binary_op", "create_fma"):
        yield Change(InterpreterBuilder, name, _in_float32(getattr(InterpreterBuilder, name)))
    yield Change(InterpreterBuilder, "get_bf16", lambda self, value: _narrowed(np.array([value])))
    for method in (cast_impl, create_fp_to_fp, create_dot, create_atomic_rmw):
        yield Change(InterpreterBuilder, method.__name__, method)


def _libdevice(self: Any, library: str, path: str, symbol: str, args: list[TensorHandle], kind: Any, is_pure: bool) -> TensorHandle:
    """A function of libdevice by the one of torch that has its name."""
    del self, library, path, is_pure
    name = symbol.removeprefix("__nv_").removeprefix("fast_")
    function = _BY_TORCH.get(name) or _BY_TORCH.get(re.sub("[fd]$", "", name))  # names may end in f for float32, in d for float64
    if function is None:
        raise NotImplementedError(f"pairgrad.testing.triton_interpreter does not know {symbol} of libdevice")
    result = function(*(torch.from_numpy(np.array(arg.data)) for arg in args))
    return TensorHandle(result.numpy().astype(np.int32 if kind.scalar.is_int() else args[0].data.dtype), kind.scalar)


def _launches() -> Iterator[Change]:
    """A launch patches triton.language once, not for every function that the kernel calls, and puts all of it back. Infinities and NaN are not warned of,
    and an error is that of the kernel, which the interpreter would wrap once for each function.
    """
    patch, launch = interpreter._patch_lang, GridExecutor.__call__
    scopes: list[Any] = []
    patched: set[int] = set()

    def patch_lang(fn: Any) -> Any:
        modules = {id(value) for value in fn.__globals__.values() if value is tl or value is tl.core}
        if not modules or modules - patched:
            scopes.append(patch(fn))
            patched.update(modules)
        return interpreter._LangPatchScope()

    @functools.wraps(launch)
    def launched(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            with np.errstate(all="ignore"):
                return launch(self, *args, **kwargs)
        except InterpreterError as error:
            cause: BaseException = error
            while isinstance(cause, InterpreterError) and cause.__cause__ is not None:
                cause = cause.__cause__
            raise cause from None
        finally:
            patched.clear()
            while scopes:
                scopes.pop().restore()

    yield Change(interpreter, "_patch_lang", patch_lang)
    yield Change(GridExecutor, "__call__", launched)


class _Rewriting(interpreter.ASTTransformer):
    """Variables of loops over `range` are tensors, as on a GPU, and not Python's integers; those of `tl.static_range` are."""

    def visit_For(self, node: ast.For) -> ast.For:
        self.generic_visit(node)
        if isinstance(node.iter, ast.Call) and ast.unparse(node.iter.func).rpartition(".")[2] == "range":
            convert = ast.parse("interpreter_semantic.to_tensor", mode="eval").body
            node.iter = ast.Call(ast.Name("map", ast.Load()), [convert, node.iter], [])
        return node


def _typed(convert: Callable[..., Any]) -> Callable[..., Any]:
    """Arguments that are a float or a bool become scalars of the types that they have on a GPU."""

    def converted(arg: Any) -> Any:
        for python, numpy, kind in ((float, np.float32, tl.float32), (bool, np.bool_, tl.int1)):
            if isinstance(arg, python):
                return tl.tensor(TensorHandle(np.array([arg], numpy), kind), kind)
        return convert(arg)

    return converted


def _first_configuration(run: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel with the first of its configurations after pruning, and no benchmark."""

    @functools.wraps(run)
    def first(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        configs = self.configs
        self.configs = self.prune_configs(kwargs)[:1]
        try:
            return run(self, *args, **kwargs)
        finally:
            self.configs = configs

    return first


def _refused(self: Any, *args: Any, **kwargs: Any) -> Any:
    del args, kwargs
    raise RuntimeError(
        f"{self.__name__} was decorated with @triton.jit when TRITON_INTERPRET=1 was not set: set it in the shell, or before triton is imported"
    )


def _external(fn: Any) -> FunctionType:
    """What takes the place of the code of `tl.core.extern`, which has `fn` in its closure too."""

    def called(*args: Any, _semantic: Any, **kwargs: Any) -> Any:
        return fn(*args, _semantic=_semantic, **kwargs)

    return called


def _delegate(*args: Any, _called: Any) -> Any:
    return _called(*args)


def _with_code(function: Any, other: FunctionType, defaults: dict[str, Any]) -> Iterator[Change]:
    """A function in place: kernels hold it under any name."""
    yield Change(function, "__code__", other.__code__)
    yield Change(function, "__kwdefaults__", defaults)


def _device() -> Iterator[Change]:
    """What libraries ask of a GPU around a launch. No tensor is there, and `is_available()` stays False."""
    properties = SimpleNamespace(
        name="Triton interpreter",
        major=_CAPABILITY[0],
        minor=_CAPABILITY[1],
        multi_processor_count=_PROPERTIES["multiprocessor_count"],
        warp_size=_PROPERTIES["warpSize"],
        total_memory=2**34,
        shared_memory_per_block=49_152,
        shared_memory_per_block_optin=_PROPERTIES["max_shared_mem"],
    )

    def nothing(*args: Any, **kwargs: Any) -> None:
        del args, kwargs

    module = torch.get_device_module(GPU)
    yield Change(
        driver,
        "_active",
        SimpleNamespace(
            get_current_target=lambda: GPUTarget(GPU.type, 10 * _CAPABILITY[0] + _CAPABILITY[1], _PROPERTIES["warpSize"]),
            get_current_device=lambda: 0,
            set_current_device=nothing,
            get_current_stream=lambda device=None: 0,
            get_device_capability=lambda device=None: _CAPABILITY,
            get_active_torch_device=lambda: HOST,
            get_device_interface=lambda: module,
            utils=SimpleNamespace(get_device_properties=lambda device=None: dict(_PROPERTIES)),
        ),
    )
    for name, answer in {
        "current_device": 0,
        "get_device_capability": _CAPABILITY,
        "get_device_name": properties.name,
        "get_device_properties": properties,
        "current_stream": SimpleNamespace(cuda_stream=0, synchronize=nothing, wait_stream=nothing),
        "set_device": None,
        "synchronize": None,
    }.items():
        yield Change(module, name, lambda *args, _answer=answer, **kwargs: _answer)
    for name in ("__init__", "__enter__", "__exit__"):  # of the class, which others may hold
        yield Change(module.device, name, nothing)
    host = torch.get_device_module(HOST)
    if not hasattr(host, "device"):
        yield Change(host, "device", module.device)

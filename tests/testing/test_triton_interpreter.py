"""Triton kernels without a GPU: what they compute and what audits say of them, that all is put back, and what is said where the interpreter is not there."""

from __future__ import annotations

import importlib.util
import math
import os
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch

import pairgrad as pg

if importlib.util.find_spec("triton") is None or os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs triton and its interpreter, TRITON_INTERPRET=1", allow_module_level=True)

import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton.language.extra.cuda import libdevice as cuda_libdevice

pytest_plugins = ["pytester"]
HALF = torch.bfloat16


@pytest.fixture
def interpreter():
    with pg.testing.triton_interpreter() as pitfalls:
        yield pitfalls


@triton.autotune(
    [triton.Config({"BLOCK": 3}), triton.Config({"BLOCK": 4}), triton.Config({"BLOCK": 5})],  # a block of 3 or 5 is an error
    key=["size"],
    prune_configs_by={"early_config_prune": lambda configs, nargs, **kwargs: configs[1:]},
)
@triton.heuristics({"EVEN": lambda args: args["size"] % args["BLOCK"] == 0})
@triton.jit
def _scaled(x, y, factor, size, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    within = EVEN or i < size
    tl.store(y + i, tl.load(x + i, mask=within) * factor, mask=within)


class Scale(torch.autograd.Function):
    """Three times the input, asking a device for what kernel libraries ask."""

    slope = 3.0

    @staticmethod
    def launch(x, factor):
        x = x.contiguous()
        y = torch.empty_like(x)
        target = triton.runtime.driver.active.get_current_target()
        assert (target.backend, target.arch) == ("cuda", 80)
        index = triton.runtime.driver.active.get_current_device()
        assert triton.runtime.driver.active.utils.get_device_properties(index)["multiprocessor_count"] > 0
        assert torch.cuda.get_device_capability() == torch.cuda.get_device_capability(torch.cuda.current_device()) == (8, 0)
        assert torch.cuda.get_device_properties(index).multi_processor_count > 0
        with torch.cuda.device(x.device.index), torch.cuda.device_of(x), getattr(torch, x.device.type).device(0):
            _scaled[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, factor, x.numel())
        torch.cuda.current_stream().synchronize()
        return y

    @classmethod
    def forward(cls, ctx, x):
        return cls.launch(x, 3.0)

    @classmethod
    def backward(cls, ctx, grad_output):
        return cls.launch(grad_output, cls.slope)


class Wrong(Scale):
    slope = 2.5


def test_an_autotuned_kernel_is_audited(interpreter):
    x = torch.tensor([0.3, -1.2, 2.5, 0.7, 1.1])
    report = pg.audit(Scale.apply, x, effort="quick", second_order=False, consequences=False)
    assert (report.verdict, report.passed) == ("coherent", True)
    report = pg.audit(Wrong.apply, x, effort="quick", second_order=False, consequences=False)
    assert report.verdict == "incoherent"
    assert report.defect == pytest.approx(1 / 6, rel=1e-3)


@triton.jit
def _in_half(x, out, N: tl.constexpr, OPERATION: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    if OPERATION == "product":
        v = v * v
    if OPERATION == "fused":
        v = tl.fma(v, v, v)
    if OPERATION == "difference":
        v = 2.0 - v
    if OPERATION == "sum":
        v = tl.sum(v, 0) + tl.zeros([N], v.dtype)
    if OPERATION == "largest":
        v = tl.reduce(v, 0, tl.standard._elementwise_max) + tl.zeros([N], v.dtype)
    if OPERATION == "running":
        v = tl.cumsum(v, 0)
    if OPERATION == "less":
        v = tl.where(v < -v, v, 0.5)
    if OPERATION == "from integers":
        v = (300 * i + 1).to(v.dtype)
    if OPERATION == "from float32":
        v = (v.to(tl.float32) * 1.37).to(v.dtype)
    tl.store(out + i, v)


IN_HALF = {
    "product": lambda v: v * v,
    "fused": lambda v: v.float() * v.float() + v.float(),
    "difference": lambda v: 2 - v,
    "sum": lambda v: v.sum().expand(16),
    "largest": lambda v: v.max().expand(16),
    "running": lambda v: v.float().cumsum(0),
    "less": lambda v: torch.where(v < 0, v, 0.5),
    "from integers": lambda v: 300 * torch.arange(16) + 1,
    "from float32": lambda v: v.float() * 1.37,
}


@pytest.mark.parametrize("operation", IN_HALF)
def test_arithmetic_in_bfloat16_is_that_of_torch(interpreter, operation):
    x, out = torch.randn(16, dtype=HALF), torch.empty(16, dtype=HALF)
    _in_half[(1,)](x, out, 16, operation)
    torch.testing.assert_close(out, IN_HALF[operation](x).to(HALF), rtol=0, atol=0)


@triton.jit
def _copied(x, y, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(y + i, tl.load(x + i).to(y.dtype.element_ty))


@pytest.mark.parametrize("dtype", [HALF, torch.float16])
def test_halves_are_rounded_to_nearest_even(interpreter, dtype):
    """Also into the next binade, at ties (1 + 2^-8 and 1 + 3 2^-8, 2^-11 in float16), and a NaN of which all bits are set."""
    nan = torch.tensor([2**31 - 1], dtype=torch.int32).view(torch.float32)
    special = torch.tensor([1.9999, -3.9999, math.inf, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-11, 1 + 3 * 2**-11])
    x = torch.cat([torch.randn(248), special, nan])
    y = torch.empty(256, dtype=dtype)
    _copied[(1,)](x, y, 256)
    torch.testing.assert_close(y, x.to(dtype), rtol=0, atol=0, equal_nan=True)


@triton.jit
def _product(a, b, c, N: tl.constexpr):
    i = tl.arange(0, N)
    place = i[:, None] * N + i[None, :]
    tl.store(c + place, tl.dot(tl.load(a + place), tl.load(b + place)))


@pytest.mark.parametrize("dtype", [HALF, torch.float32])
def test_products_of_matrices(interpreter, dtype):
    a, b, c = torch.randn(16, 16).to(dtype), torch.randn(16, 16).to(dtype), torch.empty(16, 16)
    _product[(1,)](a, b, c, 16)
    torch.testing.assert_close(c, a.float() @ b.float(), rtol=1e-5, atol=1e-5)  # sums of 16 exact products, in another order
    assert [text.partition(":")[0] for text in interpreter] == (["tf32"] if dtype is torch.float32 else [])


@triton.jit
def _added(x, total, before, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(before + i, tl.atomic_add(total + i % 2, tl.load(x + i), mask=i < N - 1))


def test_atomic_additions_in_bfloat16(interpreter):
    x, total, before = torch.tensor([1.0, 2.0, 4.0, 8.0], dtype=HALF), torch.tensor([0.5, 0.25], dtype=HALF), torch.empty(4, dtype=HALF)
    _added[(1,)](x, total, before, 4)
    assert total.tolist() == [5.5, 2.25]
    assert before.tolist()[:3] == [0.5, 0.25, 1.5]


@triton.jit
def _with_scalars(x, y, factor, negated, N: tl.constexpr):
    i = tl.arange(0, N)
    total = tl.zeros([N], tl.float32)
    for step in range(3):
        total += tl.load(x + i) * factor.to(tl.float32) * step.to(tl.float32)
    for step in tl.static_range(2):
        total += tl.sum(tl.arange(0, 2 ** (step + 1)), 0)  # a size must be known: 1, then 6
    if negated:
        total = -total
    tl.store(y + i, total)


@pytest.mark.parametrize("negated", [False, True])
def test_floats_and_bools_and_loop_variables_are_tensors(interpreter, negated):
    x, y = torch.randn(4), torch.empty(4)
    _with_scalars[(1,)](x, y, 0.5, negated, 4)
    torch.testing.assert_close(y, (1.5 * x + 7) * (-1 if negated else 1))


@triton.jit
def _special(x, y, z, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    tl.store(y + i, libdevice.tanh(v))
    tl.store(z + i, cuda_libdevice.log1p(v * v))


@triton.jit
def _unknown(x, y, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(y + i, libdevice.j0(tl.load(x + i)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_functions_of_libdevice(interpreter, dtype):
    x = torch.randn(8, dtype=dtype)
    y, z = torch.empty_like(x), torch.empty_like(x)
    _special[(1,)](x, y, z, 8)
    torch.testing.assert_close(y, x.tanh())
    torch.testing.assert_close(z, (x * x).log1p())
    with pytest.raises(NotImplementedError, match=r"triton_interpreter does not know __nv_j0f? of libdevice"):
        _unknown[(1,)](x, y, 8)


@triton.jit
def _overflowing(x, y, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(y + i, tl.exp(tl.load(x + i)) / 0.0)


def test_infinities_are_no_warnings(interpreter):
    y = torch.empty(2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _overflowing[(1,)](torch.tensor([1e5, 1.0]), y, 2)
    assert y.tolist() == [math.inf, math.inf]


def test_float8_is_warned_of_once(interpreter):
    x, y = torch.randn(8), torch.empty(8, dtype=torch.float8_e5m2)
    with pytest.warns(UserWarning, match="float8: Triton's interpreter rounds"):
        _copied[(1,)](x, y, 8)
    _copied[(1,)](x, y, 8)
    assert [text.partition(":")[0] for text in interpreter] == ["float8"]


def _held():
    """What may be replaced, with the functions in place."""
    interpreter = triton.runtime.interpreter
    owners = [interpreter, interpreter.InterpreterBuilder, interpreter.InterpretedFunction, interpreter.FunctionRewriter]
    owners += [interpreter.GridExecutor, triton.runtime.Autotuner, triton.JITFunction, triton.runtime.driver]
    owners += [torch.cuda, torch.cuda.device, torch.cpu, tl, tl.core, tl.tensor]
    functions = [libdevice.tanh, cuda_libdevice.tanh]
    return [dict(vars(owner)) for owner in owners], [(function.__code__, function.__kwdefaults__) for function in functions]


def test_everything_is_put_back_even_after_an_error():
    before = _held()

    def used():
        with pg.testing.triton_interpreter() as outer:
            with pg.testing.triton_interpreter() as inner:
                assert inner is outer
            _with_scalars[(1,)](torch.randn(4), torch.empty(4), 0.5, True, 4)
            assert _held() != before
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        used()
    assert _held() == before
    assert not torch.cuda.is_available()
    assert np.geterr()["divide"] == "warn"


def test_a_kernel_that_was_decorated_for_a_gpu_is_refused(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET")
    compiled = triton.jit(_copied.fn)
    with pytest.raises(RuntimeError, match=r"TRITON_INTERPRET is not set: .*TRITON_INTERPRET=1 pytest"), pg.testing.triton_interpreter():
        pass
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with (
        pg.testing.triton_interpreter(),
        pytest.raises(RuntimeError, match=r"_copied was decorated .* when TRITON_INTERPRET=1 was not set"),
    ):
        compiled[(1,)](torch.ones(4), torch.ones(4), 4)


def test_what_is_missing_is_said(monkeypatch):
    with monkeypatch.context() as patched:
        patched.delattr(triton.runtime.interpreter.InterpreterBuilder, "cast_impl")
        with (
            pytest.raises(RuntimeError, match=r"triton 3.* lacks what is corrected in 3\.7\.0: .*cast_impl"),
            pg.testing.triton_interpreter(),
        ):
            pass
    before = _held()
    with monkeypatch.context() as patched:
        patched.delattr(triton.runtime.interpreter, "_implicit_cvt")  # when much is replaced already
        with pytest.raises(RuntimeError, match="lacks what is corrected"), pg.testing.triton_interpreter():
            pass
    assert _held() == before
    monkeypatch.setitem(sys.modules, "triton", None)
    with (
        pytest.raises(ModuleNotFoundError, match=r"needs the package triton: pip install 'pairgrad\[triton\]'"),
        pg.testing.triton_interpreter(),
    ):
        pass


def test_a_variable_that_is_set_too_late_is_noticed():
    """And neither pairgrad nor its package for tests has imported triton before."""
    code = (
        "import os, sys, pairgrad.testing\n"
        "assert 'triton' not in sys.modules\n"
        "import triton\n"
        "os.environ['TRITON_INTERPRET'] = '1'\n"
        "with pairgrad.testing.triton_interpreter(): pass"
    )
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert "RuntimeError: triton was imported before TRITON_INTERPRET was set: the kernels run" in done.stderr


LIBRARY = """
import torch, triton, triton.language as tl
from triton.language.extra.libdevice import tanh

@triton.jit
def kernel(x, y, factor, N: tl.constexpr):
    i = tl.arange(0, N)
    place = i[:, None] * N + i[None, :]
    v = tl.load(x + place)
    tl.store(y + place, tl.dot(v, v) * factor.to(tl.float32) + tanh(v) * 0.0)

class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        x = x.contiguous()
        y = torch.empty_like(x)
        with torch.cuda.device(0):
            kernel[(1,)](x, y, 1.0, 2)
        return y

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g @ x.T + x.T @ g

square = Square.apply
square_inputs = torch.tensor([[0.5, -1.0], [2.0, 0.25]])
"""
TESTS = """
from library import square, square_inputs

def test_with_the_fixture(triton_interpreter, coherence):
    coherence(square, square_inputs, effort="quick", second_order=False, consequences=False)
    assert triton_interpreter[0].startswith("tf32")
"""
RECORDED = """
def test_as_the_library_has_it():
    square(square_inputs.clone().requires_grad_()).sum().backward()
"""


def test_the_command_audits_kernels(tmp_path):
    (tmp_path / "library.py").write_text(LIBRARY)
    command = [sys.executable, "-m", "pairgrad", "audit", "library.py:square", "--effort", "quick"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "tf32: products of float32 are exact here" in " ".join(done.stderr.split())


def test_the_plugin_audits_kernels(pytester, monkeypatch):
    """With --coherence the kernels of all tests run in the interpreter; without the variable, the fixture skips."""
    pytester.makepyfile(library=LIBRARY, test_it=TESTS + RECORDED)
    quick = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest")
    result = pytester.runpytest_subprocess(*quick, "--coherence", "--coherence-seconds=300")
    result.assert_outcomes(passed=2)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*Square (library.py:*): coherent*", "tf32: products of float32*"])
    monkeypatch.delenv("TRITON_INTERPRET")
    pytester.makepyfile(test_it="def test_skipped(triton_interpreter):\n    assert False")
    result = pytester.runpytest_inprocess(*quick, "-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED *TRITON_INTERPRET=1 pytest*"])

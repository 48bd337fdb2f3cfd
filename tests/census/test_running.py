"""Workers on a package made here: what is recorded, what ends a case, what a second run does again."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest
import torch
from census import run
from census.differences import compare
from census.discovery import defined
from census.package import Package
from torch.autograd import Function

DRIVER = """
    from census.package import Package
    import torch, time

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, factor):
            ctx.factor = factor
            return x.sin()

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output * ctx.factor, None

    package = Package("toy", "1.0", family="torch", group="toy", modules=["toy_module"])
    x = torch.zeros(3, dtype=torch.float64)

    @package.case(second_order=False)
    def wrong():
        return lambda x: Scaled.apply(x, 2.0), x

    @package.case()
    def hangs():
        time.sleep(600)

    @package.case()
    def greedy():
        held = bytearray(2**31)
        held[::4096] = b"x" * len(held[::4096])
        time.sleep(600)

    @package.case()
    def dies():
        import os
        os._exit(3)

    @package.case()
    def raises():
        raise ValueError("no such function")

    @package.case()
    def right():
        print("packages print what they like")
        return torch.exp, x
"""


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Package:
    """A package with a driver that is importable here and in workers."""
    (tmp_path / "toy_driver.py").write_text(textwrap.dedent(DRIVER))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    sys.modules.pop("toy_driver", None)
    import toy_driver  # pyright: ignore[reportMissingImports]

    return toy_driver.package


def test_a_case_that_breaks_its_worker_costs_itself_alone(toy: Package) -> None:
    rows = dict(run.audits(toy, Path(sys.executable), list(toy.cases), seconds=15, memory=1500))
    assert list(rows) == list(toy.cases)
    assert rows["wrong"]["audit"]["verdict"] == "incoherent"
    assert [met["name"] for met in rows["wrong"]["reached"]] == ["Scaled"]
    assert rows["wrong"]["differences"]["agrees"] is False
    assert rows["wrong"]["gradcheck"]["result"] == "fails"
    assert "ended after 15 s" in rows["hangs"]["raises"]
    assert "MB" in rows["greedy"]["raises"]
    assert "ended with 3" in rows["dies"]["raises"]
    assert "no such function" in rows["raises"]["raises"]
    assert rows["right"]["audit"]["verdict"] == "coherent"
    assert rows["right"]["differences"]["agrees"] is True
    assert rows["right"]["states"] == ["float64[3]"]


class Near(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y + y.sin()

    @staticmethod
    def backward(ctx, grad_output):
        x, y = ctx.saved_tensors
        return grad_output * y, grad_output * (x + y.cos() * (1 + 1e-4))


@pytest.mark.parametrize(
    ("fn", "shapes", "dtype", "agrees"),
    [
        (torch.sin, [(5,)], torch.float64, True),
        (torch.sin, [(5,)], torch.float32, True),
        (torch.nn.functional.cosine_similarity, [(3, 4), (3, 4)], torch.float64, True),
        (lambda x: x.clone().mul_(2).relu().sum(), [(20,)], torch.float64, True),
        (lambda x: torch.dropout(x, 0.5, True).exp(), [(20,)], torch.float64, True),  # the same random numbers in each call
        (lambda x: (x.exp(), x.detach().exp()), [(4,)], torch.float64, False),
        (Near.apply, [(5,), (5,)], torch.float64, False),
        (Near.apply, [(5,), (5,)], torch.float32, True),  # 1e-4 is not told from rounding there
        (torch.round, [(5,)], torch.float64, None),
    ],
)
def test_differences_stand_without_the_auditor(fn, shapes, dtype, agrees) -> None:
    torch.manual_seed(3)
    assert compare(fn, tuple(torch.randn(shape, dtype=dtype) for shape in shapes))["agrees"] is agrees


SOURCE = """
import functools, jax, torch
from torch.autograd import Function

class Plain(Function):
    @staticmethod
    def forward(ctx, x): return x
    @staticmethod
    def backward(ctx, g): return g

class Derived(Plain):
    @staticmethod
    def backward(ctx, g): return 2 * g

class NoBackward(Function):
    @staticmethod
    def forward(ctx, x): return x

class Unrelated:
    def backward(self): ...

def made(k):
    class Inner(torch.autograd.Function):
        @staticmethod
        def backward(ctx, g): return g
    return Inner

@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def rule(x, n): return x

other = jax.custom_jvp(lambda x: x)
torch.library.register_autograd("space::op", None)
"""


def test_discovery_lists_what_has_a_backward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "found_module"
    (folder / "tests").mkdir(parents=True)
    (folder / "__init__.py").write_text("raise ImportError('cannot be imported here')")
    (folder / "part.py").write_text(SOURCE)
    (folder / "broken.py").write_text("def (")
    (folder / "tests" / "test_part.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    rows = defined("found_module")
    assert [(row.name, row.kind) for row in rows] == [
        ("Plain", "Function"),
        ("Derived", "Function"),
        ("made.<locals>.Inner", "Function"),
        ("rule", "custom_vjp"),
        ("other", "custom_jvp"),
        ("space::op", "operator"),
    ]
    assert rows[0].where == "found_module/part.py:5"
    with pytest.raises(ModuleNotFoundError, match="no module named no_such_module"):
        defined("no_such_module")

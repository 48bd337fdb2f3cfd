"""Inputs, domains and targets of `pairgrad audit`."""

from __future__ import annotations

import json
import queue
import sys

import pytest
import torch

from tests.cli.audit.command import quick


@pytest.mark.parametrize(
    "arguments",
    [
        ("losses:ratio", "--inputs", "randn(3), y=positive(3)"),
        ("losses:ratio", "--inputs", "randn(3), positive(3), power=2"),
        ("losses:ratio", "--inputs", "0.5, 2.5"),
        ("losses:Sine", "--inputs", "scale=2.0, x=randn(3)"),
        ("losses:only", "--inputs", "randn(3), positive(3)", "--domain", "x=-1..1"),
        ("losses:ratio", "--inputs", "randn(3), fixed(positive(3))"),
        ("losses:ratio", "--domain", "x=-1..1, y=log 0.1..10"),
        ("losses:ratio", "--domain", "-1..1, log 0.1..10"),
        ("losses:ratio", "--inputs", "randn(2), positive(2)", "--domain", "y=log 0.1..10"),
        ("losses:ratio", "--inputs", "randn(2), positive(2)", "--domain", "_, log 0.1..10"),
        ("losses:Sine", "--domain", "x=-1..1"),
        ("losses:good", "--domain", "-1..1"),
        ("losses:entropy",),
        ("losses:held",),
        ("losses:good", "--inputs-from", "losses:entropy_inputs"),
        ("losses:entropy", "--inputs-from", "entropy_inputs"),
    ],
)
def test_inputs_of_all_sorts(here, arguments):
    code, out, err = quick(*arguments)
    expected = {"losses:Sine": 1, "losses:good": 2 if "--inputs-from" in arguments else 0}.get(arguments[0], 0)
    assert code == expected, out + err
    if "--domain" in arguments:
        assert "  over " in out


@pytest.mark.parametrize("constraints", ["simplex, _", "p=simplex", "input 0=simplex"])
def test_constraints(here, constraints):
    """A gradient that is right along the simplex alone."""
    (here / "tangent.py").write_text(
        "import torch\n"
        "class Tangent(torch.autograd.Function):\n"
        "    @staticmethod\n"
        "    def forward(ctx, p, w):\n"
        "        ctx.save_for_backward(p, w)\n"
        "        return (p * w).sum()\n"
        "    @staticmethod\n"
        "    def backward(ctx, g):\n"
        "        p, w = ctx.saved_tensors\n"
        "        return g * (w - w.mean()), g * p\n"
        "def entropy(p, w):\n"
        "    return Tangent.apply(p, w)\n"
        "def entropy_inputs():\n"
        "    return torch.tensor([0.25, 0.25, 0.5], dtype=torch.float64), torch.tensor([1.0, 2.0, -1.0], dtype=torch.float64)\n"
    )
    assert quick("tangent.py:entropy")[0] == 1
    assert quick("tangent.py:entropy", "--constraints", constraints)[0] == 0


def test_what_is_fixed_is_not_audited(here):
    def audited(inputs):
        report = json.loads(quick("losses:ratio", "--inputs", inputs, "--format", "json")[1])
        return {state["argument"] for state in report["states"]}

    assert audited("randn(3), positive(3)") >= {"input 0", "input 1"}
    assert "input 1" not in audited("randn(3), fixed(positive(3))")


def test_names_become_positions_for_a_function_that_takes_no_keywords(here):
    report = json.loads(quick("losses:Sine", "--inputs", "scale=2.0, x=randn(3)", "--format", "json")[1])
    assert {state["argument"] for state in report["states"]} == {"input 0"}


def test_a_file_of_inputs(here):
    torch.save({"logits": torch.linspace(-1, 1, 6, dtype=torch.float64).reshape(2, 3), "labels": torch.tensor([0, 2])}, "batch.pt")
    assert quick("losses:entropy", "--inputs", "@batch.pt")[0] == 0
    code, _, err = quick("losses:good", "--inputs", "@batch.pt")
    assert code == 2
    assert "the inputs do not fit good(x, scale=1.0): missing a required argument: 'x'" in err


@pytest.mark.parametrize(
    ("name", "content"), [("deep.json", "[" * 900 + "]" * 900), ("long.json", "[" + "9" * 200 + "]"), ("crowded.safetensors", "\x7f" * 99)]
)
def test_a_file_that_asks_for_much_is_a_mistake_and_no_fault_of_the_function(here, name, content):
    (here / name).write_text(content)
    code, _, err = quick("losses:good", "--inputs", f"@{name}")
    assert code == 2
    assert f"pairgrad audit: --inputs: {name} " in err
    assert "losses:good raised" not in err
    assert "bug in pairgrad" not in err


def test_a_module_of_a_package_with_relative_imports(here):
    package = here / "deep" / "models"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "parts.py").write_text("def twice(x):\n    return 2 * x\n")
    (package / "net.py").write_text("from .parts import twice\n\ndef f(x):\n    return twice(x).sin()\n")
    assert quick("deep/models/net.py:f", "--inputs", "randn(2)")[0] == 0


def test_a_file_with_the_name_of_a_module_in_use(here):
    (here / "queue.py").write_text("def f(x):\n    return x.sin()\n")
    assert quick("queue.py:f", "--inputs", "randn(2)")[0] == 0
    assert sys.modules["queue"] is queue

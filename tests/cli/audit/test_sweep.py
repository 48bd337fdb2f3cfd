"""`pairgrad audit --sweep` and `--cache`."""

from __future__ import annotations

import json

import pytest

from tests.cli.audit.command import audit

SWEEP = ("--sweep", "shape=[(4,), (3, 2)], scale=[..., 2.0], dtype=['float64']", "--no-second-order", "--no-consequences")


def test_a_sweep_prints_a_table_and_its_exit_code_says_whether_all_pass(here):
    code, out, _ = audit("losses.py:good", *SWEEP)
    assert code == 0
    assert out.startswith("PASS good: 4 pass of 4 configurations")
    code, out, _ = audit("losses.py:Sine", *SWEEP)
    assert code == 1
    assert "4 fail" in out
    assert "(4,)    left out  float64  fails" in out


def test_a_sweep_goes_into_files(here):
    code, out, _ = audit("losses.py:Sine", *SWEEP, "--json", "sweep.json", "--html", "pages", "--code-quality", "quality.json", "-q")
    assert code == 1
    assert out.strip() == "Sine.apply: 4 fail of 4 configurations"
    data = json.loads((here / "sweep.json").read_text())
    assert (data["schema"], data["total"], len(data["rows"])) == ("pairgrad.sweep/1", 4, 4)
    assert {path.name for path in (here / "pages").iterdir()} == {"index.html", *(f"{i}.html" for i in range(4))}
    entries = json.loads((here / "quality.json").read_text())
    assert len({entry["fingerprint"] for entry in entries}) == len(entries) >= 4


def test_a_function_makes_the_inputs_of_each_configuration(here):
    with (here / "losses.py").open("a") as file:
        file.write("\n\ndef made(size):\n    return torch.rand(size) + 1, torch.rand(size) + 1\n")
    code, out, _ = audit("losses.py:ratio", "--inputs-from", "made", "--sweep", "size=[2, 3], power=[1, 2]")
    assert code == 0, out
    assert "4 pass of 4 configurations" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--sweep", "scal=[1.0], shape=(3,)"), "scal must be an argument of fn or of inputs"),
        (("--sweep", "(3,)"), "--sweep: a sweep needs names (column 1)"),
        (("--sweep", "shape=[]"), "--sweep: expected at least one value (column 1)"),
        (("--sweep", "shape=(3,), dtype=['float']"), "expected a dtype as a text, got \"'float'\""),
        (("--sweep", "scale=[1.0]"), "needs inputs"),
        (("--sweep", "shape=(3,)", "--domain", "0..1"), "give --sweep or --domain, not both"),
        (("--sweep", "shape=(3,)", "--html", "page.html"), "--html must be a folder where there are several targets or a sweep"),
    ],
)
def test_mistakes_in_a_sweep_are_told(here, arguments, said):
    code, _, err = audit("losses.py:good", *arguments)
    assert code == 2
    assert said in err


def test_results_are_kept(here):
    arguments = ("losses.py:good", "--inputs", "randn(3)", "--effort", "quick", "--cache", "kept", "--no-transforms")
    code, out, _ = audit(*arguments)
    assert code == 0
    assert "from the cache" not in out
    code, out, _ = audit(*arguments)
    assert code == 0
    assert "from the cache" in out


def test_the_compiled_function_is_compared_on_request(here):
    with (here / "losses.py").open("a") as file:
        file.write("\n\ndef otherwise(x):\n    return x.sin() * (2.0 if torch.compiler.is_compiling() else 1.0)\n")
    arguments = ("losses.py:otherwise", "--inputs", "randn(3)", "--effort", "quick")
    assert audit(*arguments)[0] == 0
    code, out, _ = audit(*arguments, "--compiled", "aot_eager")
    assert code == 1
    assert "compiled WRONG" in out
    code, _, err = audit(*arguments, "--compiled", "none")
    assert code == 2
    assert "compiled must be True, False or a backend of torch.compile" in err

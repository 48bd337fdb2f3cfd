"""What `pairgrad audit` says of right and broken functions, by its words and its exit code."""

from __future__ import annotations

import json

import pytest

from pairgrad.coherence import Report, Verdict
from tests.cli.audit.command import audit, quick


@pytest.mark.parametrize(
    ("how", "failure", "verdict", "passed", "complete", "intent", "code"),
    [
        ("done", None, "coherent", True, True, None, 0),
        ("done", None, "straight-through-like", True, True, "straight-through", 0),
        ("done", None, "jump", False, True, None, 1),
        ("done", None, "inconclusive", False, True, None, 2),
        ("timeout", None, "incoherent", False, False, None, 1),
        ("interrupted", None, "incoherent", False, False, None, 130),
        ("interrupted", None, "inconclusive", False, False, None, 130),
        ("timeout", None, "incoherent", False, False, "gradient-cap", 2),  # whether it is declared is not known yet
        ("timeout", None, "incoherent", True, False, None, 2),
        ("died", None, "incoherent", False, False, None, 2),
        ("done", {"kind": "raised", "message": "", "way": ""}, "incoherent", False, False, None, 2),
    ],
)
def test_exit_codes(worker, how, failure, verdict, passed, complete, intent, code):
    report = Report("f", Verdict(verdict), passed, intent, 1e-12, 1e-12, 0.0, 0.0, (), (), complete=complete)
    end = [{"event": "failed", **failure}] if failure else []
    end += [{"event": "end"}] if how == "done" else [{"event": "started"}]  # when the time begins to count
    arguments = ("losses:f", "--inputs", "randn(2)", "--timeout", 0.01 if how == "timeout" else 300)
    worker([{"event": "report", "report": report.to_dict()}, *end], how)
    assert audit(*arguments)[0] == code
    worker(end, how)
    assert audit(*arguments)[0] == (130 if how == "interrupted" else 2)


@pytest.mark.parametrize(
    ("target", "inputs", "code", "verdict"),
    [
        ("losses:good", "randn(3)", 0, "coherent"),
        ("losses:bad", "randn(3)", 1, "incoherent"),
        ("losses:Sine", "randn(3)", 1, "incoherent"),
        ("losses:Sine.apply", "randn(3), 2.0", 1, "incoherent"),
        ("losses:step", "[0.3, 1.7]", 1, "straight-through-like"),
        ("losses:counts", "[0.3, 1.7]", 1, "not-reentrant"),
        ("losses:drops", "[0.3, 1.7]", 1, "incoherent"),
        ("losses:Net", "randn(3)", 0, "coherent"),
        ("losses:net", "randn(3)", 0, "coherent"),
        ("losses:Net.forward", "randn(3)", 0, "coherent"),
        ("losses.py:good", "randn(3)", 0, "coherent"),
        ("torch:sin", "randn(3)", 0, "coherent"),
        ("torch.nn.functional:softplus", "randn(3)", 0, "coherent"),
    ],
)
def test_verdicts_and_exit_codes(here, target, inputs, code, verdict):
    got, out, err = quick(target, "--inputs", inputs)
    assert got == code, out + err
    assert out.startswith("FAIL " if code else "PASS ")
    assert code == 0 or f": {verdict}" in out
    assert len(out.splitlines()) > 2


def test_a_declared_intent_passes(here):
    assert audit("losses:step", "--inputs", "[0.3, 1.7]", "--intent", "straight-through", "--effort", "quick")[0] == 0


def test_the_options_reach_the_audit(here):
    assert quick("losses:bad", "--inputs", "randn(3)", "--tolerance", 0.5)[0] == 0
    code, out, _ = quick("losses:Net", "--inputs", "randn(3)", "--dtype", "float64", "--seed", 3, "--format", "json")
    report = json.loads(out)
    assert code == 0
    assert (report["dtype"], report["seed"], report["effort"]) == ("float64", 3, "quick")
    assert json.loads(quick("losses:Net", "--inputs", "randn(3)", "--format", "json")[1])["dtype"] == "float32"  # as its parameters are
    second = [finding["kind"] for finding in json.loads(audit("losses:Sine", "--inputs", "randn(3)", "--format", "json")[1])["findings"]]
    assert "node" in second
    without = json.loads(audit("losses:Sine", "--inputs", "randn(3)", "--format", "json", "--no-consequences")[1])
    assert "node" not in [finding["kind"] for finding in without["findings"]]


def test_the_seed_gives_the_inputs(here):
    def states(seed):
        return json.loads(quick("losses:good", "--inputs", "randn(3)", "--seed", seed, "--format", "json")[1])["curves"]

    assert states(1) == states(1)
    assert states(1) != states(2)

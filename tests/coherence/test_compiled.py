"""The compiled function beside the eager one."""

from __future__ import annotations

import pytest
import torch

import pairgrad as pg
from tests.coherence.zoo.reported.transforms import compiled_otherwise

X = torch.linspace(-1.2, 1.4, 6, dtype=torch.float64)


def audited(fn, x=X, **options):
    return pg.audit(fn, x, effort="quick", consequences=False, **{"compiled": "aot_eager", **options})


def alarm(report):
    (found,) = [finding for finding in report.findings if finding.severity == "alarm"]
    return found


def test_a_function_that_compiles_to_itself_passes_and_says_in_how_many_graphs():
    report = audited(lambda x: x.sin().square())
    assert report.passed, str(report)
    assert report.checks["compiled"] == "right"
    assert any("in one graph" in finding.text for finding in report.findings), str(report)


def test_the_argument_that_differs_is_named():
    report = audited(lambda x, y: compiled_otherwise(0.5)(x) + y.sin(), {"x": X, "y": X.flip(0)})
    assert report.verdict == "transformed", str(report)
    assert alarm(report).where == "x"
    assert report.defect == pytest.approx(0.5, rel=0.05)
    assert report.checks["compiled"] == "wrong"


def test_the_graph_that_differs_and_the_break_are_named():
    """A backend of torch that makes a mistake in every relu: here in the second of two graphs."""

    def fn(x):
        y = x.exp()
        print(end="")  # breaks the graph
        return torch.relu(y) * 2

    report = audited(fn, compiled="relu_accuracy_error_TESTING_ONLY")
    assert "graph 2 of 2" in alarm(report).text, str(report)
    assert any("breaks the graph in 1 place" in finding.text and "test_compiled.py" in finding.text for finding in report.findings), str(
        report
    )


def test_the_layer_that_differs_is_named():
    assert "'eager'" in alarm(audited(compiled_otherwise(0.5))).text


def test_a_value_that_differs_is_seen():
    def fn(x):
        return x * (2.0 if torch.compiler.is_compiling() else 1.0)

    report = audited(fn)
    assert "the value" in alarm(report).text, str(report)


def test_random_numbers_and_failures_are_said():
    report = audited(torch.nn.functional.dropout)
    assert report.checks["compiled"] == "not judged"
    assert any("draws random numbers" in why for why in report.left_out)
    refused = audited(torch.relu, compiled="relu_compile_error_TESTING_ONLY")
    assert refused.checks["compiled"] == "refused"
    assert any("the compiled function" in why for why in refused.left_out)


@pytest.mark.slow
def test_inductor_agrees_in_float32():
    net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    report = audited(net, X.float(), compiled=True)
    assert report.checks["compiled"] == "right", str(report)


@pytest.mark.parametrize("value", ["indctor", 3])
def test_a_backend_that_is_not_there_is_refused(value):
    with pytest.raises((ValueError, TypeError), match="compiled must be"):
        pg.audit(torch.sin, X, compiled=value)

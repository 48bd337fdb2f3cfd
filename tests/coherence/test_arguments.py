"""Arguments of `audit` and `assert_coherent`: which are taken, what they do, and which are refused with which words."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch

import pairgrad as pg
from pairgrad.coherence import Report
from tests.coherence.functions import Round, sine_with

X = torch.tensor([0.4, -1.1], dtype=torch.float64)


def looked_at(fn: Any = torch.sin, inputs: Any = X, **options: Any) -> Report:
    return pg.audit(fn, inputs, **({"effort": "glance", "second_order": False, "consequences": False} | options))


def test_the_report_says_how_it_was_made() -> None:
    report = pg.audit(torch.sin, X)
    assert (report.name, report.effort, report.seed, report.intent, report.dtype) == ("sin", "standard", 0, None, "float64")
    report = looked_at(seed=7)
    assert (report.effort, report.seed, report.complete) == ("glance", 7, True)


def test_two_arguments_may_be_given_by_place_or_by_name_and_the_others_by_name() -> None:
    for call in (pg.audit, pg.assert_coherent):
        assert call(fn=torch.sin, inputs=X, effort="glance").name == "sin"
        with pytest.raises(TypeError, match="positional argument"):
            call(torch.sin, X, ())  # pyright: ignore[reportCallIssue]


@pytest.mark.parametrize("tolerance", [0, 0.0, 0.999])
def test_tolerances_from_zero_to_below_one_are_taken(tolerance: float) -> None:
    assert looked_at(sine_with(lambda x: 1.5).apply, tolerance=tolerance).passed == (tolerance > 0)


@pytest.mark.parametrize("tolerance", [-1e-9, -0.5, 1, 1.5, math.nan])
def test_other_tolerances_are_refused(tolerance: float) -> None:
    with pytest.raises(ValueError, match="tolerance must be a number from 0 to 1"):
        pg.audit(torch.sin, X, tolerance=tolerance)


@pytest.mark.parametrize(
    ("option", "error", "message"),
    [
        ({"dtype": "float32"}, TypeError, r"dtype must be torch\.float64, .* got 'float32'"),
        ({"module": torch.sin}, TypeError, "module must be an nn.Module that fn uses, or None, got"),
        ({"progress": 3}, TypeError, "progress must be a callable of a Progress, or None, got 3"),
        ({"intent": "because"}, ValueError, "intent must be one of"),
        ({"second_order": 2}, TypeError, "second_order must be"),
        ({"consequences": "no"}, TypeError, "consequences must be"),
        ({"seed": 1.5}, TypeError, "seed must be an integer >= 0"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_options_of_another_kind_are_refused(option: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        pg.audit(torch.sin, X, **option)


def test_a_module_that_fn_uses_has_to_have_the_dtype_already() -> None:
    layer = torch.nn.Linear(2, 1, dtype=torch.float64)
    layer.register_parameter("count", torch.nn.Parameter(torch.tensor(3), requires_grad=False))
    with pytest.raises(ValueError, match=r"dtype must be that of the parameters of module, got torch\.float32"):
        pg.audit(lambda x: layer(x), X, module=layer, dtype=torch.float32)
    assert looked_at(lambda x: layer(x), X.float(), module=layer, dtype=torch.float64).dtype == "float64"


def test_a_module_itself_is_converted_as_a_copy() -> None:
    layer = torch.nn.Linear(2, 1, dtype=torch.float64)
    weight = layer.weight
    assert looked_at(layer, dtype=torch.float32).dtype == "float32"
    assert layer.weight is weight
    assert weight.dtype == torch.float64


def test_errors_of_repeated_calls_get_a_note() -> None:
    calls = itertools.count()

    def fn(x: torch.Tensor) -> torch.Tensor:
        if next(calls) > 1:
            raise KeyError("third call")
        return x * 2

    with pytest.raises(KeyError) as caught:
        pg.audit(fn, X)
    assert caught.value.__notes__ == ["raised by fn or its backward, by call 3 of an audit, while repeating calls"]


def test_progress_does_not_show_the_audit_behind_it() -> None:
    shown: list[str] = []
    looked_at(progress=lambda now: shown.append(repr(now)))
    assert "audit" not in shown[0]
    assert "stage='repeating calls', step=0, steps=4" in shown[0]


def leaps(x: torch.Tensor) -> torch.Tensor:
    return x.sin() + 0.1 * (x > 1)


@pytest.mark.parametrize("allow", [(), ["jump"], frozenset({"jump", "inconclusive"})], ids=["none", "list", "set"])
def test_verdicts_that_are_allowed_pass(allow: Any) -> None:
    options = {"effort": "glance", "second_order": False, "consequences": False, "allow": allow}
    assert pg.assert_coherent(torch.sin, X, **options).verdict == "coherent"
    with pytest.raises(AssertionError, match=r"is 1\.01 x the true one\n(.*\n)*.*What to do"):
        pg.assert_coherent(sine_with(lambda x: 1.01).apply, X, **options)
    if allow:
        assert pg.assert_coherent(leaps, domain=(0.3, 1.8), **options).verdict == "jump"
    else:
        with pytest.raises(AssertionError, match="leaps: jump"):
            pg.assert_coherent(leaps, domain=(0.3, 1.8), **options)


def test_a_single_word_is_not_a_sequence_of_verdicts() -> None:
    with pytest.raises(TypeError, match=r"allow must be a sequence of verdicts, such as \('jump',\), got 'jump'"):
        pg.assert_coherent(Round.apply, X, allow="jump")

"""Arguments of `audit`: which are taken, in which form they reach the audit, and which are refused."""

from __future__ import annotations

import importlib
import math
from typing import Any

import pytest
import torch

import pairgrad as pg
from pairgrad.coherence import Box, LogRange, Report, Verdict
from pairgrad.coherence.audit import _inputs_of
from tests.coherence.functions import Round

module = importlib.import_module("pairgrad.coherence.audit")  # the package has a function of this name
X = torch.tensor([0.4, -1.1], dtype=torch.float64)


Declared = pg.intended("straight-through")(type("Declared", (Round,), {}))


class Reached(Exception):
    pass


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What an audit would be made of; it ends there."""
    made: list[tuple[Any, ...]] = []

    def stop(*arguments: Any) -> None:
        made.append(arguments)
        raise Reached

    monkeypatch.setattr(module, "_Audit", stop)
    return made


def _taken(taken: list[tuple[Any, ...]], fn: Any = torch.sin, inputs: Any = X, **options: Any) -> tuple[Any, ...]:
    with pytest.raises(Reached):
        pg.audit(fn, inputs, **options)
    return taken.pop()


def test_defaults(taken: list[tuple[Any, ...]]) -> None:
    subject, effort, seed, intent, tolerance, _, progress = _taken(taken)
    assert (subject.name, effort, seed, intent, tolerance, progress) == ("sin", "standard", 0, None, 0.0, None)
    assert _taken(taken, seed=0)[2] == 0


def test_two_arguments_may_be_given_by_place_or_by_name_and_the_others_by_name(taken: list[tuple[Any, ...]]) -> None:
    for call in (pg.audit, pg.assert_coherent):
        with pytest.raises(Reached):
            call(fn=torch.sin, inputs=X)
        with pytest.raises(TypeError, match="positional argument"):
            call(torch.sin, X, ())
    assert taken.pop()[0].name == "sin"


def test_an_intent_given_goes_before_the_declared_one(taken: list[tuple[Any, ...]]) -> None:
    assert _taken(taken, Declared.apply)[3] == "straight-through"
    assert _taken(taken, Declared.apply, intent="gradient-cap")[3] == "gradient-cap"
    assert _taken(taken, intent="gradient-cap")[3] == "gradient-cap"


@pytest.mark.parametrize("tolerance", [0, 0.0, 0.999])
def test_tolerances_from_zero_to_below_one_are_taken(taken: list[tuple[Any, ...]], tolerance: float) -> None:
    assert _taken(taken, tolerance=tolerance)[4] == tolerance


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
        ({"seed": -1}, ValueError, "seed must be an integer >= 0"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_options_of_another_kind_are_refused(option: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        pg.audit(torch.sin, X, **option)


def test_a_module_that_fn_uses_has_to_have_the_dtype_already(taken: list[tuple[Any, ...]]) -> None:
    layer = torch.nn.Linear(2, 1, dtype=torch.float64)
    layer.register_parameter("count", torch.nn.Parameter(torch.tensor(3), requires_grad=False))
    with pytest.raises(ValueError, match=r"dtype must be that of the parameters of module, got torch\.float32"):
        pg.audit(lambda x: layer(x), X, module=layer, dtype=torch.float32)
    assert _taken(taken, lambda x: layer(x), module=layer, dtype=torch.float64)[0].tensors[0].dtype == torch.float64
    assert _taken(taken, lambda x: layer(x), module=layer)[0].module is layer


def test_a_module_itself_is_converted_as_a_copy(taken: list[tuple[Any, ...]]) -> None:
    layer = torch.nn.Linear(2, 1, dtype=torch.float64)
    assert _taken(taken, layer)[0].fn is layer
    copied = _taken(taken, layer, dtype=torch.float32)[0].fn
    assert copied is not layer
    assert (copied.weight.dtype, layer.weight.dtype) == (torch.float32, torch.float64)


def test_a_domain_gives_the_inputs_that_are_left_out() -> None:
    for domain, inputs in (
        (Box(0, 3), (1.5,)),
        ((0, 3), (1.5,)),
        ([(0, 3), LogRange(1, 4)], (1.5, 2.0)),
        (((0, 3), (4, 6)), (1.5, 5.0)),
    ):
        found = _inputs_of(domain, None)
        assert tuple(tensor.item() for tensor in found) == inputs
        assert {tensor.dtype for tensor in found} == {torch.float64}
    found = _inputs_of({"x": (0, 3), "y": (2, 4)}, torch.float32)
    assert {key: (tensor.item(), tensor.dtype) for key, tensor in found.items()} == {"x": (1.5, torch.float32), "y": (3.0, torch.float32)}
    with pytest.raises(ValueError, match="inputs must be given where domain leaves an argument out"):
        _inputs_of([(0, 1), None], None)


def test_verdicts_that_are_allowed_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    reports = {Verdict.COHERENT: True, Verdict.JUMP: False, Verdict.INCOHERENT: False}
    for verdict, passed in reports.items():
        made = Report("n", verdict, passed, None, 0.0, 0.0, 0.5, 0.0, (), ())
        monkeypatch.setattr(module, "audit", lambda *_, made=made, **__: made)
        for allow in ((), ("jump",), ["jump"], {"jump"}, frozenset({"jump", "inconclusive"})):
            if passed or verdict.value in allow:
                assert pg.assert_coherent(torch.sin, X, allow=allow) is made
            else:
                with pytest.raises(AssertionError, match=f"n: {verdict.value}"):
                    pg.assert_coherent(torch.sin, X, allow=allow)
    with pytest.raises(TypeError, match=r"allow must be a sequence of verdicts, such as \('jump',\), got 'jump'"):
        pg.assert_coherent(torch.sin, X, allow="jump")

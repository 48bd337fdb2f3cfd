"""Results that are kept in a folder: what is taken from there, and what is audited again."""

from __future__ import annotations

import importlib
import re
import sys
import textwrap

import pytest
import torch

import pairgrad as pg

X = torch.linspace(-1.2, 1.4, 6, dtype=torch.float64)
MODULE = """
import torch
from cached_helpers import halved
import cached_helpers

SCALE = 2.0

class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad_output):
        return slope(ctx.saved_tensors[0]) * grad_output

def slope(x):
    return SCALE * x

def composed(x):
    return halved(Square.apply(x))

def unrelated(x):
    return x

def closed(factor):
    def inner(x):
        return factor * Square.apply(x)
    return inner
"""
HELPERS = """
def halved(x):
    return x / 2

def other(x):
    return x
"""


_COUNTED = []


def _count(one):
    _COUNTED.append(one)


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A module of a user's, and a way to edit it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def written(module=MODULE, helpers=HELPERS):
        (tmp_path / "cached_module.py").write_text(textwrap.dedent(module))
        (tmp_path / "cached_helpers.py").write_text(textwrap.dedent(helpers))
        for name in ("cached_module", "cached_helpers"):
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        return importlib.import_module("cached_module")

    yield written
    for name in ("cached_module", "cached_helpers"):
        sys.modules.pop(name, None)


@pytest.fixture
def audited(tmp_path):
    return lambda fn, x=X, **options: pg.audit(fn, x, effort="quick", cache=tmp_path / "kept", **options)


def test_a_result_is_kept(project, audited):
    first, again = audited(project().Square.apply), audited(project().Square.apply)
    assert (first.cached, again.cached) == (False, True)
    assert "from the cache" in str(again)
    assert again.to_dict() | {"cached": False} == first.to_dict()


def test_a_kept_result_costs_no_call(audited):
    def sine(x, count=_count):
        count(1)
        return x.sin()

    _COUNTED.clear()
    audited(sine)
    before = len(_COUNTED)
    assert audited(sine).cached
    assert len(_COUNTED) == before > 0


def test_a_method_of_something_that_changes_is_another_one_every_time(audited):
    def sine(x, count=[].append):
        count(1)
        return x.sin()

    assert not audited(sine).cached
    assert not audited(sine).cached


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("SCALE = 2.0", "SCALE = 2.5"),
        ("return SCALE * x", "return SCALE * x * 1.5"),
        ("ctx.save_for_backward(x)\n        return x * x", "ctx.save_for_backward(x)\n        return x * x * 1.0"),
        ("from cached_helpers import halved", "from cached_helpers import halved as other, halved"),
    ],
)
def test_what_runs_is_audited_again_after_an_edit(project, audited, old, new):
    assert not audited(project().composed).cached
    assert audited(project().composed).cached
    assert old in MODULE
    assert not audited(project(MODULE.replace(old, new)).composed).cached


CALLED_BY_NAME = """
import sys
import torch

def _sine(x):
    return 1.0 * x.sin()

def called(x):
    return getattr(sys.modules[__name__], "_si" + "ne")(x)
"""
CONSTANT_OF_A_CLASS = """
class Settings:
    SCALE = 1.0

def scaled(x):
    return Settings.SCALE * x.sin()
"""
CONSTANT_OF_ANOTHER_FILE = """
import cached_helpers as helpers
from cached_helpers import Settings

def scaled(x):
    return helpers.SCALE * Settings.SCALE * x.sin()
"""
SETTINGS = """
SCALE = 1.0

class Settings:
    SCALE = 3.0
"""


@pytest.mark.parametrize(
    ("module", "helpers", "name", "old", "new"),
    [
        (CALLED_BY_NAME, "", "called", "1.0", "1.5"),
        (CONSTANT_OF_A_CLASS, "", "scaled", "1.0", "1.5"),
        (CONSTANT_OF_ANOTHER_FILE, SETTINGS, "scaled", "1.0", "1.5"),
        (CONSTANT_OF_ANOTHER_FILE, SETTINGS, "scaled", "3.0", "1.5"),
    ],
)
def test_what_is_called_by_a_text_and_what_is_only_named_count_too(project, audited, module, helpers, name, old, new):
    assert not audited(getattr(project(module, helpers), name)).cached
    assert audited(getattr(project(module, helpers), name)).cached
    assert not audited(getattr(project(module.replace(old, new), helpers.replace(old, new)), name)).cached


def test_the_verdict_after_an_edit_is_the_new_one(project, audited):
    assert audited(project().composed).passed
    assert audited(project(MODULE.replace("SCALE = 2.0", "SCALE = 2.5")).composed).verdict == "incoherent"
    assert audited(project(helpers=HELPERS.replace("x / 2", "(x / 2).detach() + 0 * x")).composed).verdict == "incoherent"


def test_comments_and_other_functions_are_no_reason(project, audited):
    assert not audited(project().Square.apply).cached
    edited = "# a comment\n" + MODULE.replace("def unrelated(x):\n    return x", "def unrelated(x):\n\n    return 3 * x")
    assert audited(project(edited).Square.apply).cached


def test_lines_of_a_failing_report_are_those_of_today(project, audited):
    wrong = MODULE.replace("SCALE = 2.0", "SCALE = 2.5")
    first = audited(project(wrong).Square.apply)
    assert audited(project(wrong).Square.apply).cached
    moved = audited(project("\n\n" + wrong).Square.apply)
    assert not moved.cached
    assert first.place != moved.place


@pytest.mark.parametrize("changed", ["inputs", "layout", "dtype", "options", "closure", "mark"])
def test_other_arguments_settings_and_closures_are_other_audits(project, audited, changed):
    module = project()
    audited(module.closed(2.0), X.clone())
    assert audited(module.closed(2.0), X.clone()).cached
    match changed:
        case "inputs":
            other = audited(module.closed(2.0), X + 1e-9)
        case "layout":
            other = audited(module.closed(2.0), torch.stack([X, X], 1)[:, 0])
        case "dtype":
            other = audited(module.closed(2.0), X.clone(), dtype=torch.float32)
        case "options":
            other = audited(module.closed(2.0), X.clone(), tolerance=0.1)
        case "mark":
            other = audited(module.closed(2.0), X.clone().requires_grad_())
        case _:
            other = audited(module.closed(3.0), X.clone())
    assert not other.cached


def test_a_module_is_another_one_with_other_weights_or_another_mode(audited):
    net = torch.nn.Sequential(torch.nn.Linear(6, 3), torch.nn.Dropout(0.1)).double().eval()
    assert not audited(net).cached
    assert audited(net).cached
    assert not audited(net.train()).cached
    net.eval()
    with torch.no_grad():
        net[0].bias += 1
    assert not audited(net).cached


def test_what_cannot_be_described_is_audited_every_time(audited):
    class Strange:
        def __call__(self, x):
            return x.sin()

    strange = Strange()
    assert not audited(strange).cached
    assert not audited(strange).cached


def test_what_is_typed_into_a_shell_is_audited_every_time(audited):
    space = {}
    exec("def helper(x):\n    return x.sin()\n\ndef typed(x):\n    return helper(x)", space)
    assert not audited(space["typed"]).cached
    assert not audited(space["typed"]).cached


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:100],
        lambda text: "[" * 5000,
        lambda text: text.replace('"ran"', '"ran": [], "x"', 1),
        lambda text: text.replace('"false_alarm_rate": ', '"false_alarm_rate": "x", "was": ', 1),
        lambda text: re.sub('"limit": [^,]*,', '"limit": "x",', text, count=1),  # what only shows when the report is printed
    ],
)
def test_a_damaged_result_is_made_again(damage, project, audited, tmp_path):
    audited(project().Square.apply)
    (kept,) = (tmp_path / "kept").iterdir()
    damaged = damage(kept.read_text())
    assert damaged != kept.read_text()
    kept.write_text(damaged)
    assert not audited(project().Square.apply).cached
    assert audited(project().Square.apply).cached


def test_a_folder_that_cannot_be_written_costs_a_warning_and_no_result(project, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.warns(UserWarning, match="the result of an audit cannot be kept in .*file: "):
        assert pg.audit(project().composed, X, effort="quick", cache=tmp_path / "file").passed


def test_an_audit_that_time_cut_short_is_not_kept(project, audited):
    fn = project().composed
    assert audited(fn, seconds=1e-6).left_out
    assert not audited(fn).cached


def test_the_environment_names_the_folder_and_false_overrules_it(project, tmp_path, monkeypatch):
    monkeypatch.setenv("PAIRGRAD_AUDIT_CACHE", str(tmp_path / "named"))
    module = project()
    pg.audit(module.composed, X, effort="quick")
    assert pg.audit(module.composed, X, effort="quick").cached
    assert not pg.audit(module.composed, X, effort="quick", cache=False).cached
    with pytest.raises(TypeError, match="cache must be a folder, False, or None"):
        pg.audit(module.composed, X, cache=True)


def test_sweeps_take_it_too(project, tmp_path):
    fn = project().composed
    for _ in range(2):
        report = pg.sweep(fn, shape=[(3,), (2, 3)], dtype=torch.float64, cache=tmp_path / "kept")
    assert all(row.report.cached for row in report.rows)

"""The inheritable tests: each fails for a function broken in its way, and only there; and what a user sees of them."""

import functools
import unittest
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from pairgrad.testing import Case, CoherenceTests
from tests.testing import broken

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
CLASSES = {name: cls for name, cls in vars(broken).items() if name.startswith("Test")}
TESTS = {name for name in dir(CoherenceTests) if name.startswith("test_")}


def cases_of(cls, name):
    """The cases that pytest is told to run a test for."""
    collected = []
    metafunc = SimpleNamespace(
        fixturenames=["case"], function=getattr(cls, name), parametrize=lambda argument, cases, ids: collected.extend(cases)
    )
    cls().pytest_generate_tests(metafunc)
    return collected


@functools.cache
def outcomes(cls):
    """{name of a test: the outcomes of its cases}, each "" or the message of the failure; without those that are skipped."""
    found = {}
    for name in TESTS:
        for case in cases_of(cls, name):
            try:
                getattr(cls(), name)(case)
            except unittest.SkipTest:
                continue
            except AssertionError as error:
                found.setdefault(name, []).append(str(error))
            else:
                found.setdefault(name, []).append("")
    return found


@pytest.mark.parametrize("name", CLASSES)
def test_each_is_seen_by_the_test_for_it_alone(name):
    cls = CLASSES[name]
    found = outcomes(cls)
    failed = {test for test, messages in found.items() if any(messages)}
    assert failed == cls.should_fail, {test: messages for test, messages in found.items() if any(messages)}
    assert cls.should_fail <= set(found)
    for test in failed:
        message = next(filter(None, found[test]))
        assert "What to do" in message, message


def test_every_test_is_seen_to_fail_and_to_pass():
    assert set().union(*(cls.should_fail for cls in CLASSES.values())) == TESTS
    # `test_broadcast` is not declared for the right function
    assert {name for name, messages in outcomes(broken.TestRight).items() if not any(messages)} == TESTS - {"test_broadcast"}


def test_what_does_not_apply_is_skipped_with_the_reason():
    (case,) = cases_of(broken.TestClassic, "test_vmap")
    with pytest.raises(unittest.SkipTest, match="its forward takes ctx, so that torch"):
        broken.TestClassic().test_vmap(case)


USER_FILE = """
import pytest, torch
from pairgrad.testing import CoherenceTests
from tests.testing.broken import Capped

class Base(CoherenceTests):
    left_out = {"test_vmap": "no rule yet", "test_compiled": "takes long"}

class TestMine(Base):
    function = Capped.apply
    states = {"small": torch.tensor([0.5]), "big": torch.tensor([3.0])}

    def test_own(self, case):
        assert case.inputs.numel() == 1

    @pytest.mark.parametrize("n", [1, 2])
    def test_without_case(self, n):
        pass
"""


def test_under_pytest(pytester, monkeypatch):
    """Names of cases, reasons for skips, and the report with what to do."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makepyfile(test_mine=USER_FILE)
    result = pytester.runpytest_subprocess("-rs", "-v", "-p", "no:cacheprovider")
    shown = result.stdout.str()
    for case in ("small-float64", "small-float32", "big-float64", "big-float32"):
        assert f"TestMine::test_own[{case}] PASSED" in shown
        assert f"TestMine::test_coherent[{case}] {'PASSED' if case.startswith('small') else 'FAILED'}" in shown
    assert "TestMine::test_vmap[skipped-float64] SKIPPED" in shown
    assert "test_vmap is left out: no rule yet" in shown
    assert "`domain` is not declared" in shown
    assert "TestMine::test_without_case[1] PASSED" in shown
    assert "Capped.apply: incoherent" in shown
    assert "What to do:" in shown
    assert "Base::" not in shown
    assert "CoherenceTests::" not in shown
    outcomes = result.parseoutcomes()
    # Eight inherited tests and one of its own in four cases, and two without; two are skipped where the first derivative is off, six for their reasons.
    assert (outcomes["failed"], outcomes["passed"], outcomes["skipped"]) == (2, 4 * 9 + 2 - 2 - 2, 2 + 6)


def declared(**attributes):
    return type("TestDeclared", (CoherenceTests,), {"inputs": broken.X, "dtypes": (torch.float64,), **attributes})


@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 3, 4)])
def test_layouts_change_the_strides_alone(shape):
    x, seen = torch.rand(shape, dtype=torch.float64), []

    def function(x):
        seen.append((x.stride(), x.detach().clone()))
        return x.sinh()

    cls = declared(function=function, inputs=x)
    cls().test_noncontiguous(*cls().cases())
    strides = {stride for stride, value in seen if torch.equal(value, x)}
    assert x.stride() in strides
    assert len(strides) == {0: 1, 1: 2, 2: 4, 3: 5}[len(shape)]  # as it is, with gaps, transposed and sliced, and by columns


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_not_a_number_is_no_rounding(bad):
    """Where a function gives NaN or infinity for a number, or a number for them, it is off, and the place is named."""

    def spoilt(x):
        return x.sinh() + torch.tensor([0, bad, 0], dtype=torch.float64)

    x = torch.tensor([0.5, 1.0, 1.5], dtype=torch.float64)
    for function, reference in ((spoilt, torch.sinh), (torch.sinh, spoilt)):
        cls = declared(inputs=x, function=function, reference=reference, accuracy=1e-3)
        with pytest.raises(AssertionError, match=r"the value is \S+ instead of \S+ at element \[1\]:.* off at 1 of 3 elements"):
            cls().test_faithful(*cls().cases())
    cls = declared(inputs=x, function=spoilt, reference=spoilt, accuracy=1e-3)
    cls().test_faithful(*cls().cases())
    cls = declared(inputs=x, function=lambda x: torch.sinh(x) if x.is_contiguous() else spoilt(x))
    with pytest.raises(AssertionError, match="for a strided input of the same numbers, the result is another, off by inf"):
        cls().test_noncontiguous(*cls().cases())
    cls = declared(inputs=x, function=spoilt)
    cls().test_noncontiguous(*cls().cases())


def test_another_shape_is_named():
    cls = declared(function=lambda x: torch.sinh(x) if x.is_contiguous() else torch.sinh(x)[:1])
    with pytest.raises(AssertionError, match=r"raises for a strided input of the same numbers: .* of shape \(2, 3\) in the first call"):
        cls().test_noncontiguous(*cls().cases())


def test_a_function_is_taken_as_it_is_and_a_method_as_a_method():
    def method(self, x):
        return self.factor * x.sinh()

    ways = {
        "function": torch.sinh,
        "lambda": lambda x: x.sinh(),
        "static": staticmethod(lambda x: x.sinh()),
        "method": method,
        "property": property(lambda self: torch.sinh),
        "module": torch.nn.Tanh(),
    }
    right = {"method": lambda x: 2 * torch.sinh(x), "module": torch.tanh}
    for way, function in ways.items():
        cls = declared(function=function, factor=2.0, reference=right.get(way, torch.sinh), accuracy=1e-12)
        cls().test_faithful(*cls().cases())
        cls = declared(function=function, factor=2.0, reference=lambda x: 1.5 * torch.sinh(x), accuracy=1e-12)
        with pytest.raises(AssertionError, match="the value is"):
            cls().test_faithful(*cls().cases())


def test_values_may_be_computed_by_methods():
    cls = declared(function=torch.sinh, inputs=None, states=lambda self: {"a": broken.X}, dtypes=lambda self: (torch.float32,))
    assert list(map(str, cls().cases())) == ["a-float32"]


def test_a_module_is_tested_in_each_dtype_and_stays_as_it_is():
    net = torch.nn.Linear(3, 2)
    cls = declared(function=net, dtypes=(torch.float32, torch.float64), left_out={"test_compiled": "takes long"})
    cls.check()
    assert net.weight.dtype == torch.float32


def test_keywords_and_what_is_not_differentiated():
    class Scaled(CoherenceTests):
        inputs = {"x": broken.X, "factor": 3, "mask": torch.tensor([True, False, True])}
        left_out = {"test_compiled": "takes long"}
        batched = ("x",)

        def function(self, x, factor, mask):
            return torch.where(mask, factor * x.sinh(), x)

    Scaled.check()


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"left_out": {"test_vamp": "misspelt"}}, "test_vmap"),
        ({"left_out": {"test_vmap": ""}}, "must say why"),
        ({"left_out": {"test_vmap": True}}, "must say why"),
    ],
)
def test_leaving_a_test_out_needs_its_name_and_a_reason(attributes, message):
    with pytest.raises((TypeError, ValueError), match=message):
        declared(function=torch.sinh, **attributes)


@pytest.mark.parametrize("where", ["inputs", "states", "domain"])
def test_a_class_without_a_function_is_refused(where):
    """All of its tests would be skipped."""
    attributes = {"fn": broken.Capped.apply, where: {"a": broken.X}}
    with pytest.raises(TypeError, match=f"TestTypo declares `{where}`, but not `function`"):
        type("TestTypo", (CoherenceTests,), attributes)
    base = type("Shared", (CoherenceTests,), attributes)  # to be inherited from
    with pytest.raises(TypeError, match="Shared must declare `function`"):
        base.check()
    with pytest.raises(TypeError, match="TestTypo declares"):
        type("TestTypo", (base,), {})
    type("TestRight", (base,), {"function": broken.Capped.apply})
    type("TestBase", (CoherenceTests,), {"nan": "value"})
    with pytest.raises(TypeError, match="CoherenceTests must declare `function`"):
        CoherenceTests.check()


def test_a_class_without_a_function_is_refused_when_collected(pytester, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makeini("[pytest]\npython_classes = Check*\n")
    text = "import torch\nfrom pairgrad.testing import CoherenceTests\n\nclass CheckMine(CoherenceTests):\n    fn = torch.sinh\n    inputs = torch.ones(2)\n"
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", pytester.makepyfile(test_typo=text))
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["*CheckMine declares `inputs`, but not `function`*"])


@pytest.mark.parametrize(
    ("name", "value", "meant"),
    [
        ("dtype", (torch.float32,), "dtypes"),
        ("domian", (-1, 1), "domain"),
        ("tolerence", 0.1, "tolerance"),
        ("allowed", ("jump",), "allow"),
        ("refrence", torch.sinh, "reference"),
        ("refrence", lambda x: x, "reference"),
        ("batch", (0,), "batched"),
    ],
)
def test_an_attribute_that_is_misspelt_is_refused(name, value, meant):
    with pytest.raises(TypeError, match=f"TestDeclared.{name} is nothing that the tests read: did you mean `{meant}`"):
        declared(function=torch.sinh, **{name: value})


def test_attributes_and_methods_of_the_users_own():
    def batch(self):
        return 3

    class Domains:
        pass

    declared(function=torch.sinh, model=3, mode="a", dim=2, scale=1.0, _dtype=torch.float32, batch=batch, Domains=Domains)


def test_a_failure_says_what_to_do_and_not_how_audits_are_made():
    messages = list(filter(None, outcomes(broken.TestFactor)["test_coherent"]))
    assert messages
    for message in messages:
        assert "What to do:" in " ".join(message.split())
        assert "How it was found" not in message
        assert " ".join(message.split()).count("the supplied gradient is off by") == 1


@pytest.mark.parametrize(
    ("attributes", "test", "message"),
    [
        ({"inputs": None}, "test_coherent", "must declare `inputs`"),
        ({"states": []}, "test_coherent", "dict of inputs by name"),
        ({"inputs": 3.0}, "test_vmap", "inputs must be a tensor"),
        ({"second_order": True}, "test_second_derivatives", "second_order must be one of"),
        ({"nan": True}, "test_nan", "nan must be one of"),
        ({"reference": torch.sinh}, "test_faithful", "must declare `accuracy`"),
        ({"batched": ("y",)}, "test_empty_batch", "input 0"),
        ({"broadcasts": [((2,), (2,))]}, "test_broadcast", "one shape for each of input 0"),
    ],
)
def test_what_is_missing_or_wrong_is_named(attributes, test, message):
    cls = declared(function=torch.sinh, **attributes)
    with pytest.raises((TypeError, ValueError), match=message):
        getattr(cls(), test)(cases_of(cls, test)[0])


def test_random_functions_draw_the_same_in_every_call():
    left_out = {"test_compiled": "takes long", "test_vmap": "draws differently"}
    cls = declared(function=lambda x: torch.nn.functional.dropout(x, 0.5) * x, inputs=broken.X[0], left_out=left_out)
    state = torch.get_rng_state()
    cls.check()
    assert torch.equal(state, torch.get_rng_state())

    drawn = set()
    cls = declared(function=lambda x: drawn.add(torch.rand(()).item()) or x.sinh())
    for seed in (1, 2):  # a failure can be reproduced
        torch.manual_seed(seed)
        cls().test_noncontiguous(*cls().cases())
    assert len(drawn) == 1


def test_the_reference_gets_the_numbers_that_the_function_got():
    """0.1 in float32 is not 0.1: the reference is asked about the former."""
    cls = declared(
        function=lambda x: 1.0 * x,
        reference=lambda x: x,
        inputs=torch.tensor([0.1], dtype=torch.float64),
        dtypes=(torch.float32,),
        accuracy=1e-12,
    )
    cls().test_faithful(*cls().cases())


def test_only_one_case_is_compiled_and_earlier_ones_do_not_count():
    """The functions below share their code; without a reset, torch.compile would take the second one for a recompilation."""
    with torch._dynamo.config.patch(recompile_limit=1):
        for factor in (2.0, 3.0, 4.0):
            cls = declared(function=lambda x, factor=factor: (factor * x).sinh(), dtypes=(torch.float64, torch.float32))
            (case,) = cases_of(cls, "test_compiled")
            cls().test_compiled(case)


def test_check_gathers_everything_that_fails():
    cls = declared(function=broken.Once.apply, nan="value", second_order="right", left_out={"test_compiled": "takes long"})
    with pytest.raises(ExceptionGroup, match="2 tests fail") as caught:
        cls.check()
    notes = [note for error in caught.value.exceptions for note in error.__notes__]
    assert notes == ["in TestDeclared.test_second_derivatives, float64", "in TestDeclared.test_vmap, float64"]


def test_one_audit_serves_all_tests_of_a_case():
    calls = 0

    def counted(x):
        nonlocal calls
        calls += 1
        return x.sinh()

    cls = declared(function=counted)
    (case,) = cls().cases()
    cls().test_coherent(case)
    first = calls
    for name in ("test_second_derivatives", "test_linear_in_grad_output", "test_repeatable", "test_edits_nothing"):
        getattr(cls(), name)(case)
    assert calls == first > 0
    declared(function=counted)().test_coherent(case)
    assert calls == 2 * first  # another class has an audit of its own


def test_cases_compare_by_state_and_dtype():
    assert Case("a", torch.float64, broken.X) == Case("a", torch.float64, None)
    assert str(Case("", torch.bfloat16)) == "bfloat16"

"""The inheritable tests: what a function with a backward of its own has to stand."""

from __future__ import annotations

import difflib
import functools
import inspect
import types
import unittest
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import torch

from pairgrad.coherence.audit import audit
from pairgrad.coherence.finding import ADVICE
from pairgrad.coherence.judge.verdict import Verdict
from pairgrad.coherence.report.report import Report
from pairgrad.coherence.subject.subject import supplied
from pairgrad.ground._torch_private import pytree
from pairgrad.ground.checks import describe, one_of
from pairgrad.testing.calls import Call, Result, cotangents, departure, seeded
from pairgrad.testing.failures import Case, compare, explained, fail, wrong

_OVER_DOMAIN = "the domain"
_SECOND = ("right", "refused", "right or refused")
_NAN = ("value", "value and gradient")
_ALIKE = 0.82  # names nearer than that are taken for each other: "dtype", "allowed", "domian"; "mode" and "model" are not "module"
# Findings of an audit that have a test of their own: they do not fail `test_coherent` too.
_CLAIMED = {
    "test_linear_in_grad_output": {"not-linear", "rounds", "undefined"},
    "test_noncontiguous": {"layout"},
    "test_repeatable": {"not-reentrant", "nondeterministic"},
    "test_edits_nothing": {"edits"},
    "test_second_derivatives": {"second-order"},
    "test_vmap": {"vmap"},
}


def _inherited(needs: str = "function") -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Marks a test of the class; it is skipped, with the reason, if it is left out or if what it needs is not declared."""

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(self: CoherenceTests, case: Case) -> None:
            __tracebackhide__ = True
            reason = self._why_not(test.__name__)
            if reason:
                raise unittest.SkipTest(reason)
            test(self, case)

        run.needs = needs  # type: ignore[attr-defined]
        return run

    return decorate


class CoherenceTests:
    """Tests for a function with a backward of its own: inherit, say what to test, and pytest finds them.

    Every attribute may be overridden by an attribute or, where a value has to be computed, by a method of the same name without arguments. A function that
    is assigned to `function` or `reference` is taken as it is; one whose first argument is called `self` is a method.

    A class that says where to look (`inputs`, `states` or `domain`) but has no `function` is refused when it is defined, if its name begins with `Test`, or
    else when pytest collects it; under another name it may be there to be inherited from. An attribute whose name is almost one of those below is refused too.

    Attributes:
        function: the callable under test: a function, `Function.apply`, an `nn.Module`, a custom op.
        inputs: its arguments, as [`audit`][pairgrad.coherence.audit.audit] takes them: one state.
        states: several of them, `{name: inputs}`, instead of `inputs`.
        dtypes: the dtypes it is tested in; floating-point arguments are converted.
        domain: where else to look, as for `audit`; without it, `test_coherent_over_domain` is skipped.
        intent: what the function is declared as, if that is not done at its definition with [`intended`][pairgrad.intended].
        tolerance: a defect below this, over the size of the gradient, passes; a number, or one for each dtype.
        limit: at the inputs, the audit must be able to see defects down to this; None: whatever it can see; a number, or one for each dtype.
        allow: further verdicts that pass, such as "jump".
        expected: a verdict that the function is known to get, such as "incoherent": any other one fails. `expects` decides case by case.
        constraints, effort, seconds, seed, module: as for `audit`.
        second_order: "right", "refused" (they raise), or "right or refused".
        deterministic: whether two calls have to give equal bits.
        reference: another implementation that is exact, or more accurate; called with the same arguments in float64.
        accuracy: how far from the reference value and gradient may be, relative to each element; a number, a pair (relative, absolute), or one for each dtype.
        batched: the positions or keywords of the arguments that have a batch dimension in front, for `test_empty_batch`; None: the only tensor there is.
        broadcasts: combinations of shapes, one for each differentiated argument, that broadcast against each other.
        nan: what a NaN in an argument must reach: "value" or "value and gradient"; None: not tested.
        compile_backend: of torch.compile; the default follows and differentiates the function, but generates no code.
        left_out: `{name of a test: why}`: tests that are skipped, with the reason.

    Examples:
        >>> import torch
        >>> from pairgrad.testing import CoherenceTests
        >>> class TestSinc(CoherenceTests):
        ...     function = torch.sinc
        ...     inputs = torch.tensor([0.3, -2.5, 7.0])
        ...     domain = (-9, 9)
        ...     nan = "value and gradient"
        >>> TestSinc.check()  # without pytest
    """

    function: Any = None
    inputs: Any = None
    states: Any = None
    dtypes: Any = (torch.float64, torch.float32)
    domain: Any = None
    intent: Any = None
    tolerance: Any = 0.0
    limit: Any = None
    allow: Any = ()
    expected: Any = None
    effort: Any = "quick"
    seed: Any = 0
    seconds: Any = 60.0
    constraints: Any = None
    module: Any = None
    second_order: Any = "right or refused"
    deterministic: Any = True
    reference: Any = None
    accuracy: Any = None
    batched: Any = None
    broadcasts: Any = ()
    nan: Any = None
    compile_backend: Any = "aot_eager"
    left_out: Any = types.MappingProxyType({})

    _reports: ClassVar[dict[Case, Report]] = {}

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        cls._reports = {}
        cls._check_names()
        if cls.__name__.startswith("Test"):
            cls._check_function()
        left_out = inspect.getattr_static(cls, "left_out")
        if isinstance(left_out, Mapping):
            for name, why in left_out.items():
                one_of(f"{cls.__name__}.left_out", name, cls._names())
                if not isinstance(why, str) or not why:
                    raise TypeError(f"{cls.__name__}.left_out must say why {name} is left out, in a sentence, got {describe(why)}")

    @classmethod
    def _check_names(cls) -> None:
        """Refuses attributes that look like a slip of the finger; methods may be called anything."""
        known = [name for name in CoherenceTests.__annotations__ if not name.startswith("_")]
        for name, value in vars(cls).items():
            is_defined = isinstance(value, (property, staticmethod, classmethod)) or getattr(value, "__name__", None) == name
            if name.startswith("_") or hasattr(CoherenceTests, name) or is_defined:
                continue
            near = difflib.get_close_matches(name, known, 1, _ALIKE)
            if near:
                raise TypeError(
                    f"{cls.__name__}.{name} is nothing that the tests read: did you mean `{near[0]}`? "
                    "If it is something of your own, choose another name, or one that begins with an underscore"
                )

    @classmethod
    def _check_function(cls) -> None:
        """Refuses a class with everything but a function, whose tests would all be skipped."""
        where = [name for name in ("inputs", "states", "domain") if not _is_nothing(inspect.getattr_static(cls, name))]
        if where and not cls._has_function():
            raise TypeError(
                f"{cls.__name__} declares `{where[0]}`, but not `function`, the callable under test; "
                "if it is only there to be inherited from, let its name not begin with Test"
            )

    @classmethod
    def _has_function(cls) -> bool:
        return not _is_nothing(inspect.getattr_static(cls, "function"))

    def cases(self) -> list[Case]:
        """Every state in every dtype."""
        states = self._given("states")
        if states is None:
            inputs = self._given("inputs")
            if inputs is None:
                raise TypeError(
                    f"{type(self).__name__} must declare `inputs`, the arguments of the function, or `states`, several of them by name"
                )
            states = {"": inputs}
        if not isinstance(states, Mapping) or not states:
            raise TypeError(f"{type(self).__name__}.states must be a dict of inputs by name, got {describe(states)}")
        return [Case(str(name), dtype, inputs) for name, inputs in states.items() for dtype in self._given("dtypes")]

    def expects(self, case: Case) -> str | None:
        """The verdict that a case is known to get; None: it has to pass. The state of the case over the domain is "the domain"."""
        return self._given("expected")

    @classmethod
    def check(cls) -> None:
        """Runs all tests here and now, without pytest. What fails comes together in one ExceptionGroup."""
        if not cls._has_function():
            raise TypeError(f"{cls.__name__} must declare `function`, the callable under test")
        failures: list[Exception] = []
        for name in cls._names():
            for case in cls()._cases_of(name):
                try:
                    getattr(cls(), name)(case)
                except unittest.SkipTest:
                    continue
                except Exception as error:
                    error.add_note(f"in {cls.__name__}.{name}, {case}")
                    failures.append(error)
        if failures:
            count = "one test fails" if len(failures) == 1 else f"{len(failures)} tests fail"
            raise ExceptionGroup(f"{cls.__name__}: {count}", failures)

    def pytest_generate_tests(self, metafunc: Any) -> None:
        """Tests that ask for a `case`, inherited or not, run once for each."""
        self._check_function()
        if "case" in metafunc.fixturenames:
            metafunc.parametrize("case", self._cases_of(metafunc.function.__name__), ids=str)

    @_inherited()
    def test_coherent(self, case: Case) -> None:
        """The gradient is the derivative of the value at the inputs."""
        self._judge(self._report(case), case)

    @_inherited(needs="domain")
    def test_coherent_over_domain(self, case: Case) -> None:
        """And over the domain."""
        report = self._audit(Case(case.state, case.dtype, case.inputs), domain=self._given("domain"), second_order=False)
        self._judge(report, Case(_OVER_DOMAIN, case.dtype, case.inputs))

    @_inherited()
    def test_second_derivatives(self, case: Case) -> None:
        """The second backward is the derivative of the first, or raises."""
        wanted, report = one_of("second_order", self._given("second_order"), _SECOND), self._report(case)
        self._no_alarm(report, "test_second_derivatives")
        if any(finding.kind in ("defect", "no-gradient") and finding.severity == "alarm" for finding in report.findings):
            raise unittest.SkipTest("the first derivative is off, so the second was not looked at")
        looked = any(state.order == 2 for state in report.states)
        if wanted == "right" and not looked:
            fail(
                report,
                "Second derivatives are declared as right (second_order = 'right'), but they raise. What to do: write the backward in "
                "differentiable operations, or give it a Function of its own.",
            )
        if wanted == "refused" and looked:
            fail(
                report,
                "Second derivatives are declared as refused (second_order = 'refused'), but they are computed. What to do: mark the backward "
                "once_differentiable, or declare them as right.",
            )

    @_inherited()
    def test_linear_in_grad_output(self, case: Case) -> None:
        """The backward is linear in what it is given."""
        self._no_alarm(self._report(case), "test_linear_in_grad_output")

    @_inherited()
    def test_repeatable(self, case: Case) -> None:
        """A second call, and a second backward through one graph, give the same again."""
        report = self._report(case)
        self._no_alarm(report, "test_repeatable")
        if self._given("deterministic") and any(finding.kind == "nondeterministic" for finding in report.findings):
            fail(report, f"Two calls must give equal bits. What to do: {ADVICE['nondeterministic'][1]}; or set deterministic = False.")

    @_inherited()
    def test_edits_nothing(self, case: Case) -> None:
        """Neither arguments nor grad_output are edited in place."""
        self._no_alarm(self._report(case), "test_edits_nothing")

    @_inherited()
    def test_interleaved(self, case: Case) -> None:
        """A backward belongs to its own forward, whatever was called in between."""
        call = self._call(case)
        expected = call.result(call.tensors)
        outputs, leaves = call.graph(call.tensors)
        call.result(_beside(call.tensors))
        with seeded():
            got = Result(expected.outputs, supplied(outputs, leaves, cotangents(outputs)), call.names)
        compare(
            got,
            expected,
            case,
            "after another call in between",
            "keep what the backward needs in ctx, not on the class, the module or in a global",
        )

    @_inherited()
    def test_noncontiguous(self, case: Case) -> None:
        """Arguments and grad_output may lie in memory as they like."""
        report = self._report(case)
        self._no_alarm(report, "test_noncontiguous")
        refused = [finding.text for finding in report.findings if finding.kind == "layout"]
        if refused:
            wrong(case, "for tensors in another layout", f"it {refused[0]}", ADVICE["layout"][1])

    @_inherited()
    def test_vmap(self, case: Case) -> None:
        """torch.func.vjp under torch.func.vmap gives what a loop gives."""
        call = self._call(case)
        if not call.tensors:
            raise unittest.SkipTest("there is no floating-point argument to stack")
        rows = [call.tensors, _beside(call.tensors)]
        loop = [call.result(row) for row in rows]
        weights = cotangents(loop[0].outputs)

        def pulled(*tensors: torch.Tensor) -> Any:
            outputs, pull, *_ = torch.func.vjp(lambda *inner: call.outputs(inner), *tensors)
            return outputs, pull(weights)

        remedy = (
            "write forward without ctx and a setup_context, and set generate_vmap_rule = True or write a vmap method; "
            "or say why not: left_out = {'test_vmap': ...}"
        )
        with explained("under torch.func.vmap", remedy), seeded():
            try:
                outputs, gradients = torch.func.vmap(pulled, randomness="same")(
                    *(torch.stack(column) for column in zip(*rows, strict=True))
                )
            except RuntimeError as error:
                if "setup_context staticmethod" in str(error):  # what torch says of any Function whose forward takes ctx
                    raise unittest.SkipTest(
                        "its forward takes ctx, so that torch.func does not apply; with a setup_context it would"
                    ) from None
                raise
        for i, expected in enumerate(loop):
            got = Result(tuple(output[i] for output in outputs), tuple(gradient[i] for gradient in gradients), call.names)
            compare(got, expected, case, f"in row {i} under torch.func.vmap", remedy)

    @_inherited()
    def test_compiled(self, case: Case) -> None:
        """torch.compile takes it in one graph, and changes neither value nor gradient."""
        call = self._call(case)
        expected = call.result(call.tensors)
        remedy = "torch._dynamo.explain(function)(...) shows what cannot be followed; or say why not: left_out = {'test_compiled': ...}"
        with warnings.catch_warnings(), explained("under torch.compile", remedy):
            warnings.simplefilter("ignore")  # torch warns of itself
            torch.compiler.reset()  # what earlier cases left in the cache would count as recompilations
            compiled = torch.compile(call.fn, fullgraph=True, backend=self._given("compile_backend"))
            got = call.result(call.tensors, fn=compiled)
        compare(got, expected, case, "under torch.compile", remedy)

    @_inherited()
    def test_empty_batch(self, case: Case) -> None:
        """A batch of size zero gives an empty gradient instead of an error."""
        call = self._call(case)
        empty, kept = self._emptied(call)
        remedy = "let shapes come from the arguments, and reduce in a way that is defined for nothing; or say why not: left_out = {'test_empty_batch': ...}"
        with explained("for a batch of size zero", remedy):
            got = call.result(empty)
        for name, tensor, gradient in zip(call.names, empty, got.gradients, strict=True):
            if gradient.shape != tensor.shape:
                wrong(
                    case,
                    "for a batch of size zero",
                    f"the gradient of {name} has shape {tuple(gradient.shape)}, not {tuple(tensor.shape)}",
                    remedy,
                )
        if not any(output.numel() for output in got.outputs):
            for name, gradient in zip(call.names, got.gradients, strict=True):
                if name in kept and bool((gradient != 0).any()):
                    wrong(case, "for a batch of size zero", f"the gradient of {name} is not zero although nothing was computed", remedy)

    @_inherited(needs="broadcasts")
    def test_broadcast(self, case: Case) -> None:
        """An argument that is broadcast gets the sum of the gradients of its copies, in its own shape."""
        call = self._call(case)
        for shapes in self._given("broadcasts"):
            tensors = call.broadcast(shapes)
            what, remedy = f"for shapes {shapes}", "sum the gradient over the dimensions that were broadcast, for example with sum_to_size"
            with explained(what, remedy):
                got = call.result(tensors)
            leaves = tuple(tensor.clone().requires_grad_() for tensor in tensors)
            whole = torch.broadcast_tensors(*leaves)
            inner = call.result([tensor.contiguous() for tensor in whole])
            gradients = torch.autograd.grad(whole, leaves, inner.gradients)
            compare(got, Result(inner.outputs, gradients, call.names), case, what, remedy)

    @_inherited(needs="nan")
    def test_nan(self, case: Case) -> None:
        """A NaN in an argument is not lost on the way."""
        wanted, call = one_of("nan", self._given("nan"), _NAN), self._call(case)
        remedy = "clamp, where and comparisons drop NaN: write the condition so that NaN takes the branch that keeps it"
        for i, name in enumerate(call.names):
            spoilt = tuple(tensor.clone() for tensor in call.tensors)
            first = (0,) * spoilt[i].ndim
            spoilt[i][first] = torch.nan
            with explained(f"for NaN in {name}", remedy):
                got = call.result(spoilt)
            if not any(bool(output.isnan().any()) for output in got.outputs):
                wrong(case, f"for NaN in {name}", "the value is finite", remedy)
            if wanted == "value and gradient" and not bool(got.gradients[i][first].isnan()):
                wrong(case, f"for NaN in {name}", f"its gradient is {got.gradients[i][first].item():g} there", remedy)

    @_inherited(needs="reference")
    def test_faithful(self, case: Case) -> None:
        """Value and gradient are close to those of the reference."""
        accuracy = self._of_dtype("accuracy", case.dtype)
        if accuracy is None:
            raise TypeError(
                f"{type(self).__name__} must declare `accuracy`, how far from the reference value and gradient may be, for {case.dtype}"
            )
        relative, absolute = accuracy if isinstance(accuracy, Sequence) else (accuracy, 0.0)
        call = self._call(case)
        got = call.result(call.tensors)
        exact = Call(self._given("reference"), _in_float64(case.inputs, case.dtype), torch.float64)
        weights = tuple(weight.double() for weight in cotangents(got.outputs))
        expected = exact.result(exact.tensors, weights)
        found = departure(got, expected, float(relative), float(absolute))
        if found:
            wrong(
                case,
                "beside the reference",
                found,
                "a coherent pair can still be the wrong function: compare the formulas, or declare the accuracy it has",
            )

    @classmethod
    def _names(cls) -> tuple[str, ...]:
        """Of the inherited tests."""
        return tuple(name for name in dir(CoherenceTests) if hasattr(inspect.getattr_static(CoherenceTests, name), "needs"))

    def _why_not(self, name: str) -> str:
        """Why a test is not made; empty if it is."""
        left_out = self._given("left_out")
        if name in left_out:
            return f"{name} is left out: {left_out[name]}"
        needs = getattr(inspect.getattr_static(CoherenceTests, name, None), "needs", None)
        if needs is not None and _is_nothing(inspect.getattr_static(self, needs)):
            return f"`{needs}` is not declared"
        return ""

    def _cases_of(self, name: str) -> list[Case]:
        """One for each dtype where states make no difference; one in all where a test is skipped anyway or takes long."""
        if self._why_not(name):
            return [Case("skipped", torch.float64)]
        cases = self.cases()
        if name == "test_compiled":
            return cases[:1]
        if name == "test_coherent_over_domain":
            return [case for case in cases if case.state == cases[0].state]
        return cases

    def _given(self, name: str) -> Any:
        """An attribute as it was declared: the value, what a method returns, or the callable itself."""
        raw = inspect.getattr_static(self, name)
        if isinstance(raw, types.FunctionType):
            is_method = next(iter(inspect.signature(raw).parameters), "") == "self"
            if name in ("function", "reference"):
                return getattr(self, name) if is_method else raw
            return getattr(self, name)() if is_method else raw()
        return getattr(self, name)

    def _of_dtype(self, name: str, dtype: torch.dtype) -> Any:
        value = self._given(name)
        return value.get(dtype) if isinstance(value, Mapping) else value

    def _call(self, case: Case) -> Call:
        return Call(self._given("function"), case.inputs, case.dtype)

    def _report(self, case: Case) -> Report:
        """The audit at the inputs, made once for all tests that look at it."""
        if case not in self._reports:
            self._reports[case] = self._audit(case, second_order="test_second_derivatives" not in self._given("left_out"))
        return self._reports[case]

    def _audit(self, case: Case, **options: Any) -> Report:
        return audit(
            self._given("function"),
            case.inputs,
            dtype=case.dtype,
            effort=self._given("effort"),
            tolerance=self._of_dtype("tolerance", case.dtype) or 0.0,
            intent=self._given("intent"),
            module=self._given("module"),
            seed=self._given("seed"),
            seconds=self._given("seconds"),
            constraints=self._given("constraints"),
            consequences=self.expects(case) is None,
            **options,
        )

    def _judge(self, report: Report, case: Case) -> None:
        __tracebackhide__ = True
        expected = self.expects(case)
        if expected is not None:
            if report.verdict != Verdict(expected):
                fail(
                    report,
                    f"The verdict is expected to be {expected!r} ({case}). What to do: if the function has been fixed, change `expected`.",
                )
            return
        alarms = {finding.kind for finding in report.findings if finding.severity == "alarm"}
        others = {kind for name, kinds in _CLAIMED.items() if name not in self._given("left_out") for kind in kinds}
        if not report.passes(self._given("allow")) and (alarms - others or not alarms):
            fail(report, _advice(report))
        limit = None if case.state == _OVER_DOMAIN else self._of_dtype("limit", case.dtype)
        if limit is not None and report.passed and report.limit > limit:
            fail(
                report,
                f"Defects down to {limit:g} of the gradient have to be seen, and here only those above {report.limit:.3g} are. "
                "What to do: choose states where the value has more digits, a higher `effort`, or a larger `limit`.",
            )

    def _no_alarm(self, report: Report, test: str) -> None:
        """Fails for alarms that the test stands for, unless what was declared accounts for them."""
        __tracebackhide__ = True
        found = [finding for finding in report.findings if finding.kind in _CLAIMED[test] and finding.severity == "alarm"]
        if found and not report.passed:
            advice = "\n".join(
                f"{finding.text}. Likely causes: {'; '.join(finding.causes)}. What to do: {finding.remedy}." for finding in found
            )
            fail(report, advice)

    def _emptied(self, call: Call) -> tuple[tuple[torch.Tensor, ...], list[str]]:
        """The arguments with no row left where there is a batch, and the names of the others."""
        batched = self._given("batched")
        if batched is None and len(call.tensors) > 1:
            raise unittest.SkipTest(f"`batched` is not declared: which of {', '.join(call.names)} have a batch dimension in front")
        names = call.names if batched is None else tuple(f"input {key}" if isinstance(key, int) else key for key in batched)
        chosen = dict(zip(call.names, call.tensors, strict=True))
        for name in names:
            if name not in chosen:
                raise ValueError(f"batched must name differentiated arguments out of {', '.join(call.names)}, got {name!r}")
        if any(chosen[name].ndim == 0 for name in names):
            raise unittest.SkipTest("the inputs have no dimension that could be of size zero")
        return tuple(t[:0].clone() if name in names else t for name, t in chosen.items()), [
            name for name in call.names if name not in names
        ]


def _advice(report: Report) -> str:
    """Causes and remedies, each once: what they are for stands in the report."""
    parts = [f"It is declared as {report.intent!r}, but what was measured is not only that."] if report.intent else []
    for finding in report.findings:
        if finding.severity == "alarm" and finding.causes:
            causes = "; ".join(f"({letter}) {cause}" for letter, cause in zip("abcdef", finding.causes, strict=False))
            parts.append(f"Likely causes: {causes}.\nWhat to do: {finding.remedy}.")
    return "\n".join(dict.fromkeys(parts)) or report.explain()


def _is_nothing(value: Any) -> bool:
    return value is None or (isinstance(value, (tuple, list)) and not value)


def _beside(tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Another state, a little nearer to zero, where the function should be defined too."""
    return tuple(tensor * (1 - 2.0**-6) for tensor in tensors)


def _in_float64(inputs: Any, dtype: torch.dtype) -> Any:
    """The arguments as they are in `dtype`, exactly, in float64."""

    def convert(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or not leaf.is_floating_point():
            return leaf
        return leaf.detach().to(dtype).double().requires_grad_(leaf.requires_grad)

    return pytree.tree_map(convert, inputs)

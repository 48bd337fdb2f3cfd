"""torch's `gradcheck`, `gradgradcheck` and `opcheck`, each with an audit beside it: the same arguments, and what torch fails always fails."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd.gradcheck import GradcheckError

from pairgrad.coherence.audit import audit
from pairgrad.coherence.finding import Finding
from pairgrad.coherence.judge.verdict import Verdict
from pairgrad.coherence.report.report import Report
from pairgrad.coherence.subject.intent import intent_of
from pairgrad.coherence.subject.subject import NothingReturned, generators_restored, module_of, name_of
from pairgrad.ground._torch_private import opcheck_error, operator_name

ATOL, RTOL = 1e-5, 1e-3  # torch's defaults
OPCHECKS = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")  # torch's default
COHERENCE = "test_coherence"  # ours, beside them
_REFUSED = "autograd formula"  # what torch says where an operator has none


def gradcheck(
    func: Callable[..., Any],
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float | None = None,
    rtol: float | None = None,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:
    """`torch.autograd.gradcheck` and an audit at the same inputs: passes only if both do.

    What torch fails always fails. What torch passes is audited: with the default tolerances everything that [`audit`][pairgrad.coherence.audit.audit] calls
    wrong fails, down to 1e-12 of the gradient in float64. A kink passes, and so does a jump of the value beside the inputs. Where the audit cannot decide, the
    check fails and says why, unless `atol` or `rtol` is given. A declared intent ([`intended`][pairgrad.intended]) counts in the audit, not for torch.

    Args:
        func: as for torch: takes the inputs by position and returns a tensor or a tuple of tensors. A module is called as it is; its parameters are not
            differentiated.
        inputs: as for torch. Those that require a gradient are differentiated; complex ones are audited as pairs of real numbers.
        eps: the step of torch's differences. The audit does not use it: it chooses its own steps.
        atol: a gradient is wrong if its worst element is off by more than atol + rtol * |true|. If only one of the two is given, the other is zero in the
            audit; for torch it is 1e-5 or 1e-3. If neither is given, the limit of the audit decides.
        rtol: see `atol`.
        raise_exception: raise an error that says where the gradient is off and by how much, and what torch said. If False, return False instead.
        nondet_tol: as for torch; if it is above 0, results that change from call to call are left to torch.
        check_undefined_grad: torch's matter.
        check_grad_dtypes: torch's matter.
        check_batched_grad: as for torch; the audit then tries the `jvp` and `vmap` rules of custom Functions too.
        check_batched_forward_grad: torch's matter.
        check_forward_ad: as `check_batched_grad`.
        check_backward_ad: if False, torch alone decides.
        fast_mode: torch's fast mode; the audit is the same.
        masked: torch's matter.

    Returns:
        True if both pass.

    Raises:
        torch.autograd.gradcheck.GradcheckError: torch or the audit fails.
        Exception: what torch raises for arguments that it does not take, and what `func` raises.

    Examples:
        >>> import torch, pairgrad as pg
        >>> class Square(torch.autograd.Function):
        ...     @staticmethod
        ...     def forward(ctx, x):
        ...         ctx.save_for_backward(x)
        ...         return x * x
        ...
        ...     @staticmethod
        ...     def backward(ctx, grad_output):
        ...         (x,) = ctx.saved_tensors
        ...         return 2.000002 * x * grad_output
        >>> x = torch.tensor([1.5, -0.5], dtype=torch.float64, requires_grad=True)
        >>> torch.autograd.gradcheck(Square.apply, x), pg.gradcheck(Square.apply, x, raise_exception=False)
        (True, False)
        >>> pg.gradcheck(Square.apply, x, rtol=1e-5)
        True
    """
    given = _given(inputs)
    check = functools.partial(
        torch.autograd.gradcheck,
        func,
        inputs,
        eps=eps,
        atol=ATOL if atol is None else atol,
        rtol=RTOL if rtol is None else rtol,
        nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad,
        check_grad_dtypes=check_grad_dtypes,
        check_batched_grad=check_batched_grad,
        check_batched_forward_grad=check_batched_forward_grad,
        check_forward_ad=check_forward_ad,
        check_backward_ad=check_backward_ad,
        fast_mode=fast_mode,
        masked=masked,
    )
    transforms = check_forward_ad or check_batched_grad
    look = functools.partial(_look, func, given, transforms=transforms, consequences=raise_exception) if check_backward_ad else None
    allowed = _Allowed(atol, rtol, nondet_tol)
    return _both("gradcheck", check, look, allowed, raise_exception=raise_exception)


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Any,
    grad_outputs: Any = None,
    *,
    eps: float = 1e-6,
    atol: float | None = None,
    rtol: float | None = None,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
) -> bool:
    """`torch.autograd.gradgradcheck` and an audit of the second backward at the same inputs: passes only if both do.

    The audit is that of [`gradcheck`][pairgrad.gradcheck], of the function that takes the inputs and `grad_outputs` and returns the gradients. The arguments
    are torch's and mean what they mean there. Where `grad_outputs` is not given, the audit draws its own. With `check_fwd_over_rev` it tries the `jvp` and
    `vmap` rules of custom Functions too; without `check_rev_over_rev`, torch alone decides.

    Returns:
        True if both pass.

    Raises:
        torch.autograd.gradcheck.GradcheckError: torch or the audit fails.
        Exception: what torch raises for arguments that it does not take, and what `func` raises.
    """
    given = _given(inputs)
    check = functools.partial(
        torch.autograd.gradgradcheck,
        func,
        inputs,
        grad_outputs,
        eps=eps,
        atol=ATOL if atol is None else atol,
        rtol=RTOL if rtol is None else rtol,
        gen_non_contig_grad_outputs=gen_non_contig_grad_outputs,
        nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad,
        check_grad_dtypes=check_grad_dtypes,
        check_batched_grad=check_batched_grad,
        check_fwd_over_rev=check_fwd_over_rev,
        check_rev_over_rev=check_rev_over_rev,
        fast_mode=fast_mode,
        masked=masked,
    )

    def look() -> Report | None:
        weights = None if grad_outputs is None else _given(grad_outputs)
        gradients, everything = _gradients_of(func, given, weights, noncontiguous=gen_non_contig_grad_outputs)
        return _look(gradients, everything, transforms=check_fwd_over_rev or check_batched_grad, consequences=raise_exception)

    allowed = _Allowed(atol, rtol, nondet_tol)
    return _both("gradgradcheck", check, look if check_rev_over_rev else None, allowed, raise_exception=raise_exception)


def opcheck(
    op: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    test_utils: str | Sequence[str] = (*OPCHECKS, COHERENCE),
    raise_exception: bool = True,
    atol: float | None = None,
    rtol: float | None = None,
    **options: Any,
) -> dict[str, Any]:
    """`torch.library.opcheck` and an audit of the same operator: its registration, and whether its autograd formula is the derivative of its value.

    Args:
        op: as for torch: what `torch.library.custom_op` makes, or an operator of `torch.ops`.
        args: its arguments.
        kwargs: those by name; the audit holds them fixed.
        test_utils: the tests to run, by default torch's four and "test_coherence", which is the audit; or one name, or "ALL".
        raise_exception: raise one error with all that failed. If False, only return the results.
        atol: of torch's comparison of eager and compiled results, as for torch: with `rtol`, or not at all. The audit has `tolerance`.
        rtol: see `atol`.
        options: of [`audit`][pairgrad.coherence.audit.audit], such as `domain`, `tolerance` or `second_order`.

    Returns:
        As from torch: for each test "SUCCESS" or the error. Where there is nothing to audit, the entry of "test_coherence" begins with "not audited" and says
        why: the operator has no autograd formula, or no argument is a tensor to differentiate by.

    Raises:
        Exception: torch's `OpCheckError`, if a test fails; what torch and the audit raise for arguments that they do not take.

    Examples:
        >>> import torch, pairgrad as pg
        >>> pg.opcheck(torch.ops.aten.sin.default, (torch.randn(3, dtype=torch.float64, requires_grad=True),))["test_coherence"]
        'SUCCESS'
    """
    named = (test_utils,) if isinstance(test_utils, str) else tuple(test_utils)
    kwargs = {} if kwargs is None else kwargs
    theirs = test_utils if test_utils == "ALL" else tuple(name for name in named if name != COHERENCE)
    results: dict[str, Any] = {}
    if theirs or COHERENCE not in named:
        results |= torch.library.opcheck(op, args, kwargs, test_utils=theirs, raise_exception=False, atol=atol, rtol=rtol)
    if test_utils == "ALL" or COHERENCE in named:
        results[COHERENCE] = _audited(op, args, kwargs, options)
    failed = {name: result for name, result in results.items() if isinstance(result, Exception)}
    if failed and raise_exception:
        said = "\n\n".join(f"{name} failed with {type(error).__name__}: {error}" for name, error in failed.items())
        raise opcheck_error()(f"pairgrad.opcheck({operator_name(op)}): {said}") from next(iter(failed.values()))
    return results


def _audited(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], options: dict[str, Any]) -> str | AssertionError:
    """What an audit of an operator comes to, as opcheck says it."""

    def call(*given: Any) -> Any:
        return op(*given, **kwargs)

    call.__qualname__ = operator_name(op)
    fn, given = _with_real_inputs(call, tuple(args))
    if not any(isinstance(x, torch.Tensor) and x.is_floating_point() and x.numel() for x in given):
        return "not audited: there is no floating-point argument to differentiate by"
    try:
        report = audit(fn, given, **{"intent": intent_of(op), **options})
    except (RuntimeError, NotImplementedError) as error:
        if _REFUSED not in str(error) and "derivative" not in str(error):
            raise
        return f"not audited: {str(error).splitlines()[0]}"
    return "SUCCESS" if report.passed else AssertionError(str(report))


class _Allowed:
    """What the arguments of a check excuse."""

    def __init__(self, atol: float | None, rtol: float | None, nondet_tol: float) -> None:
        self.given = atol is not None or rtol is not None
        self.atol, self.rtol = atol or 0.0, rtol or 0.0
        self.changing = nondet_tol > 0

    def excuses(self, finding: Finding) -> bool:
        """Whether an alarm is none under these arguments."""
        numbers = finding.numbers
        if finding.kind == "not-reentrant":
            return self.changing and bool(numbers)  # one without numbers is a second backward that raises
        if not self.given:
            return False
        if numbers.get("relative", float("inf")) <= self.rtol:
            return True
        if "supplied" in numbers:
            return abs(numbers["supplied"] - numbers["true"]) <= self.atol + self.rtol * abs(numbers["true"])
        return numbers.get("absolute", float("inf")) <= self.atol

    def passes(self, report: Report) -> bool:
        """Whether the audit passes: a jump is left to torch, which looks at the inputs alone; so is what nothing can be said of, if a tolerance is given."""
        if report.passed:
            return True
        alarms = [finding for finding in report.findings if finding.severity == "alarm"]
        if not all(map(self.excuses, alarms)):
            return False
        undecided = any(judgement.verdict is Verdict.INCONCLUSIVE and not judgement.passes for judgement in report.verdicts)
        flat = [state.verdict == "flat" for state in report.states]  # neither the value nor the gradient depends on anything
        constant = report.complete and bool(flat) and all(flat)
        return not undecided or self.given or constant or (self.changing and bool(alarms))


def _both(
    name: str, check: Callable[..., bool], look: Callable[[], Report | None] | None, allowed: _Allowed, *, raise_exception: bool
) -> bool:
    """Whether torch's check and the audit pass; where torch fails, the audit only says where and by how much."""
    try:
        check(raise_exception=True)
        failure = None
    except GradcheckError as error:
        if not raise_exception:
            return False
        failure = error
    report, trouble = None, ""
    try:
        report = look() if look is not None else None
    except Exception as error:
        if failure is None:
            raise
        trouble = f"pairgrad.{name}: the audit could not be made: {type(error).__name__}: {error}"
    if failure is None and (report is None or allowed.passes(report)):
        return True
    if not raise_exception:
        return False
    raise GradcheckError(_message(name, failure, report, allowed, trouble)) from failure


def _message(name: str, failure: GradcheckError | None, report: Report | None, allowed: _Allowed, trouble: str) -> str:
    """The audit first, then torch."""
    parts = [trouble] if trouble else []
    if report is not None and allowed.passes(report):
        parts.append(
            f"pairgrad.{name}: torch's {name} fails, and what torch fails is not passed. The audit of {report.name} finds no wrong gradient there "
            f"({report.headline}). If torch's differences are at fault (inputs below float64, kinks, large or small numbers), use pairgrad.assert_coherent."
        )
    elif report is not None:
        parts.append(f"pairgrad.{name}: {report.summary.replace('tolerance=', 'rtol=')}")
    if failure is not None:
        parts.append(f"torch's {name}: {str(failure).strip()}")
    elif report is not None and report.verdict is Verdict.INCONCLUSIVE:
        parts.append(f"torch's {name} passes, and the audit cannot tell: try other inputs, or give atol or rtol to leave it to torch.")
    else:
        parts.append(f"torch's {name} passes: what is wrong is below its tolerances, or not among what it looks at.")
    return "\n\n".join(parts)


def _look(func: Callable[..., Any], inputs: tuple[Any, ...], *, transforms: bool, consequences: bool) -> Report | None:
    """The audit at the inputs; None if there is nothing to differentiate, or to differentiate by."""
    if not any(isinstance(x, torch.Tensor) and x.requires_grad and x.numel() for x in inputs):
        return None
    fn, arguments = _with_real_inputs(_without_parameters(func), inputs)
    options: dict[str, Any] = {"transforms": transforms, "consequences": consequences, "intent": intent_of(func), "seconds": None}
    try:
        return audit(fn, arguments, effort="quick", second_order=False, **options)
    except NothingReturned:
        return None


def _given(inputs: Any) -> tuple[Any, ...]:
    """The arguments as torch takes them: those of a tuple or a list, or the one that is given."""
    return tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)


def _without_parameters(func: Callable[..., Any]) -> Callable[..., Any]:
    """A function of the inputs alone: the parameters of a module are not differentiated, and every call starts from its buffers as they are."""
    module = module_of(func)
    if module is None:
        return func
    buffers = {name: buffer.detach().clone() for name, buffer in module.named_buffers()} if module is func else {}

    def call(*inputs: Any) -> Any:
        if not buffers:
            return func(*inputs)
        return torch.func.functional_call(module, {name: buffer.clone() for name, buffer in buffers.items()}, inputs)

    call.__qualname__ = name_of(func)
    return call


def _with_real_inputs(func: Callable[..., Any], inputs: tuple[Any, ...]) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Complex inputs that require a gradient as pairs of real numbers: by torch's convention the gradient by those is the pair of the complex gradient."""
    places = [i for i, x in enumerate(inputs) if isinstance(x, torch.Tensor) and x.is_complex() and x.requires_grad]
    if not places:
        return func, inputs

    def call(*parts: Any) -> Any:
        return func(*(torch.complex(x[..., 0], x[..., 1]) if i in places else x for i, x in enumerate(parts)))

    call.__qualname__ = name_of(func)
    return call, tuple(
        torch.view_as_real(x.detach().resolve_conj()).clone().requires_grad_() if i in places else x for i, x in enumerate(inputs)
    )


def _gradients_of(
    func: Callable[..., Any], inputs: tuple[Any, ...], weights: tuple[Any, ...] | None, *, noncontiguous: bool
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The function (inputs, grad_outputs) -> gradients, as torch's gradgradcheck makes it, and its arguments."""
    wanted = [i for i, x in enumerate(inputs) if isinstance(x, torch.Tensor) and x.requires_grad]
    called = _without_parameters(func)

    def differentiable(result: Any) -> list[torch.Tensor]:
        return [x for x in _given(result) if isinstance(x, torch.Tensor) and x.requires_grad]

    if weights is None:
        with generators_restored():
            outputs = differentiable(called(*inputs))
            drawn = functools.partial(torch.testing.make_tensor, low=-1, high=1, requires_grad=True, noncontiguous=noncontiguous)
            weights = tuple(drawn(x.shape, dtype=x.dtype, device=x.device) for x in outputs)

    def gradients(*everything: Any) -> Any:
        with torch.enable_grad():
            given = [x.requires_grad_() if i in wanted else x for i, x in enumerate(everything[: len(inputs)])]
            sent = everything[len(inputs) :]
            return torch.autograd.grad(
                differentiable(called(*given)), [given[i] for i in wanted], sent, create_graph=True, allow_unused=True
            )

    gradients.__qualname__ = f"gradient of {name_of(func)}"
    return gradients, (*inputs, *weights)

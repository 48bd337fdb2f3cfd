"""Recording a training run, and auditing what it met: every custom backward at the states visited, and the loss of one step."""

from __future__ import annotations

import math
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.autograd.function import Function

from pairgrad.coherence.audit import audit
from pairgrad.coherence.causes.consequences import alone
from pairgrad.coherence.causes.fork import relative_gap
from pairgrad.coherence.causes.nodes import Interception, Visit, reproduced
from pairgrad.coherence.causes.recorder import Kept, Recorder, Taken, key_of, recordings_paused
from pairgrad.coherence.judge.verdict import Verdict, gravest
from pairgrad.coherence.report.report import Report
from pairgrad.coherence.report.run import NodeReport, NodeState, RunReport, interval, ranked
from pairgrad.coherence.report.status import StatusLine
from pairgrad.coherence.stages import Progress
from pairgrad.coherence.subject.intent import intent_of
from pairgrad.coherence.subject.subject import Point, generators_restored, supplied
from pairgrad.coherence.training.step import Replay
from pairgrad.coherence.training.tape import Tape
from pairgrad.ground._torch_private import pytree
from pairgrad.ground.checks import boolean, describe, integer_at_least, one_of

STATES = 24
MEMORY = 256 * 2**20
SECONDS = 120.0
DECLARED = 4  # states looked at of a function with a declared intent: to see that it does what it says takes long
_WIDTH = 80  # of the description of an argument
TIME_WAS_UP = "time was up"
STATEFUL = "it depends on something else too"
HANDS_ON = "it hands on a gradient computed beforehand: only the loss tells whether that is right"
WHOLE = 2  # visits of each function with what the backward got and returned, and audited with the full effort


@dataclass(frozen=True)
class RunProgress:
    """How far the audit of a recording is: what it looks at, how many states it has looked at and how many there are, and seconds so far."""

    stage: str
    done: int
    total: int
    seconds: float


def record(*, states: int = STATES, memory: int = MEMORY, loss: bool = True, seed: int = 0) -> Recording:
    """Records a training run, to audit every custom backward at the states it visits.

    Inside the `with` block, the arguments of custom autograd Functions (and of operators made with torch.library) are copied now and then, drawn evenly from
    all calls. Results keep their bits. `rec.audit()`, afterwards, audits each function alone at these states, and the loss of one step as a whole.

    Functions are met however they are called: `X.apply`, `f = X.apply` at import, static or class methods, with or without setup_context, defined before or
    after. Those inside a region compiled by torch.compile are not met one by one; the report says so.

    Args:
        states: how many of the visited states of each function to keep.
        memory: bytes that the copies may take; where they do not suffice, fewer states are kept.
        loss: whether to keep the first step as a whole too, so that its loss can be evaluated again.
        seed: of the draw.

    Examples:
        >>> import torch, pairgrad as pg
        >>> class Cap(torch.autograd.Function):
        ...     @staticmethod
        ...     def forward(ctx, x):
        ...         ctx.save_for_backward(x)
        ...         return x.sinh()
        ...
        ...     @staticmethod
        ...     def backward(ctx, grad_output):
        ...         return grad_output * ctx.saved_tensors[0].cosh().clamp(max=3)  # right up to x = 1.76
        >>> weight = torch.tensor([0.5], requires_grad=True)
        >>> optimizer = torch.optim.SGD([weight], lr=0.01)
        >>> with pg.record() as rec:
        ...     for step in range(60):
        ...         optimizer.zero_grad()
        ...         (Cap.apply(weight) - 6).square().sum().backward()
        ...         optimizer.step()
        >>> report = rec.audit()
        >>> report.passed, report.nodes[0].name, report.nodes[0].visits
        (False, 'Cap', 60)
        >>> 0.4 < report.nodes[0].share < 0.95  # it is wrong at some visited states only
        True
    """
    return Recording(states=states, memory=memory, loss=loss, seed=seed)


class Recording:
    """What [`record`][pairgrad.coherence.training.record.record] gives: a context manager that can be entered again to go on, and then audited."""

    def __init__(self, *, states: int = STATES, memory: int = MEMORY, loss: bool = True, seed: int = 0) -> None:
        states = integer_at_least("states", states, 1)
        self._memory = integer_at_least("memory", memory, 1, hint="in bytes, for example 256 * 2**20")
        self._seed = integer_at_least("seed", seed, 0)
        self._wants_loss = boolean("loss", loss)
        self._entered = False
        self._recorder = Recorder(states, whole=WHOLE, memory=self._memory, seed=self._seed, of_run=True)
        self.clear()

    def clear(self) -> None:
        """Forgets everything recorded so far."""
        if self._entered:
            self._end_tape()
        self._recorder.clear()
        self._tape: Tape | None = None
        if self._entered:
            self._begin_tape()

    def __enter__(self) -> Recording:
        if self._entered:
            raise RuntimeError(
                "this recording is running already: leave its with block before you enter it again, or take another pairgrad.record()"
            )
        self._recorder.__enter__()
        try:
            self._begin_tape()
        except BaseException:
            self._recorder.__exit__()
            raise
        self._entered = True
        return self

    def watch(self, on: bool) -> None:
        """Goes on or pauses inside the `with` block: what runs meanwhile is not counted, and costs next to nothing."""
        if self._entered:
            self._recorder.pause(not on)

    def __exit__(self, *_: object) -> None:
        self._entered = False
        self._end_tape()
        self._recorder.__exit__()

    def _begin_tape(self) -> None:
        if self._wants_loss and (self._tape is None or self._tape.reason):  # one step that can be replayed is enough
            self._tape = Tape(memory=self._memory)
            self._tape.__enter__()

    def _end_tape(self) -> None:
        if self._tape is not None:
            self._tape.stop()

    def __repr__(self) -> str:
        met = ", ".join(f"{kept.name}: {len(kept.visits)} of {kept.backwards}" for kept in self._recorder.functions.values())
        return f"Recording({self._recorder.passes} backward passes; states kept: {met or 'none'})"

    def leave_out(self, name: str, location: str | None) -> None:
        """Records no visit of a function any more."""
        self._recorder.left_out.add((name, location))

    def counts(self) -> dict[tuple[str, str | None], int]:
        """How often the backward of each function ran, by its name and location."""
        return {(kept.name, kept.location): kept.backwards for kept in self._recorder.functions.values()}

    def visits(self) -> list[Visit]:
        """The visits kept, in the order in which their backwards ran."""
        return self._recorder.visits()

    def audit(
        self,
        *,
        effort: str = "quick",
        seconds: float | None = SECONDS,
        progress: Callable[[RunProgress], None] | None = None,
    ) -> RunReport:
        """Audits every function that was met, alone, at the states kept, and the loss of the step that was kept.

        Args:
            effort: as for [`audit`][pairgrad.coherence.audit.audit], at the first states of each function; the others get one line for each argument. Every
                state gets all checks; with "glance" the second order is left out.
            seconds: after this time no further state is begun, and the loss is left where it is; each function is looked at once in any case, with the least
                effort and without the second order if time is up. `left_out` of the report says what was not done. None: as long as it takes.
            progress: called before each state with a [`RunProgress`][pairgrad.coherence.RunProgress]; without it, a line on the terminal, if there is one.
        """
        one_of("effort", effort, ("glance", "quick", "standard", "thorough"))
        if seconds is not None and (isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds > 0):
            raise ValueError(f"seconds must be a number above 0, or None for as long as it takes, got {describe(seconds)}")
        with recordings_paused(), torch.inference_mode(False), generators_restored(), StatusLine() as line:
            show = progress or (lambda now: line(f"auditing {now.stage}", now.done, now.total))
            return _RunAudit(self._recorder, self._tape, effort, seconds, self._seed, show).report()


class _TimeIsUp(Exception):
    pass


class _RunAudit:
    """The audit of a recording in the making."""

    def __init__(
        self,
        recorder: Recorder,
        tape: Tape | None,
        effort: str,
        seconds: float | None,
        seed: int,
        progress: Callable[[RunProgress], None],
    ) -> None:
        self._recorder, self._tape, self._effort, self._seed, self._progress = recorder, tape, effort, seed, progress
        self._started = time.perf_counter()
        self._end = math.inf if seconds is None else self._started + seconds
        self._end_of_nodes = self._end if seconds is None or tape is None else self._started + 2 * seconds / 3  # the rest is for the loss
        self._functions = [kept for kept in recorder.functions.values() if kept.backwards]
        self._places = {kept: _chosen(kept) for kept in self._functions}
        self._total = sum(map(len, self._places.values())) + (tape is not None)
        self._done = 0
        self._notes: list[str] = []
        self._off: dict[str, str] = {}  # why a function, by its key, is not judged

    def _tell(self, stage: str) -> None:
        self._progress(RunProgress(stage, self._done, self._total, time.perf_counter() - self._started))
        self._done += 1

    def _look(self) -> dict[Kept, list[_Seen]]:
        """State by state, each function in turn, so that none is left out if time is short."""
        seen: dict[Kept, list[_Seen]] = {kept: [] for kept in self._functions}
        for turn in range(max(map(len, self._places.values()), default=0)):
            for kept, places in self._places.items():
                late = time.perf_counter() > self._end_of_nodes
                if turn < len(places) and not (turn and late):
                    self._tell(kept.name)
                    number, _, taken = kept.visits[places[turn]]
                    effort = self._effort if turn < WHOLE and not late else "glance"
                    judged = self._judged(number, taken, effort, second=self._effort != "glance" and not late, hurry=turn > 0)
                    if judged is not None:
                        seen[kept].append(judged)
        return seen

    def _left_out(self, kept: Kept, seen: list[_Seen]) -> tuple[str, ...]:
        """The checks that were not made of a function."""
        looked = [one for one in seen if one.report is not None]
        without = sum(not one.second for one in looked)
        kept_states, checks = len(self._places[kept]), []
        if without:
            why = "not part of a glance" if self._effort == "glance" else TIME_WAS_UP
            checks.append(f"second order at {without} of {len(looked)} states: {why}")
        if len(seen) < kept_states:
            checks.append(f"{kept_states - len(seen)} of {kept_states} states kept: {TIME_WAS_UP}")
        return tuple(checks)

    def _judged(self, number: int, taken: Taken, effort: str, *, second: bool, hurry: bool) -> _Seen | None:
        """A state, looked at; None if time is up meanwhile."""
        visit = taken.visit()

        def check(_: Progress) -> None:
            if hurry and time.perf_counter() > self._end_of_nodes:
                raise _TimeIsUp

        def look(fn: Callable[..., Any], arguments: Any, intent: str | None) -> Report:
            return audit(
                fn, arguments, effort=effort, second_order=second, consequences=False, intent=intent, seed=self._seed, progress=check
            )

        described = ", ".join(textwrap.shorten(describe(argument), _WIDTH, placeholder=" ...") for argument in visit.arguments)
        try:
            off = self._off.get(taken.kept.key) or _off(visit)
            if off:  # nor can it be judged at other states
                self._off[taken.kept.key] = off
                return _Seen(number, described, None, off)
            report = alone(visit, look)
        except _TimeIsUp:
            return None
        except Exception as error:
            return _Seen(number, described, None, f"it cannot be applied alone: {_said(error)}")
        return _Seen(number, described, report, HANDS_ON if report is None else "", second)

    def _node(self, kept: Kept, seen: list[_Seen], contribution: float | None) -> NodeReport:
        told = [(one, one.report) for one in seen if one.report is not None]
        reports = [report for _, report in told]
        decided = [report for report in reports if report.verdict is not Verdict.INCONCLUSIVE]
        bad = [report for report in decided if not report.passed]
        low, high = interval(len(bad), len(decided), max(kept.backwards, len(decided)))
        worst = max(bad or decided or reports, key=lambda report: (report.defect, report.limit), default=None)
        notes = list(dict.fromkeys(one.note for one in seen if one.note))
        if kept.trouble:
            notes.append(kept.trouble)
        if kept.refused and not seen:
            notes.append(f"a visit takes {kept.largest / 2**20:.3g} MiB, more than memory allows")
        elif (kept.name, kept.location) in self._recorder.left_out:
            notes.append("left out since an earlier look: it keeps state of its own between calls")
        elif not seen:
            notes.append("no state was kept")
        return NodeReport(
            name=kept.name,
            location=kept.location,
            verdict=gravest([report.verdict for report in bad or decided or reports]) if reports else Verdict.INCONCLUSIVE,
            passed=not bad and bool(decided),
            intent=next((report.intent for report in reports if report.intent), None),
            visits=kept.backwards,
            looked=len(reports),
            failed=len(bad),
            share=len(bad) / len(decided) if decided else 0.0,
            share_low=low,
            share_high=high,
            defect=0.0 if worst is None else worst.defect,
            defect_error=0.0 if worst is None else worst.defect_error,
            contribution=contribution,
            states=tuple(
                NodeState(one.number, r.verdict.value, r.passed, r.defect, r.defect_error, r.limit, one.arguments)
                for one, r in sorted(told, key=lambda pair: pair[0].number)
            ),
            worst=worst,
            note="; ".join(notes),
            left_out=self._left_out(kept, seen),
        )

    def _loss(self, replay: Replay) -> Report:
        """The loss as a function of all its parameters at once, as far as time allows."""
        last: list[Progress] = []

        def check(progress: Progress) -> None:
            last[:] = [progress]
            if time.perf_counter() > self._end:
                raise _TimeIsUp

        self._tell("the loss")
        try:
            return replace(
                audit(replay, replay.leaves, effort="whole", consequences=False, second_order=False, seed=self._seed, progress=check),
                name="loss",
            )
        except _TimeIsUp:
            return replace(last[-1].report(), name="loss")

    def _contributions(self, replay: Replay) -> dict[str, float]:
        """The share of the gradient of the parameters that is gone if a function hands on none, by its key."""
        whole = _gradient(replay)
        size = math.sqrt(sum(float(gradient.double().square().sum()) for gradient in whole))
        classes: dict[str, list[type[Function]]] = {}  # several, if they are made anew from the same code
        for function in replay.functions:
            classes.setdefault(key_of(function), []).append(function)
        shares: dict[str, float] = {}
        for key, functions in classes.items():
            if time.perf_counter() > self._end or not 0 < size < math.inf:
                break
            with _Silenced(functions):
                share = relative_gap(_gradient(replay), whole)
            if math.isfinite(share):
                shares[key] = share
        return shares

    def report(self) -> RunReport:
        seen = self._look()
        contributions, loss, reason = self._step()
        nodes = [self._node(kept, states, contributions.get(kept.key)) for kept, states in seen.items()]
        nodes = [_excused(node, loss) for node in nodes]
        verdicts = [node.verdict for node in nodes if not node.passed]
        accounted = loss is None or loss.passed or _accounted(loss, nodes)
        silent = loss is None or loss.verdict is Verdict.INCONCLUSIVE
        if loss is not None and not accounted and not silent:
            verdicts.append(loss.verdict)
        if not nodes and silent:
            verdicts.append(Verdict.INCONCLUSIVE)
        agreed = [node.verdict for node in nodes if node.intent is None] + ([loss.verdict] if loss is not None and loss.passed else [])
        if compiled := self._recorder.compiled:
            self._notes.append(
                f"{compiled} calls went through regions compiled by torch.compile: custom backwards inside are not met one by one; "
                'record a few steps under torch.compiler.set_stance("force_eager") to meet them'
            )
        if collectives := sorted(self._recorder.collectives):
            self._notes.append(
                f"not looked at, because other processes take part: collectives of torch.distributed ({', '.join(collectives)})"
            )
        return RunReport(
            verdict=gravest(verdicts or agreed),  # where everything passes, without those declared to be something else
            passed=not verdicts,
            nodes=ranked(nodes),
            loss=loss,
            loss_note=reason if loss is None else _beside(loss, nodes, accounted),
            backwards=self._recorder.passes,
            notes=tuple(self._notes),
            seconds=time.perf_counter() - self._started,
            left_out=(
                *(f"{node.name}: {check}" if len(nodes) > 1 else check for node in ranked(nodes) for check in node.left_out),
                *self._left_out_of_the_loss(loss),
            ),
        )

    def _left_out_of_the_loss(self, loss: Report | None) -> list[str]:
        if loss is None:
            return []
        checks = ["second order of the loss: custom backwards are looked at one by one"]
        return checks if loss.complete else [*checks, f"part of the loss: {TIME_WAS_UP}"]

    def _step(self) -> tuple[dict[str, float], Report | None, str]:
        """What the step that was kept has to say: contributions and loss, or why there are none."""
        if self._tape is None:
            return {}, None, "not asked for (loss=False)"
        try:
            replay = self._tape.replay()
            if replay is None:
                return {}, None, self._tape.reason
            return self._contributions(replay), self._loss(replay), ""
        except Exception as error:  # the nodes have their verdicts, whatever happens to the loss
            return {}, None, f"it cannot be audited: {_said(error)}"


@dataclass(frozen=True)
class _Seen:
    """A visited state, looked at: the report, or why there is none."""

    number: int
    arguments: str
    report: Report | None
    note: str = ""
    second: bool = False  # whether the second order was looked at too


def _chosen(kept: Kept) -> list[int]:
    """The places to look at, in the order of the draw, not of time; of a function that is declared as something else than a derivative, a few."""
    places = sorted(kept.visits)
    declared = any(intent_of(taken.function) for _, _, taken in kept.visits.values())
    return places[:DECLARED] if declared else places


class _Silenced(Interception):
    """Some functions hand on no gradient."""

    def __init__(self, functions: list[type[Function]]) -> None:
        super().__init__()
        self._functions = functions

    def covers(self, function: type[Function]) -> bool:
        return function in self._functions

    def backward(self, function: type[Function], ctx: Any, memory: Any, original: Callable[..., Any], grads: tuple[Any, ...]) -> Any:
        return pytree.tree_map(lambda value: torch.zeros_like(value) if isinstance(value, torch.Tensor) else value, original(ctx, *grads))


def _gradient(replay: Replay) -> Point:
    leaves = tuple(leaf.detach().requires_grad_() for leaf in replay.leaves)
    loss = replay(*leaves)
    return supplied((loss,), leaves, (torch.ones_like(loss),))


def _off(visit: Visit) -> str:
    """Why a node is not judged, although it can be applied: it does not do again what it did in the run; empty if it does."""
    gap = reproduced(visit)
    if not gap:
        return ""
    return f"it could not be reproduced: applied again to the same arguments it sends on another gradient than in the run (off by {gap:.2g}): {STATEFUL}"


def _excused(node: NodeReport, loss: Report | None) -> NodeReport:
    """A node that only hands on a gradient is as right as the loss."""
    if node.looked or loss is None or HANDS_ON not in node.note or not loss.passed:
        return node
    return replace(node, verdict=loss.verdict, passed=True)


def _accounted(loss: Report, nodes: list[NodeReport]) -> bool:
    """Whether declared mismatches, and nothing else that is known, are behind a loss that does not pass: they carry enough of the gradient."""
    carried = sum(
        (node.contribution or 0.0) * (max(1.0, node.defect) if math.isfinite(node.defect) else 1.0) for node in nodes if node.intent
    )
    open_to_it = loss.verdict in (Verdict.INCOHERENT, Verdict.STRAIGHT_THROUGH, Verdict.JUMP)
    return open_to_it and all(node.passed for node in nodes) and 0 < loss.defect <= 2 * carried + 4 * loss.defect_error


def _beside(loss: Report, nodes: list[NodeReport], accounted: bool) -> str:
    """What the loss adds to what is known of the nodes."""
    failing = [node for node in nodes if not node.passed and node.verdict is not Verdict.INCONCLUSIVE]
    if loss.passed and failing:
        largest = max((node.contribution or 0.0) * node.defect for node in failing)
        if largest < loss.limit:
            return f"the defects of the nodes, {largest:.2g} of the gradient of the parameters at most, are too small to show in the loss at this step"
        return "at this step the loss is coherent although a node is not: the step was at a good state, or what is wrong in one place is made good in another"
    if loss.passed:
        return ""
    if loss.verdict is Verdict.INCONCLUSIVE:
        return "nothing can be said of the loss as a whole"
    carried = sum((node.contribution or 0.0) * max(node.defect, 1e-300) for node in failing)
    if carried * 8 >= loss.defect:
        return f"the nodes that fail: {', '.join(node.name for node in failing if node.contribution)}"
    if accounted:
        return f"as declared: {', '.join(f'{node.name} ({node.intent})' for node in nodes if node.intent)}"
    return (
        "no custom backward that was met fails: look for detach, .data, hooks that change gradients, or a backward inside a compiled region"
    )


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"

"""Reports made by hand, for pages."""

import itertools
import math

from pairgrad.coherence import Curve, FieldPicture, Finding, NodeReport, NodeState, Region, Report, RunReport, StateDefect, Verdict
from pairgrad.coherence.judge.verdict import Judgement
from pairgrad.coherence.report.report import ArgumentGradient

NASTY = '<img src=x onerror="window.hacked=1"></script><script>window.hacked=1</script>\'"&{{ 7*7 }}'
MEGABYTE = 1_000_000
PHONE = 360


def state(i=0, verdict="incoherent", at=None, order=1, **changes):
    given = {
        "state": "the inputs",
        "argument": "input 0",
        "relative": 1e-3,
        "error": 1e-9,
        "by_differences": 1e-3,
        "limit": 1e-12,
        "absolute": 0.1,
    }
    return StateDefect(**given | {"verdict": verdict, "order": order, "at": at} | changes)


def curve(name="input 0", off=1e-3, **changes):
    t = [i / 8 - 1 for i in range(17)]
    given = {"state": "the inputs", "argument": name, "verdict": "incoherent", "allowance": 1e-12}
    return Curve(**given | {"t": tuple(t), "value": tuple(t), "work": tuple((1 + off) * x for x in t)} | changes)


def picture(size=9, gap=0.5, bad=()):
    ticks = tuple(i - size // 2 for i in range(size))
    field = [[(float(x), float(y)) for x in ticks] for y in ticks]
    for i, j in bad:
        field[i][j] = (math.nan, math.nan)
    value = tuple(tuple(a * a + b * b for a, b in row) for row in field)
    supplied = tuple(tuple((a, b + gap * a) for a, b in row) for row in field)
    return FieldPicture(("along the gradient", "across it"), ticks, ticks, value, supplied, tuple(map(tuple, field)))


ALARM = Finding("defect", "alarm", "the supplied gradient is off by 0.001 (± 8e-09)", "input 0", {"relative": 1e-3, "lines": 4})
NODE = Finding(
    "node", "warning", "audited alone: incoherent", "Square (a.py:3)", {"relative": 1e-3, "verdict": "incoherent", "location": "a.py:3"}
)
GRADIENT = ArgumentGradient("input 0", 1e-3, 8e-9, 1.001, (1, 2), -0.501501, -0.501, "coordinates")
JUDGED = Judgement(Verdict.INCOHERENT, 1e-3, 8e-9, "input 0: the supplied gradient is off by 0.001 (± 8e-09)")


def report(**changes):
    given = {
        "name": "Square.apply",
        "verdict": Verdict.INCOHERENT,
        "passed": False,
        "intent": None,
        "limit": 1e-12,
        "typical_limit": 1e-12,
        "defect": 1e-3,
        "defect_error": 8e-9,
        "findings": (ALARM, NODE),
        "states": tuple(state(i) for i in range(4)) + tuple(state(i, "coherent", order=2) for i in range(2)),
        "curves": (curve(), curve("input 1", 0.0, verdict="coherent")),
        "picture": picture(),
        "evaluations": 1234,
        "tests": 99,
        "verdicts": (JUDGED,),
        "gradients": (GRADIENT,),
        "checks": {"first order": "wrong", "second order": "not judged", "re-entrant": "yes", "linear": "yes", "layouts": "yes"},
        "scales": (1e-9, 0.25),
        "hint": "the ratio is 1/5, the batch size: mean instead of sum?",
        "place": "Square (a.py:3)",
    }
    return Report(**given | changes)


def scanned(count=64):
    """Off above 1e3, over five decades."""
    ends = [10 ** (5 * (i + 0.5) / count) for i in range(count)]
    states = tuple(
        state(i, "incoherent" if at > 1e3 else "coherent", at, state=f"kappa = {at:.6g}", argument="kappa") for i, at in enumerate(ends)
    )
    regions = (Region(1.0, 1e3, "coherent", 0.0, 0.0, 1e-12), Region(1e3, 1e5, "incoherent", 1e-5, 1e-3, 1e-12))
    return report(states=states, regions={"kappa": regions})


def leap(at=None, kind="jump", where="kappa", width=1e-9, **changes):
    text = f"the value leaps by 0.375 at {'the inputs' if at is None else f'{at:.10g} (± {width:.1g})'}"
    numbers = {"size": 0.375} | ({} if at is None else {"at": at, "width": width})
    return Finding(**{"kind": kind, "severity": "warning", "text": text, "where": where, "numbers": numbers} | changes)


def leaping(*places, **changes):
    """Coherent from -2 to 2, with leaps."""
    states = tuple(state(i, "coherent", -1.75 + i / 2, state=f"kappa = {-1.75 + i / 2}", argument="kappa") for i in range(8))
    given = {"verdict": Verdict.JUMP, "defect": 0.0, "findings": tuple(map(leap, places)), "states": states, "picture": None}
    return report(**given | {"regions": {"kappa": (Region(-2.0, 2.0, "coherent", 0.0, 0.0, 1e-12),)}} | changes)


def node(name="Square", failed=3, looked=8, visits=100, worst=None, **changes):
    low, high = max(0.0, failed / max(looked, 1) - 0.25), min(1.0, failed / max(looked, 1) + 0.25)
    states = tuple(
        NodeState(10 * i, "incoherent" if i < failed else "coherent", i >= failed, 1e-4, 1e-9, 1e-12, "x: (3,)") for i in range(looked)
    )
    given = {
        "name": name,
        "location": "a.py:3",
        "verdict": Verdict.INCOHERENT if failed else Verdict.COHERENT,
        "passed": failed == 0,
        "intent": None,
    }
    given |= {"visits": visits, "looked": looked, "failed": failed, "share": failed / max(looked, 1), "share_low": low, "share_high": high}
    given |= {"defect": 1e-4 if failed else 0.0, "defect_error": 1e-9, "contribution": 0.4, "states": states, "worst": worst or report()}
    return NodeReport(**given | changes)


def run(*nodes, **changes):
    nodes = nodes or (node("First"), node("Second", 0), node("Third", 0, 0, 5, contribution=None, states=(), note="not kept"))
    given = {
        "verdict": Verdict.INCOHERENT,
        "passed": False,
        "nodes": nodes,
        "loss": report(name="loss"),
        "loss_note": "at step 3",
        "backwards": 100,
    }
    return RunReport(**given | {"notes": ("two were not seen",), "seconds": 1.5} | changes)


REPORTS = {
    "incoherent": report(),
    "coherent": report(
        verdict=Verdict.COHERENT,
        passed=True,
        defect=0.0,
        findings=(),
        picture=None,
        verdicts=(Judgement(Verdict.COHERENT, 1e-12),),
        gradients=(),
        hint="",
        place="",
    ),
    "scanned": scanned(),
    "leaping": leaping(-1.0, -7e-9, 1.000000001, 1.999999999, None),
    "one number": report(
        picture=FieldPicture(("x", ""), (1.0, 2.0, 3.0), (0.0,), ((1.0, 4.0, 9.0),), (((2.1, 0.0),) * 3,), (((2.0, 0.0),) * 3,))
    ),
    "run": run(),
}
EMPTY = {
    "nothing": report(findings=(), states=(), curves=(), picture=None, defect=0.0, limit=math.inf, typical_limit=math.inf),
    "stopped": report(complete=False, verdict=Verdict.INCONCLUSIVE, defect=0.0, picture=None),
    "infinite": report(states=(state(limit=math.inf, error=math.inf), state(verdict="unresolved", limit=math.inf)), limit=math.inf),
    "not a number": report(
        states=tuple(state(v, limit=math.nan, relative=math.nan, error=math.nan) for v in ("coherent", "incoherent")),
        curves=(curve(value=(math.nan,) * 17),),
        picture=picture(bad=[(0, 0), (4, 4)]),
        defect=math.nan,
        gradients=(ArgumentGradient("w", math.inf, math.nan, math.nan, (), math.nan, math.nan, "directions"),),
    ),
    "huge and tiny": report(
        curves=(curve(value=(1e308, -1e308) * 8 + (0.0,)), curve(value=(5e-324,) * 17, work=(0.0,) * 17), curve(t=(0.5,) * 17)),
        states=(state(relative=5e-324, limit=0.0), state(relative=1e308)),
        picture=picture(gap=1e-300),
    ),
    "nowhere finite": report(
        verdict=Verdict.INCONCLUSIVE,
        defect=0.0,
        limit=math.inf,
        findings=(),
        states=tuple(state(i, "outside", relative=0.0, error=math.inf, limit=math.inf) for i in range(4)),
        curves=(curve(value=(math.nan,) * 17),),
        picture=picture(bad=list(itertools.product(range(9), repeat=2))),
    ),
    "one state": report(states=(state(),), curves=(curve(t=(0.0,), value=(0.0,), work=(0.0,)),)),
    "empty run": run(node(), nodes=(), loss=None, loss_note="", notes=()),
    "nothing looked at": run(node("Third", 0, 0, 5, states=(), worst=None, contribution=None)),
}

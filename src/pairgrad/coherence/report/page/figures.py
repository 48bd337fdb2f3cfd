"""The figures of a page: work and energy, defects against states, the update field. Each comes with a key and with how to read it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pairgrad.coherence.causes.picture import FieldPicture
from pairgrad.coherence.measure.scan import Region
from pairgrad.coherence.report.page.svg import (
    LARGEST,
    LEFT,
    RIGHT,
    WIDTH,
    Axis,
    across,
    clipped,
    drawing,
    escape,
    frame,
    line,
    linear,
    prettily,
    pretty,
    tag,
)
from pairgrad.coherence.report.report import Curve

MOST = 300  # points of one figure
EVENTS = {"jump": "the value leaps", "kink": "the gradient leaps, the value does not"}


@dataclass(frozen=True)
class Figure:
    """A drawing with what is said about it. `key` explains the marks: (class of the mark, words)."""

    title: str
    svg: str
    caption: str
    key: tuple[tuple[str, str], ...] = ()
    name: str = ""  # by which one of several is chosen


@dataclass(frozen=True)
class Mark:
    """One place of a figure of defects."""

    x: float
    relative: float
    error: float
    limit: float
    verdict: str
    seen: bool  # whether there is a defect; else only its limit is known
    words: str


@dataclass(frozen=True)
class Place:
    """Where something leaps."""

    kind: str  # "jump" or "kink"
    x: float
    words: str


def finite(values: Iterable[float]) -> bool:
    """Whether there is anything to draw."""
    return any(math.isfinite(value) for value in values)


def _two_panels(
    t: Sequence[float],
    upper: Sequence[tuple[str, Sequence[float]]],
    lower: Sequence[float],
    band: float,
    names: tuple[str, str, str],
    events: Sequence[Place] = (),
) -> str:
    """Two curves that should agree, and below them what is between them, on its own scale."""
    x = across(t, 0.02)
    above = linear(itertools.chain(*(values for _, values in upper)), 190, 28)
    below = linear([*lower, band, -band, 0.0], 340, 242)
    parts = frame(x, above, names[0])
    parts += [line(((x(a), above(b)) for a, b in zip(t, values, strict=True)), kind) for kind, values in upper]
    parts += frame(x, below, names[1], label=names[2], up=3)
    parts += [part for y in (above, below) for part in _lines(events, x, y.end, y.start)]
    if band > 0:
        parts.append(tag("rect", "band", x=x.start, y=below(band), width=x.end - x.start, height=max(1.0, below(-band) - below(band))))
    parts.append(tag("path", "zero", d=f"M{x.start:.1f} {below(0):.1f}H{x.end:.1f}"))
    places = [(x(a), below(b)) for a, b in zip(t, lower, strict=True)]
    parts.append(line(places, "difference"))
    if len(places) <= 40:
        parts += [tag("circle", "difference dot", cx=a, cy=b, r=2.4) for a, b in places if math.isfinite(b)]
    return drawing(386, parts, f"{names[0]}, and {names[1]}, against {names[2]}")


def _lines(events: Sequence[Place], x: Axis, top: float, bottom: float) -> list[str]:
    """A line from top to bottom at every leap."""
    return [
        tag("path", f"event v-{event.kind}", tag("title", "", escape(event.words)), d=f"M{x(event.x):.1f} {top:.1f}V{bottom:.1f}")
        for event in events
    ]


def _event_key(events: Sequence[Place]) -> list[tuple[str, str]]:
    return [(f"event v-{kind}", EVENTS[kind]) for kind in EVENTS if any(event.kind == kind for event in events)]


def curve_figure(curve: Curve, scanned: bool, events: Sequence[Place] = ()) -> Figure:
    """Work and energy along one segment; `events` outside of it are left out."""
    place = prettily(curve.state)
    title, name = f"At {place}" if scanned else f"{curve.argument}, at {place}", f"{curve.argument} ({curve.verdict})"
    if not (finite(curve.value) and finite(curve.work)):
        return Figure(title, "", "Not drawn: the value or the gradient is nowhere finite along this line.", name=name)
    events = [event for event in events if min(curve.t) <= event.x <= max(curve.t)]
    residual = [a - b for a, b in zip(curve.value, curve.work, strict=True)]
    label = clipped(curve.argument) if scanned else f"position, in sizes of {clipped(curve.argument)}"
    svg = _two_panels(
        curve.t,
        (("value", curve.value), ("work", curve.work)),
        residual,
        curve.allowance,
        ("change of the value", "residual: value less work", label),
        events,
    )
    drift = max((abs(r) for r in residual if math.isfinite(r)), default=math.nan)
    told = "leaves it" if drift > curve.allowance else "stays in it"
    thin = " and too thin to be seen here" if drift > 100 * curve.allowance else ""
    return Figure(
        title=title,
        svg=svg,
        caption=(
            "How to read it: a residual that is flat, inside the band, means coherent; one that drifts out of it means that the gradient is not that of the "
            "value. "
            f"The band, ±\u00a0{pretty(curve.allowance)}{thin}, is what noise alone may do; here the residual {told}. "
            "If the function has several outputs, the value is a random combination of them."
        ),
        key=(
            ("value", "change of the value, from the middle"),
            ("work", "the supplied gradient, added up"),
            ("difference", "residual"),
            ("band", "allowance for noise"),
            *_event_key(events),
        ),
        name=name,
    )


def thinned(marks: Sequence[Mark], most: int = MOST) -> list[Mark]:
    """At most about so many marks: of each stretch, and of each verdict in it, the one with the largest defect or limit."""
    if len(marks) <= most:
        return list(marks)
    ordered = sorted(marks, key=lambda mark: mark.x)
    width = math.ceil(len(ordered) / most * 1.5)
    kept: list[Mark] = []
    for start in range(0, len(ordered), width):
        gravest: dict[str, Mark] = {}
        for mark in ordered[start : start + width]:
            if mark.verdict not in gravest or _height(mark) > _height(gravest[mark.verdict]):
                gravest[mark.verdict] = mark
        kept += gravest.values()
    return kept


def _height(mark: Mark) -> float:
    return mark.relative if mark.seen else mark.limit


def defect_figure(
    title: str,
    marks: Sequence[Mark],
    label: str,
    *,
    strip: Sequence[tuple[float, float, str, str]] = (),
    under: str = "",
    whole: bool = False,
    events: Sequence[Place] = (),
) -> Figure:
    """Relative defects with error bars, and limits where none was seen; `strip`: (low, high, class, words), drawn under the axis."""
    if not finite(_height(mark) for mark in marks):
        why = _NOWHERE if all(mark.verdict == "outside" for mark in marks) else "no line here gave a finite number."
        return Figure(title, "", f"Not drawn: {why}")
    inside = [mark for mark in marks if strip[0][0] <= mark.x <= strip[-1][1]] if strip else list(marks)
    shown = thinned(inside)
    heights = [h for m in shown for h in (_height(m), m.limit if m.seen else 0.0) if 1 / LARGEST < h < LARGEST]
    low, high = min(heights, default=1e-13), max(heights, default=1.0)
    y = Axis(10.0 ** math.floor(math.log10(low) - 0.3), 10.0 ** math.ceil(math.log10(high) + 0.2), 232, 28, log=True)
    ends = [mark.x for mark in shown] + [end for low, high, _, _ in strip for end in (low, high)]
    x = across(ends, 0.0 if strip else 0.03)
    if whole:  # numbers of lines or visits
        room = 0.0 if strip else 0.5
        x = Axis(min(ends) - room, max(ends) + room, LEFT, WIDTH - RIGHT, whole=True)
    parts = frame(x, y, "defect, over the size of the gradient", label=clipped(label), gap=18.0 if strip else 0.0, up=6)
    for start, end, kind, words in strip:
        title_of, width = tag("title", "", escape(words)), max(1.0, x(end) - x(start) - 1)
        parts.append(tag("rect", f"strip {kind}", title_of, x=x(start), y=237, width=width, height=11))
    below, above = (_SLACK * x.low, _SLACK * x.high) if x.log else (_SLACK * (x.high - x.low),) * 2
    events = [event for event in events if x.low - below <= event.x <= x.high + above][:MOST]
    parts += _lines(events, x, y.end, y.start)
    if strip:
        parts += [tag("path", f"place {kind}", d=f"M{x(event.x):.1f} 236V249") for event in events for kind in ("gap", f"v-{event.kind}")]
    parts += [_mark(mark, x(mark.x), y) for mark in shown]
    seen = list(dict.fromkeys(mark.verdict for mark in shown if mark.seen))
    key = [(f"dot v-{verdict}", f"{verdict}: defect, with its error") for verdict in seen]
    key += [("floor", "the smallest defect that would have shown there")] if seen else []
    for verdict in dict.fromkeys(mark.verdict for mark in shown if not mark.seen):
        key.append((f"limit v-{verdict}", _LIMIT.get(verdict, f"{verdict}: the smallest defect that would show")))
    key += _event_key(events)
    left_out = f" Of {len(inside):,} readings {len(shown)} are drawn: of each stretch the gravest." if len(shown) < len(inside) else ""
    left_out += f" Outside these ends were {len(marks) - len(inside):,} more." if len(inside) < len(marks) else ""
    return Figure(
        title,
        drawing(302 if strip else 284, parts, f"{title}: relative defect against {label}"),
        "How to read it: a dot is a defect that was seen, 1 being the whole gradient; a dash with an arrow says that none as large as this was there. "
        f"{under}{left_out}",
        tuple(key),
    )


_LIMIT = {
    "unresolved": "unresolved: only a defect above this would show",
    "outside": "outside the domain of the function: not finite there",
}
_NOWHERE = "the value or the gradient is not finite (NaN or infinity) along any of these directions, or the function raises there."
_SLACK = 1e-6  # of an axis: leaps at its ends are located on either side of them


def _mark(mark: Mark, x: float, y: Axis) -> str:
    words = tag("title", "", escape(mark.words))
    if not mark.seen:
        top = y.end if math.isnan(mark.limit) else y(mark.limit)
        return tag("path", f"limit v-{mark.verdict}", words, d=f"M{x - 3:.1f} {top:.1f}h6m-3 0v7m-2 -2.5l2 2.5l2 -2.5")
    top, bottom = y(mark.relative + mark.error), y(mark.relative - mark.error)
    bar = tag("path", f"bar v-{mark.verdict}", d=f"M{x:.1f} {top:.1f}V{bottom:.1f}M{x - 2.5:.1f} {top:.1f}h5M{x - 2.5:.1f} {bottom:.1f}h5")
    limit = tag("path", "floor", d=f"M{x - 3:.1f} {y(mark.limit):.1f}h6") if mark.limit < mark.relative else ""
    return limit + bar + tag("circle", f"dot v-{mark.verdict}", words, cx=x, cy=y(mark.relative), r=3.0)


def region_strip(regions: Sequence[Region], ends: Sequence[tuple[str, str]]) -> list[tuple[float, float, str, str]]:
    """`ends`: of each region, in words."""
    return [(r.low, r.high, f"v-{r.verdict}", f"{low} to {high}: {r.verdict}") for r, (low, high) in zip(regions, ends, strict=True)]


_LEVELS = 9
_FINE = 6  # cells of shading between two places
_COINCIDE = 0.08  # of the longest arrow: closer than that, two arrows look like one

Vectors = Sequence[Sequence[tuple[float, float]]]


def picture_figure(picture: FieldPicture) -> Figure:
    """Slopes over one axis, or arrows over two."""
    if not finite(part for row in picture.supplied for pair in row for part in pair):
        return Figure(f"Against {clipped(picture.axes[0])}", "", "Not drawn: the gradient is nowhere finite here.")
    return _slopes(picture) if len(picture.y) == 1 else _field(picture)


def _slopes(picture: FieldPicture) -> Figure:
    supplied = [slope for slope, _ in picture.supplied[0]]
    known = None if picture.consistent is None else [slope for slope, _ in picture.consistent[0]]
    series = [("work", supplied)] if known is None else [("value", known), ("work", supplied)]
    difference = [math.nan] * len(supplied) if known is None else [a - b for a, b in zip(supplied, known, strict=True)]
    name = clipped(picture.axes[0])
    return Figure(
        f"Against {name}",
        _two_panels(picture.x, series, difference, 0.0, ("slope", "supplied less consistent", name)),
        "How to read it: the two curves should lie on each other, and the lower one on zero; its scale is its own.",
        (
            ("value", "slope of the value that is computed"),
            ("work", "slope that the backward supplies"),
            ("difference", "what is between them"),
        ),
    )


def _field(picture: FieldPicture) -> Figure:
    side, left, top = 400.0, 90.0, 14.0
    count = max(len(picture.x), len(picture.y)) - 1
    x, y = linear(picture.x, left, left + side, 1 / count), linear(picture.y, top + side, top, 1 / count)
    cell = side / (count + 2) * 0.9
    parts = _shading(picture, x, y)
    behind = frame(x, y, "", label=picture.axes[0], across=5, up=5)
    upwards = f"translate(32 {top + side / 2:g}) rotate(-90)"
    behind.append(tag("text", "name", escape(picture.axes[1] + y.unit), transform=upwards, text_anchor="middle"))
    supplied, consistent = picture.supplied, picture.consistent
    longest = max((_length(v) for field in (supplied, consistent or ()) for row in field for v in row), default=0.0) or 1.0

    def arrows(vectors: Vectors, factor: float, kind: str) -> str:
        return "".join(
            _arrow(x(a), y(b), -vx * factor, vy * factor, kind)
            for b, row in zip(picture.y, vectors, strict=True)
            for a, (vx, vy) in zip(picture.x, row, strict=True)
        )

    scale = cell / longest
    said = "Arrows point downhill, where a step of descent goes; the stronger the shading, the larger the value. The axes are in sizes of the arguments."
    key = [("arrow work", "supplied: what the backward says")]
    if consistent is None:
        parts.append(arrows(supplied, scale, "arrow work"))
    else:
        gap = [[(p - q, r - s) for (p, r), (q, s) in zip(one, other, strict=True)] for one, other in zip(supplied, consistent, strict=True)]
        widest = max((_length(v) for row in gap for v in row), default=0.0)
        key.append(("arrow value", "consistent: the derivative of the value"))
        if widest > _COINCIDE * longest:
            parts += [arrows(consistent, scale, "arrow value"), arrows(supplied, scale, "arrow work")]
            said = f"How to read it: where the two arrows part, the update goes elsewhere than the value asks for. {said}"
        else:
            parts.append(arrows(consistent, scale, "arrow value"))
            if widest > 0:
                factor = _round_down(longest / widest)
                parts.append(arrows(gap, scale * factor, "arrow difference"))
                key[0] = ("arrow difference", f"supplied less consistent, {pretty(factor)} times larger")
            said = f"How to read it: the two fields cannot be told apart by eye, so what is between them is drawn larger. {said}"
    title = "The update on a plane through the inputs"
    return Figure(
        title,
        drawing(top + side + 46, [*parts[:1], *behind, *parts[1:]], f"{title}: {picture.axes[0]} and {picture.axes[1]}"),
        said,
        tuple(key),
    )


def _length(vector: tuple[float, float]) -> float:
    length = math.hypot(*vector)
    return length if math.isfinite(length) else 0.0


def _round_down(value: float) -> float:
    """To 1, 2 or 5 times a power of ten."""
    base = 10.0 ** math.floor(math.log10(value))
    return base * max(m for m in (1, 2, 5) if base * m <= value * (1 + 1e-9))


def _arrow(x: float, y: float, dx: float, dy: float, kind: str) -> str:
    length = math.hypot(dx, dy)
    if not math.isfinite(length) or length < 0.6:
        return ""
    head = min(6.0, length * 0.5)
    ux, uy = dx / length * head, dy / length * head
    ends = [(x + dx - ux + side * uy * 0.5, y + dy - uy - side * ux * 0.5) for side in (-1, 1)]
    wings = "".join(f"M{x + dx:.1f} {y + dy:.1f}L{a:.1f} {b:.1f}" for a, b in ends)
    return tag("path", kind, d=f"M{x:.1f} {y:.1f}L{x + dx:.1f} {y + dy:.1f}{wings}")


def _shading(picture: FieldPicture, x: Axis, y: Axis) -> list[str]:
    """Bands of equal value, interpolated between the places; as one element."""
    finite = [value for row in picture.value for value in row if math.isfinite(value)]
    if not finite or max(finite) == min(finite):
        return [""]
    low, span = min(finite), max(finite) - min(finite)
    rows: dict[int, list[str]] = {}
    columns, up = _between(picture.x), _between(picture.y)
    width, height = (x(picture.x[-1]) - x(picture.x[0])) / len(columns), (y(picture.y[0]) - y(picture.y[-1])) / len(up)
    for j, v in enumerate(up):
        row = [_level(_interpolated(picture.value, u, v), low, span) for u in columns]
        start = 0
        for level, run in itertools.groupby(row):
            count = len(list(run))
            if level >= 0:
                at, down = x(picture.x[0]) + start * width, y(picture.y[0]) - (j + 1) * height
                rows.setdefault(level, []).append(f"M{at:.1f} {down:.1f}h{count * width:.1f}v{height:.1f}h{-count * width:.1f}z")
            start += count
    return [tag("g", "shading", "".join(tag("path", f"level-{level}", d="".join(paths)) for level, paths in sorted(rows.items())))]


def _between(places: Sequence[float]) -> list[float]:
    """Middles of fine cells, as fractional indices."""
    return [(k + 0.5) / _FINE for k in range(_FINE * (len(places) - 1))]


def _interpolated(grid: Sequence[Sequence[float]], u: float, v: float) -> float:
    i, j = int(u), int(v)
    s, t = u - i, v - j
    low, high = ((1 - s) * row[i] + s * row[i + 1] for row in grid[j : j + 2])
    return (1 - t) * low + t * high


def _level(value: float, low: float, span: float) -> int:
    return min(_LEVELS - 1, int((value - low) / span * _LEVELS)) if math.isfinite(value) else -1

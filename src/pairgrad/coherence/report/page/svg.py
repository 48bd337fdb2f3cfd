"""Inline SVG: numbers, elements, axes. Colours and strokes are classes that the style sheet of the page knows, so that drawings follow its light and dark."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape as escape_markup

from pairgrad.ground.text import printable

WIDTH, LEFT, RIGHT = 560.0, 62.0, 12.0
DECADES = 100.0
LARGEST = 1e290  # beyond that, and below its inverse, nothing is drawn
_LETTER = 10.0  # width of one, on a phone
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def pretty(value: float, digits: int = 3) -> str:
    """A number as it is printed: 0.0123, 12,300, 6.67 × 10⁻⁷."""
    if not math.isfinite(value):
        return "not a number" if math.isnan(value) else "−∞" if value < 0 else "∞"
    if value == 0:
        return "0"
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    if -3 <= int(exponent) < 6:
        return f"{float(f'{value:.{digits}g}'):,.10g}".replace("-", "−")
    mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    return f"{mantissa.replace('-', '−')}\u00a0×\u00a0{power(int(exponent))}"


def power(exponent: int) -> str:
    """A power of ten with a raised exponent."""
    return "10" + str(exponent).translate(_RAISED)


def rounded(value: float, unit: float) -> str:
    """A number to a multiple of a power of ten that is at most `unit`."""
    if not (math.isfinite(value) and 0 < unit < math.inf):
        return pretty(value, 6)
    least = math.floor(math.log10(unit) + 1e-9)
    return pretty(round(value, -least), 16)


def prettily(text: str) -> str:
    """A sentence with its numbers in powers of ten, one kind of minus, and no break beside a sign."""
    found = r"(?<![\w.])(-?\d+(?:\.\d+)?)e([+-]\d+)(?![\w.]*\w)"
    text = re.sub(found, lambda m: f"{m[1]}\u00a0×\u00a0{power(int(m[2]))}", text)
    text = re.sub(r"(?<![\w.)\]/-])-(?=\d+(?:\.\d+)?(?![\w.]*\w))", "−", text)
    return text.replace(" = ", "\u00a0=\u00a0").replace("± ", "±\u00a0")


def escape(text: str) -> str:
    """Text as it can stand between tags and in attributes."""
    return escape_markup(printable(text))


def tag(name: str, kind: str = "", inside: str = "", **attributes: float | str) -> str:
    """An element; `inside` is markup. Numbers are rounded to what a screen shows."""
    given = {"class": kind, **attributes} if kind else attributes
    text = "".join(f' {key.replace("_", "-")}="{_short(value)}"' for key, value in given.items())
    return f"<{name}{text}>{inside}</{name}>" if inside else f"<{name}{text}/>"


def _short(value: float | str) -> str:
    return escape(value) if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")


def clipped(name: str, most: int = 30) -> str:
    """A name that fits under an axis."""
    return name if len(name) <= most else f"{name[: most // 2]}…{name[-most // 2 + 1 :]}"


def text(words: str, x: float, y: float, anchor: str = "middle", kind: str = "") -> str:
    """Words at a place, anchored at their middle, start or end."""
    return tag("text", kind, escape(words), x=x, y=y, text_anchor=anchor)


def drawing(height: float, parts: Iterable[str], label: str) -> str:
    """The parts of a figure as one image of full width, with a label for those who do not see it."""
    return f'<svg viewBox="0 0 {WIDTH:g} {height:g}" role="img" aria-label="{escape(label)}">{"".join(parts)}</svg>'


def line(points: Iterable[tuple[float, float]], kind: str) -> str:
    """A polyline that is broken where a number is not finite."""
    steps, down = [], False
    for x, y in points:
        good = math.isfinite(x) and math.isfinite(y)
        if good:
            steps.append(f"{'L' if down else 'M'}{x:.1f} {y:.1f}")
        down = good
    return tag("path", kind, d="".join(steps)) if steps else ""


@dataclass(frozen=True)
class Axis:
    """Numbers to places, with ticks. A common power of ten, or a common part of all numbers, goes into the label of the axis."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False
    whole: bool = False  # ticks at whole numbers only
    offset: float = field(init=False, default=0.0)
    exponent: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        if self.log:
            return
        middle, span = (self.low + self.high) / 2, self.high - self.low
        if span < 1e-3 * abs(middle):
            object.__setattr__(self, "offset", float(f"{middle:.6g}"))
        largest = max(abs(self.low - self.offset), abs(self.high - self.offset))
        exponent = math.floor(math.log10(largest)) if largest > 0 else 0
        object.__setattr__(self, "exponent", exponent if not -2 <= exponent <= 4 else 0)

    def __call__(self, value: float) -> float:
        low, high = (math.log10(self.low), math.log10(self.high)) if self.log else (self.low, self.high)
        at = (math.log10(value) if value > 0 else -math.inf) if self.log else value
        return self.start + (min(max(at, low), high) - low) / (high - low) * (self.end - self.start) if at == at else math.nan

    @property
    def unit(self) -> str:
        """What its label must say beside the name."""
        less = f" less {self.offset:.6g}".replace("-", "−") if self.offset else ""
        times = f" (× {power(self.exponent)})" if self.exponent else ""
        return less + times

    def ticks(self, wanted: int) -> list[tuple[float, str]]:
        if self.log:
            first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
            step = max(1, math.ceil((last - first) / wanted))
            return [(10.0**k, power(k) if k else "1") for k in range(first, last + 1) if (k - last) % step == 0]
        unit = 10.0**self.exponent
        low, high = (self.low - self.offset) / unit, (self.high - self.offset) / unit
        base = 10.0 ** math.floor(math.log10((high - low) / wanted))
        steps = [base * m for m in (10, 5, 2, 1, 0.5) if not self.whole or base * m >= 1] or [1.0]
        counted = [(step, range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)) for step in steps]
        step, places = next((pair for pair in counted if len(pair[1]) > wanted / 2 + 0.5), counted[-1])
        digits = max(0, -math.floor(math.log10(step) + 1e-9))
        return [(self.offset + k * step * unit, f"{k * step:.{digits}f}".replace("-", "−") if k else "0") for k in places]


def linear(values: Iterable[float], start: float, end: float, pad: float = 0.06) -> Axis:
    """An axis that holds all finite values, with some room at both ends."""
    finite = [value for value in values if abs(value) < LARGEST]
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    if high - low < 1 / LARGEST:
        low, high = low - max(abs(low) / 2, 1e-9), high + max(abs(high) / 2, 1e-9)
    return Axis(low - pad * (high - low), high + pad * (high - low), start, end)


def across(values: Sequence[float], pad: float) -> Axis:
    """The axis below: by logarithms where all numbers are positive and span decades."""
    low, high = min(values), max(values)
    if low > 0 and high / low >= DECADES:
        return Axis(low, high, LEFT, WIDTH - RIGHT, log=True)
    return linear(values, LEFT, WIDTH - RIGHT, pad)


def _fitting(x: Axis, wanted: int) -> list[tuple[float, str]]:
    """Ticks whose words stand beside each other on a phone too, where letters are larger against the drawing."""
    tried = [x.ticks(count) for count in range(wanted, 0, -1)]
    room = x.end - x.start
    return next((ticks for ticks in tried if sum(_LETTER * (len(words) + 1) for _, words in ticks) <= room), tried[-1])


def frame(x: Axis, y: Axis, name: str, *, label: str = "", gap: float = 0.0, across: int = 6, up: int = 4) -> list[str]:
    """Grid, ticks and names: that of y stands above the panel, that of x below, `gap` further down."""
    left, right, top, bottom = x.start, x.end, y.end, y.start
    parts = [text(name + y.unit, left, top - 9, "start", "name")]
    for value, words in y.ticks(up):
        parts.append(tag("path", "grid", d=f"M{left:.1f} {y(value):.1f}H{right:.1f}"))
        parts.append(text(words, left - 6, y(value) + 4, "end"))
    for value, words in _fitting(x, across):
        parts.append(tag("path", "grid", d=f"M{x(value):.1f} {top:.1f}V{bottom:.1f}"))
        if label:
            parts.append(text(words, x(value), bottom + gap + 17))
    if label:
        parts.append(text(label + x.unit, (left + right) / 2, bottom + gap + 38, kind="name"))
    return [*parts, tag("path", "axis", d=f"M{left:.1f} {bottom:.1f}H{right:.1f}")]

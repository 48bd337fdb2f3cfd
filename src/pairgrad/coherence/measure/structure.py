"""What can be checked without derivatives: repeatability, linearity in the cotangent, edits in place."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch

from pairgrad.coherence.finding import Finding
from pairgrad.coherence.measure.layouts import Layout, expanded, expanded_along, layouts_of
from pairgrad.coherence.measure.limits import ROUGH, coarsest
from pairgrad.coherence.measure.path import OUTSIDE, guarded, random_cotangent
from pairgrad.coherence.subject.backward import supplied
from pairgrad.coherence.subject.curves import random_signs, scales
from pairgrad.coherence.subject.subject import Point, Subject
from pairgrad.ground.checks import HALF_DTYPES

# Largest relative difference that rounding can make between results that are equal on paper: the backward may cancel.
SLACK = {torch.float64: 2.0**-32, torch.float32: 2.0**-12, torch.float16: 2.0**-5, torch.bfloat16: 2.0**-3}


def structural_findings(subject: Subject, generator: torch.Generator, *, brief: bool = False) -> Iterator[Finding]:
    """What is wrong apart from the derivative: results that are not finite, not repeated or jagged, a backward that is not linear or minds the size or the
    layout of what it is given, edits in place. Where a call is expensive, `brief` makes about 30 calls instead of 80.
    """
    dtype = coarsest([tensor.dtype for tensor in (*subject.tensors, *subject.outputs)])
    inside = [narrower for narrower in _NARROWER if torch.finfo(narrower).eps > torch.finfo(dtype).eps and _computes_in(subject, narrower)]
    slack = max(SLACK[kind] for kind in (dtype, *inside))
    cotangent = random_cotangent(subject.outputs, generator)
    yield from _non_finite(subject, cotangent)
    changing = list(_repeated(subject, cotangent, slack))
    yield from changing
    if subject.connected and any(finding.severity == "alarm" for finding in changing):
        yield from _backward_twice(subject, cotangent, slack)  # the others compare calls, which differ anyway
    elif subject.connected:
        yield from _backward_twice(subject, cotangent, slack)
        yield from _linearity(subject, random_cotangent(subject.outputs, generator, short=True), generator, slack, dtype, brief=brief)
        if not brief:
            yield from _rounded(subject, generator, dtype)
        yield from _undefined(subject, cotangent, slack)
        yield from _alone(subject, cotangent, slack)
        yield from _rough(subject, cotangent, generator, dtype, brief=brief)
        yield from _layouts(subject, cotangent, max(slack, 16 * subject.spread), brief=brief)
    for name in subject.calls_edit(cotangent):
        yield Finding("edits", "alarm", "is edited in place", name)
    if subject.random:
        yield Finding("note", "note", "draws random numbers: every call of the audit starts from the same generator state")


def _non_finite(subject: Subject, cotangent: Point) -> list[Finding]:
    evaluation = subject.pull(subject.tensors, cotangent)
    finite = all(bool(torch.isfinite(output).all()) for output in evaluation.outputs)
    found = []
    for name, gradient in zip(subject.names, evaluation.gradients, strict=True):
        bad = int((~torch.isfinite(gradient)).sum())
        if not bad or not finite:
            continue
        severity, text = "alarm", f"the gradient is not finite at {bad} of {gradient.numel()} elements although the value is"
        if _is_vertical(subject, cotangent, subject.names.index(name), gradient):
            severity = "warning"
            text = f"the gradient is infinite at {bad} of {gradient.numel()} elements, where the value itself is infinitely steep"
        found.append(Finding("non-finite", severity, text, name, {"elements": bad}))
    return found


def _is_vertical(subject: Subject, cotangent: Point, index: int, gradient: torch.Tensor, most: int = 4) -> bool:
    """Whether the first elements with an infinite gradient have quotients of differences that grow without end, with its sign: sqrt at 0."""
    places = (~torch.isfinite(gradient.reshape(-1))).nonzero().flatten().tolist()
    if bool(gradient.isnan().any()):
        return False
    start = _weighted(subject, subject.tensors, cotangent)
    for place in places[:most]:
        sign = float(gradient.reshape(-1)[place].sign())
        if not any(_steeper(subject, cotangent, index, place, side, sign, start) for side in (1.0, -1.0)):
            return False
    return True


def _steeper(subject: Subject, cotangent: Point, index: int, place: int, side: float, sign: float, start: float) -> bool:
    quotients = []
    for step in (2.0**-8, 2.0**-14, 2.0**-20):
        moved = subject.tensors[index].clone(memory_format=torch.contiguous_format)
        moved.view(-1)[place] += side * step
        width = float(moved.view(-1)[place] - subject.tensors[index].reshape(-1)[place])
        try:
            value = _weighted(subject, (*subject.tensors[:index], moved, *subject.tensors[index + 1 :]), cotangent)
        except Exception:
            return False
        quotients.append(sign * (value - start) / width if width else math.nan)
    return 0 < 1.2 * quotients[0] < quotients[1] and 1.2 * quotients[1] < quotients[2] < math.inf


def _weighted(subject: Subject, point: Point, cotangent: Point) -> float:
    return sum(float((output.double() * weight).sum()) for output, weight in zip(subject.outputs_at(point), cotangent, strict=True))


def _repeated(subject: Subject, cotangent: Point, slack: float) -> list[Finding]:
    """Two calls at one state, with everything put back that can be put back."""
    first, second = (subject.pull(subject.tensors, cotangent) for _ in range(2))
    value = apart(first.outputs, second.outputs)
    gradient = apart(first.gradients, second.gradients, floors_of(subject, first.gradients))
    numbers, most = {"value": value, "gradient": gradient}, max(value, gradient)
    if most > slack:
        what = "value" if value > slack else "gradient"
        text = f"a second call at the same state gives another {what}, off by {most:.2g} of its size"
        return [Finding("not-reentrant", "alarm", text, "", numbers)]
    text = f"two calls at the same state differ by {most:.2g} of their size"
    return [Finding("nondeterministic", "note", text, "", numbers)] if most else []


def _backward_twice(subject: Subject, cotangent: Point, slack: float) -> list[Finding]:
    """Two backwards through one graph."""
    outputs, leaves = subject.graph()
    try:
        first = tuple(gradient.clone() for gradient in supplied(outputs, leaves, cotangent, retain_graph=True))
    except RuntimeError as error:  # compiled graphs may give their buffers away in the first backward
        return [Finding("note", "note", f"the graph can be gone through once only: {str(error).splitlines()[0]}")]
    try:
        second = supplied(outputs, leaves, cotangent, retain_graph=True)
    except RuntimeError as error:
        text = f"a second backward through the same graph raises: {str(error).splitlines()[0]}"
        return [Finding("not-reentrant", "alarm", text)]
    difference = apart(first, second, floors_of(subject, first))
    if difference > slack:
        text = f"a second backward through the same graph gives another gradient, off by {difference:.2g} of its size"
        return [Finding("not-reentrant", "alarm", text, "", {"gradient": difference})]
    return []


_LOST_DIGITS = 1e-3  # of the gradient: what very large or small ones may lose before they are called wrong
EXPONENTS = (
    -24,
    -20,
    -16,
    -12,
    -8,
    -4,
    4,
    8,
    12,
    16,
    20,
    24,
)  # of the sizes of grad_output: loss scalers send 2**16 and more, means over batches 1e-6


def _linearity(
    subject: Subject, cotangent: Point, generator: torch.Generator, slack: float, dtype: torch.dtype, *, brief: bool
) -> list[Finding]:
    """backward(a u + b w) = a backward(u) + b backward(w), from the smallest sizes of grad_output to the largest."""
    other = tuple(
        random_cotangent([output], generator, short=True)[0] if output.numel() > 1 else -0.375 * torch.ones_like(output)
        for output in subject.outputs
    )
    at = subject.tensors
    first, second = subject.pull(at, cotangent).gradients, subject.pull(at, other).gradients
    if not (math.isfinite(norm(first)) and math.isfinite(norm(second))):
        return []  # that is another matter
    multiples = (3,) if brief else (1, 3, 5, 7)
    noise = sum(_own_rounding(subject, u, g, dtype, multiples) for u, g in ((cotangent, first), (other, second)))
    cases = {
        "zero": (0.0, tuple(0.0 * u for u in cotangent), tuple(0.0 * g for g in first)),
        "a negative multiple": (2.0, tuple(-2.0 * u for u in cotangent), tuple(-2.0 * g for g in first)),
        "a sum": (
            2.0,
            tuple(u + w for u, w in zip(cotangent, other, strict=True)),
            tuple(g + h for g, h in zip(first, second, strict=True)),
        ),
    }
    if brief:
        del cases["zero"], cases["a negative multiple"]
    elif any(u.numel() > 1 for u in cotangent):
        rest = subject.pull(at, tuple(1 - u for u in cotangent)).gradients
        equal = tuple(torch.ones_like(u) for u in cotangent)
        cases["equal weights"] = 2.0, equal, tuple(g.double() + h.double() for g, h in zip(first, rest, strict=True))
    for name, mask in _masks(cotangent, generator).items() if not brief else ():
        kept = subject.pull(at, tuple(u * m for u, m in zip(cotangent, mask, strict=True))).gradients
        rest = subject.pull(at, tuple(u * (1 - m) for u, m in zip(cotangent, mask, strict=True))).gradients
        cases[name] = 2.0, cotangent, tuple(a.double() + b.double() for a, b in zip(kept, rest, strict=True))
    worst, of, found = 0.0, "", []
    for name, (factor, weights, expected) in cases.items():
        off = _off(
            subject.pull(at, weights).gradients,
            expected,
            16 * noise * factor,
            norm(first) + norm(second) if name == "a sum" else norm(first),
        )
        worst, of = (off, name) if off > worst else (worst, of)
    for sign, what in ((-1, "underflow"), (1, "overflow")):
        begins, largest = _sizes(
            subject, cotangent, first, [k for k in EXPONENTS if sign * k > 0 and (not brief or abs(k) == 16)], 16 * noise, slack, dtype
        )
        if not begins:
            continue
        sizes = f"{'small' if sign < 0 else 'large'} multiples (from {begins:.3g} times on)"
        if dtype in HALF_DTYPES and (math.isinf(largest) if sign > 0 else begins * _largest(first) < 2 * torch.finfo(dtype).tiny):
            text = (
                f"from grad_output of {begins:.3g} times its ordinary size on, the gradient {what}s in {str(dtype).removeprefix('torch.')}"
            )
            found.append(Finding("size", "warning", text, "", {what: begins, "relative": largest}))
        elif largest <= _LOST_DIGITS or (_computes_in(subject, torch.float16) and not _computes_in(subject, torch.bfloat16)):
            text = f"for {sizes} of grad_output the backward loses digits: it is off by up to {largest:.2g} of its size"
            found.append(Finding("size", "warning", text, "", {what: begins, "relative": largest}))
        elif largest > worst:
            worst, of = largest, sizes
    if worst > slack:
        text = f"the backward is not linear in grad_output: for {of} of it, it is off by {worst:.2g} of its size"
        found.append(Finding("not-linear", "alarm", text, "", {"relative": worst}))
    return found


def _masks(cotangent: Point, generator: torch.Generator) -> dict[str, Point]:
    """Parts of grad_output that are zero, as masks and single losses send them: about half of it, and all but one element."""
    if sum(u.numel() for u in cotangent) == 1:
        return {}
    half = tuple(torch.randint(0, 2, u.shape, generator=generator).to(u) for u in cotangent)
    one = tuple(torch.zeros_like(u) for u in cotangent)
    first = max(range(len(one)), key=lambda i: one[i].numel())
    one[first].view(-1)[one[first].numel() // 2] = 1
    return {"a part that is zero elsewhere": half, "one element and the others": one}


def _sizes(
    subject: Subject, cotangent: Point, first: Point, exponents: Sequence[int], allowed: float, slack: float, dtype: torch.dtype
) -> tuple[float, float]:
    """The multiple of grad_output from which the gradient is not that multiple any more, 0 if there is none, and how far off it gets."""
    begins, largest, size = 0.0, 0.0, norm(first)
    least = torch.finfo(dtype).tiny / torch.finfo(dtype).eps
    for exponent in sorted(exponents, key=abs):
        factor = 2.0**exponent
        weights = tuple(factor * u for u in cotangent)
        if not all(bool(torch.isfinite(w).all()) for w in weights):
            break  # grad_output itself cannot be that size
        if dtype not in HALF_DTYPES and min(size, factor * size) < least:
            break  # nor can the gradient
        off = _off([g.double() / factor for g in subject.pull(subject.tensors, weights).gradients], first, allowed, size)
        if off > slack:
            begins, largest = begins or factor, max(largest, off)
    return begins, largest


def _largest(tensors: Sequence[torch.Tensor]) -> float:
    return max(float(tensor.abs().max()) for tensor in tensors)


def _off(got: Sequence[torch.Tensor], expected: Sequence[torch.Tensor], allowed: float, size: float) -> float:
    """How far a gradient is from what it should be, over its size; 0 within what is allowed, infinite where it is not finite."""
    apart_by = norm([g.double() - e.double() for g, e in zip(got, expected, strict=True)])
    if apart_by <= allowed:
        return 0.0
    off = apart_by / (max(norm(expected), size) or apart_by)  # where nothing was expected, all that came is off
    return off if math.isfinite(off) else math.inf


_NARROWER = (torch.bfloat16, torch.float16, torch.float32)


def _rounded(subject: Subject, generator: torch.Generator, dtype: torch.dtype) -> list[Finding]:
    """Whether the backward rounds grad_output: it is additive for weights of a few bits, which every dtype holds, and not for full mantissas."""
    if dtype in HALF_DTYPES:
        return []
    outputs, at = [output.reshape(-1) for output in subject.outputs], subject.tensors

    def drawn(*, short: bool) -> Point:
        # a second element, so that a single number is drawn too
        flat = random_cotangent([torch.cat([output, output.new_zeros(1)]) for output in outputs], generator, short=short)
        return tuple(weights[:-1].reshape(output.shape) for weights, output in zip(flat, subject.outputs, strict=True))

    def pulled(weights: Point) -> Point:
        return tuple(gradient.double() for gradient in subject.pull(at, weights).gradients)

    def additive(first: Point, second: Point) -> tuple[float, Point, Point]:
        whole = tuple(u + w for u, w in zip(first, second, strict=True))
        got, parts = pulled(whole), (pulled(first), pulled(second))
        return norm([g - a - b for g, a, b in zip(got, *parts, strict=True)]), whole, got

    noise = max(additive(drawn(short=True), drawn(short=True))[0] for _ in range(2))
    full = drawn(short=False)
    coarse = tuple((16 * weights.double()).round().to(weights.dtype) / 16 for weights in full)
    fine = tuple(weights - rounded for weights, rounded in zip(full, coarse, strict=True))
    off, whole, got = additive(coarse, fine)
    size = norm(got)
    if not math.isfinite(off) or off <= 16 * noise + 64 * torch.finfo(dtype).eps * size:
        return []
    for narrower in _NARROWER:
        if torch.finfo(narrower).eps > torch.finfo(dtype).eps:
            again = pulled(tuple(weights.to(narrower).to(weights.dtype) for weights in whole))
            if norm([a - g for a, g in zip(again, got, strict=True)]) <= 0.01 * off:
                name = str(narrower).removeprefix("torch.")
                if _computes_in(subject, narrower):
                    return [Finding("rounds", "note", f"forward and backward both compute in {name} inside", "", {"dtype": name})]
                text = f"the backward rounds grad_output to {name}: the gradient is off by {off / size:.2g} of its size"
                return [Finding("rounds", "alarm", text, "", {"relative": off / size, "dtype": name})]
    if off / size <= ROUGH[dtype]:
        return []  # it may be the rounding of a gradient that cancels
    text = f"the backward rounds grad_output: the gradient for weights with many bits is off by {off / size:.2g} of its size"
    return [Finding("rounds", "alarm", text, "", {"relative": off / size})]


def _computes_in(subject: Subject, narrower: torch.dtype) -> bool:
    """Whether the forward rounds to a narrower dtype too, its arguments or its outputs, at a place whose numbers fill their mantissas."""

    def rounded(tensors: Point) -> Point:
        return tuple(tensor.to(narrower).to(tensor.dtype) for tensor in tensors)

    def equal(first: Point, second: Point) -> bool:
        return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))

    beside = tuple(tensor * (1 + 1 / 733) for tensor in subject.tensors)
    outputs = guarded(subject, lambda: subject.outputs_at(beside))
    if outputs is None or equal(rounded(beside), beside):
        return False
    if equal(rounded(outputs), outputs):
        return not equal(outputs, tuple(map(torch.round, outputs)))  # a whole number is one in every dtype
    again = guarded(subject, lambda: subject.outputs_at(rounded(beside)))
    return again is not None and equal(again, outputs)


def _layouts(subject: Subject, cotangent: Point, slack: float, *, brief: bool) -> Iterator[Finding]:
    """The same numbers in another layout, as grad_output and as arguments, must give the same result."""
    outputs, leaves = subject.graph()
    reference = supplied(outputs, leaves, cotangent)
    floors = floors_of(subject, reference)
    chosen = ("a strided", "a channels-last") if brief else None
    for name, arrange in layouts_of(max(weight.ndim for weight in cotangent), chosen).items():
        weights = tuple(map(_where_possible(name, arrange), cotangent))
        yield from _compared(subject, weights, None, reference, floors, slack, f"{name} grad_output of the same numbers")
    for dim in (0, -1) if not brief else ():
        if all(weight.ndim > 1 for weight in cotangent):
            weights = tuple(expanded_along(weight, dim) for weight in cotangent)
            outputs, leaves = subject.graph()
            even = supplied(outputs, leaves, tuple(weight.contiguous() for weight in weights))
            yield from _compared(
                subject, weights, None, even, floors, slack, "a grad_output expanded along one dimension, as sum(dim) sends it"
            )
    if any(weight.numel() > 1 for weight in cotangent):
        ones = tuple(torch.ones_like(weight) for weight in cotangent)
        outputs, leaves = subject.graph()
        even = supplied(outputs, leaves, ones)
        yield from _compared(subject, tuple(map(expanded, ones)), None, even, floors, slack, "an expanded grad_output, as sum() sends it")
    for name, arrange in layouts_of(max(tensor.ndim for tensor in subject.tensors), chosen).items():
        if (
            name != "an offset" and not subject.random and not getattr(subject.fn, "as_recorded", False)
        ):  # random numbers may be drawn in the order of memory
            yield from _compared(
                subject, cotangent, _where_possible(name, arrange), reference, floors, slack, f"{name} input of the same numbers"
            )


def _where_possible(name: str, arrange: Layout) -> Layout:
    """A layout for those tensors that can have it."""
    return lambda tensor: arrange(tensor) if name in layouts_of(tensor.ndim) and tensor.layout == torch.strided else tensor


def _compared(
    subject: Subject, weights: Point, arrange: Layout | None, reference: Point, floors: Sequence[float], slack: float, what: str
) -> Iterator[Finding]:
    try:
        outputs, leaves = subject.graph(arrange=arrange)
        got = supplied(outputs, leaves, weights, copy=False)
    except OUTSIDE as error:
        subject.outside(error)
        yield Finding("layout", "warning", f"raises for {what}: {str(error).splitlines()[0]}")
        return
    off = max(
        apart(got, reference, floors),
        apart([output.detach() for output in outputs], subject.outputs) if arrange is not None else 0.0,
    )
    if off > slack:
        text = f"for {what}, the {'result' if arrange is not None else 'gradient'} is another, off by {off:.2g} of its size"
        yield Finding("layout", "alarm", text, "", {"relative": off})


# Distances in units in the last place; the longest are beside the state still.
_NEIGHBOURS = {
    torch.float64: (-99991, -20011, -2003, -211, -37, -5, 0, 7, 41, 199, 1999, 19997, 100003),
    torch.float32: (-53, -29, -17, -11, -5, -2, 0, 3, 7, 13, 19, 31, 59),
}


def _rough(subject: Subject, cotangent: Point, generator: torch.Generator, dtype: torch.dtype, *, brief: bool) -> Iterator[Finding]:
    """Notes how jagged the gradients are, as part of their noise, and says so where it is too much for rounding."""
    if dtype not in ROUGH:
        return
    subject.roughness = _roughness(subject, cotangent, generator, _NEIGHBOURS[dtype], brief=brief)
    for name, jagged in zip(subject.names, subject.roughness, strict=True):
        if jagged > ROUGH[dtype]:
            text = f"the gradient is jagged: between arguments that agree to their last digits, an element goes back and forth by {jagged:.2g} of its size"
            yield Finding("rough", "warning", text, name, {"relative": jagged})


def _roughness(subject: Subject, cotangent: Point, generator: torch.Generator, places: Sequence[int], *, brief: bool) -> tuple[float, ...]:
    """How far each gradient goes up and down between arguments that differ by a few units in the last place, over its size. A kink goes one way.

    It is that of the element that does so most; with `brief`, of all elements together: in a large model a few are always beside a kink.
    """
    places = places[::3] if brief else places
    signs = [random_signs(tensor, generator) for tensor in subject.tensors]
    steps = [torch.finfo(tensor.dtype).eps * scales(tensor, relative=True) for tensor in subject.tensors]
    pulled = []
    for k in places:
        point = tuple((x.double() + k * sign * step).to(x.dtype) for x, sign, step in zip(subject.tensors, signs, steps, strict=True))
        evaluation = guarded(subject, lambda point=point: subject.pull(point, cotangent))
        if evaluation is None or not evaluation.finite:
            return (0.0,) * len(subject.tensors)
        pulled.append(evaluation.gradients)
    found, floors = [], floors_of(subject, pulled[len(places) // 2])
    subject.spread = apart(pulled[len(places) // 2 - 1], pulled[len(places) // 2 + 1], floors)
    for floor, *gradients in zip(floors, *pulled, strict=True):
        stacked = torch.stack([gradient.double() for gradient in gradients])
        back_and_forth = stacked.diff(dim=0).abs().sum(0) - (stacked.amax(0) - stacked.amin(0))
        size = max(float(stacked[len(places) // 2].square().mean().sqrt()), floor)
        most = back_and_forth.square().mean().sqrt() if brief else back_and_forth.max()
        found.append(float(most) / len(places) / size if size > 0 else 0.0)
    return tuple(found)


def _undefined(subject: Subject, cotangent: Point, slack: float) -> list[Finding]:
    """An output that nobody uses has no cotangent: None, if the backward does not have it materialized; it must do what zeros do."""
    found = []
    for i, name in enumerate(subject.output_names):
        if len(subject.outputs) == 1:
            break
        outputs, leaves = subject.graph()
        if not outputs[i].requires_grad:
            continue
        try:
            alone = supplied([outputs[i]], leaves, [cotangent[i]])
        except (RuntimeError, TypeError, AttributeError) as error:
            text = f"the backward raises if {name} alone is used, where the cotangents of the others are None: {str(error).splitlines()[0]}"
            found.append(Finding("undefined", "alarm", text))
            continue
        zeros = tuple(u if k == i else torch.zeros_like(u) for k, u in enumerate(cotangent))
        off = apart(alone, subject.pull(subject.tensors, zeros).gradients, floors_of(subject, alone))
        if off > slack:
            text = f"if {name} alone is used, where the cotangents of the others are None, the gradient is off by {off:.2g} of its size"
            found.append(Finding("undefined", "alarm", text, "", {"relative": off}))
    return found


_MANY = 8  # arguments up to which each is differentiated alone


def _alone(subject: Subject, cotangent: Point, slack: float) -> Iterator[Finding]:
    """An argument must get the same gradient whether or not the others ask for one."""
    count = len(subject.tensors)
    if not 1 < count <= _MANY or subject.module is not None or getattr(subject.fn, "as_recorded", False):
        return
    together = subject.pull(subject.tensors, cotangent).gradients
    floors = floors_of(subject, together)
    for i, name in enumerate(subject.names):
        try:
            gradient = subject.alone(i, cotangent)
        except OUTSIDE as error:
            subject.outside(error)
            yield Finding(
                "undefined", "warning", f"the backward raises if this argument alone asks for a gradient: {_first_line(error)}", name
            )
            continue
        if gradient is None:
            continue
        off = apart([gradient], [together[i]], [floors[i]])
        if off > slack:
            text = f"if this argument alone asks for a gradient, it gets another one, off by {off:.2g} of its size"
            yield Finding("undefined", "alarm", text, name, {"relative": off})


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _own_rounding(subject: Subject, cotangent: Point, gradients: Point, dtype: torch.dtype, multiples: Sequence[int]) -> float:
    """How far the backward of cotangents that differ by a little is from proportional: its rounding, and next to nothing of what is really not linear."""
    step = {torch.float64: 2.0**-20, torch.float32: 2.0**-10}.get(dtype, 2.0**-3)
    worst = 0.0
    for k in multiples:
        factor = 1 + k * step
        got = subject.pull(subject.tensors, tuple(factor * u for u in cotangent)).gradients
        off = norm([g.double() / factor - e for g, e in zip(got, gradients, strict=True)])
        worst = max(worst, off if math.isfinite(off) else 0.0)
    return worst


def norm(tensors: Sequence[torch.Tensor]) -> float:
    """Of all tensors together, without overflow of the squares."""
    largest = max((float(tensor.double().abs().max()) for tensor in tensors if tensor.numel()), default=0.0)
    if largest == 0 or not math.isfinite(largest):
        return largest
    return largest * math.sqrt(sum(float((tensor.double() / largest).square().sum()) for tensor in tensors))


def apart(first: Sequence[torch.Tensor], second: Sequence[torch.Tensor], floors: Sequence[float] | None = None) -> float:
    """Largest relative difference of two lists of tensors, tensor by tensor; infinite where only one is finite. Sizes count as no smaller than `floors`."""
    worst = 0.0
    for a, b, floor in zip(first, second, floors or [0.0] * len(first), strict=True):
        if torch.equal(torch.isnan(a), torch.isnan(b)) and torch.equal(torch.nan_to_num(a), torch.nan_to_num(b)):
            continue
        size = max(norm([a]), norm([b]), floor)
        off = norm([a - b]) / size
        worst = max(worst, off if math.isfinite(off) else math.inf)
    return worst


_NEGLIGIBLE = 64.0  # times the root of the rounding unit: a gradient that small, beside the others, may be nothing but what they leave


def floors_of(subject: Subject, gradients: Point) -> list[float]:
    """Sizes below which a gradient is the rounding of the others, argument by argument: that of a bias in front of a normalisation is nothing else."""
    sizes = [float(scales(tensor, relative=False).max()) for tensor in subject.tensors]
    most = max(norm([gradient]) * size for gradient, size in zip(gradients, sizes, strict=True))
    epsilons = [torch.finfo(tensor.dtype).eps for tensor in subject.tensors]
    return [_NEGLIGIBLE * math.sqrt(epsilon) * most / size for epsilon, size in zip(epsilons, sizes, strict=True)]

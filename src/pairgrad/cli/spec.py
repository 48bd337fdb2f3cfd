"""The small languages of `pairgrad audit`: inputs such as `x=randn(32,128), n=3`, and domains such as `x=log 1..1e4`.

Python's parser makes a syntax tree of inputs, from which only literals, lists, tuples and calls of the known makers are read. Nothing is executed.
"""

from __future__ import annotations

import ast
import contextlib
import difflib
import math
import re
import textwrap
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from pairgrad.cli.spec_values import DTYPES, FIXED, KNOWN, LARGEST, MAKERS, MOST_DIMENSIONS, Making, as_tensor, load, tensors
from pairgrad.coherence import Box, LogRange
from pairgrad.coherence.subject.constraint import as_constraint
from pairgrad.ground.text import printable

LONGEST = 100_000  # characters
DEEPEST = 32  # brackets inside one another


class SpecError(ValueError):
    """What is wrong with a specification, and at which column."""

    def __init__(self, message: str, text: str, column: int, hint: str = "") -> None:
        self.message, self.text, self.column, self.hint = message, text, column, hint
        super().__init__(message)

    def __str__(self) -> str:
        line = self.text.replace("\n", " ")
        start = max(0, self.column - 50)  # the place stays in sight on a narrow terminal
        shown = ("..." if start else "") + line[start : start + 70] + ("..." if len(line) > start + 70 else "")
        pointer = " " * (self.column - start + (3 if start else 0)) + "^"
        hint = textwrap.wrap(self.hint, 78, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
        return "\n".join([f"{printable(self.message)} (column {self.column + 1})", f"    {shown}", f"    {pointer}", *hint])


_CONSTANTS = {"true": True, "false": False, "none": None}
_SWEEP = 'a sweep is written like reduction=["mean", "none"], shape=[(4, 5), (8,)], dtype=["float32", "bfloat16"], weight=[..., rand(5)]; ... leaves out'
_FIXED_USAGE = "fixed needs one value, for example fixed(randn(8))"
_SYNTAX_ERRORS = {  # words of Python's messages: what we say, and a hint
    "follows keyword": ("a value without a name cannot follow one with a name", ""),
    "expected argument value": ("expected a value after '='", KNOWN),
    "forgot a comma": ("expected a comma between two values", ""),
}
# What Python does not read as we do: files, texts without escapes, a colon before a dtype; and what would be read as something else.
_OURS = re.compile(
    r"""(?P<file>@(?:"[^"]*"|'[^']*'|[^\s,()\[\]"']+)) | (?P<text>"[^"]*"|'[^']*') | (?P<quote>["'])
    | (?P<open>[(\[]) | (?P<close>[)\]]) | (?P<colon>:) | (?P<space>\s) | (?P<refused>[#|])""",
    re.VERBOSE,
)


def check_inputs(text: str) -> None:
    """Raise a SpecError with the column if a text does not describe inputs. Nothing is made."""
    _Reader(text, None).inputs()


def make_inputs(text: str, seed: int, dtype: torch.dtype = torch.float64) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The positional and keyword arguments that a text describes; those of a file, if it is a single file.

    Where some are `fixed`, the other floating-point tensors are marked to be differentiated.
    """
    making = Making(torch.Generator().manual_seed(seed), dtype)
    args, kwargs, is_file = _Reader(text, making).inputs()
    if is_file:
        (loaded,) = args
        if isinstance(loaded, dict):
            return (), loaded
        return tuple(loaded) if isinstance(loaded, (tuple, list)) else (loaded,), {}
    if making.fixed:
        held = {id(tensor) for tensor in making.fixed}
        for tensor in tensors((args, kwargs)):
            if tensor.is_floating_point() and id(tensor) not in held:
                tensor.requires_grad_()
    return args, kwargs


def check_sweep(text: str) -> None:
    """Raise a SpecError with the column if a text does not describe a sweep. Nothing is made."""
    _Reader(text, None).sweep()


def make_sweep(text: str, seed: int, dtype: torch.dtype = torch.float64) -> dict[str, list[Any]]:
    """The values for each name that a text such as `reduction=["mean", "none"], shape=[(4, 5), (8,)], weight=[..., rand(5)]` describes."""
    return _Reader(text, Making(torch.Generator().manual_seed(seed), dtype)).sweep()


class _Reader:
    """Reads the arguments of the call `f(text)`. Files and texts are names to Python, made of underscores; `held` has them by column.

    Without `making` they are checked only: a tensor that would be made is None.
    """

    def __init__(self, text: str, making: Making | None) -> None:
        self.text, self.making = text, making
        self.held: dict[int, tuple[str, str]] = {}
        self.closing: list[str] = []
        if len(text) > LONGEST:
            raise SpecError(f"expected at most {LONGEST} characters, got {len(text)}", text, LONGEST)
        if not text.strip():
            raise SpecError("no inputs", text, len(text), KNOWN)
        source = _OURS.sub(self._as_python, text)
        if self.closing:
            raise SpecError(f"expected a comma or {self.closing[-1]!r}, but the text ends", text, len(text))
        try:
            self.bytes = source.encode()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of literals that Python will refuse one day
                call = ast.parse(f"f({source})", mode="eval").body
        except SyntaxError as error:
            raise self._unreadable(error) from None
        except (RecursionError, MemoryError):
            raise SpecError("too many operators inside one another", text, 0) from None
        except ValueError:
            raise SpecError("expected text without control characters", text, 0) from None
        assert isinstance(call, ast.Call)  # its brackets are closed where the text ends
        self.call = call

    def _as_python(self, found: re.Match[str]) -> str:
        """Of the same length, so that columns stay."""
        kind, part, column = found.lastgroup or "", found.group(), found.start()
        if kind in ("file", "text"):
            self.held[column] = kind, part.removeprefix("@").strip("\"'") if kind == "file" else part[1:-1]
            return "_" * len(part)
        if kind == "quote":
            raise SpecError("a quotation mark that is not closed", self.text, column)
        if kind == "refused":
            raise SpecError(f"unexpected {part!r}", self.text, column, KNOWN)
        if kind == "open":
            self.closing.append(")" if part == "(" else "]")
            if len(self.closing) > DEEPEST:
                raise SpecError("too many brackets inside one another", self.text, column)
        elif kind == "close" and (not self.closing or self.closing.pop() != part):
            raise SpecError(f"unexpected {part!r}", self.text, column)
        return {"colon": "|", "space": " "}.get(kind, part)

    def _unreadable(self, error: SyntaxError) -> SpecError:
        column = min(max((error.offset or 1) - 3, 0), len(self.text))
        if self.text[:column].rstrip().endswith(":"):
            return SpecError("expected a dtype after ':', got nothing", self.text, column, f"known: {', '.join(DTYPES)}")
        for theirs, (ours, hint) in _SYNTAX_ERRORS.items():
            if theirs in error.msg:
                return SpecError(ours, self.text, column, hint)
        word = re.match(r"[^\s,()\[\]=:]{1,40}|.?", self.text[column:])
        return SpecError(f"cannot read {word.group()!r}" if word and word.group() else "expected a value", self.text, column, KNOWN)

    def column(self, node: ast.expr | ast.keyword) -> int:
        return len(self.bytes[: node.col_offset - 2].decode())

    def shown(self, node: ast.expr | ast.keyword) -> str:
        part = self.text[self.column(node) : len(self.bytes[: (node.end_col_offset or 0) - 2].decode())]
        return repr(part if len(part) <= 40 else f"{part[:37]}...")

    def error(self, message: str, node: ast.expr | ast.keyword, hint: str = "") -> SpecError:
        return SpecError(message, self.text, self.column(node), hint)

    @contextlib.contextmanager
    def pointed_at(self, node: ast.expr) -> Iterator[None]:
        """What goes wrong while a value is made is an error at its column."""
        try:
            yield
        except SpecError:
            raise
        except Exception as error:  # torch has many for what it cannot make
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            ours = isinstance(error, OSError | ValueError)
            raise self.error(reason if ours else f"cannot make {self.shown(node)}: {reason}", node) from None

    def inputs(self) -> tuple[tuple[Any, ...], dict[str, Any], bool]:
        """Positional and keyword ones, and whether a single file is all of them."""
        call = self.call
        positional, keywords = tuple(self.value(node) for node in call.args), {}
        for keyword in call.keywords:
            if keyword.arg is None:
                raise self.error("expected name=value, got '**'", keyword)
            if keyword.arg in keywords:
                raise self.error(f"{keyword.arg!r} is given twice", keyword)
            keywords[keyword.arg] = self.value(keyword.value)
        return positional, keywords, len(call.args) == 1 and not keywords and self._held(call.args[0])[0] == "file"

    def sweep(self) -> dict[str, list[Any]]:
        """A list of values for each name. Dtypes are given as texts."""
        if self.call.args:
            raise self.error("a sweep needs names", self.call.args[0], _SWEEP)
        found: dict[str, list[Any]] = {}
        for keyword in self.call.keywords:
            if keyword.arg is None or keyword.arg in found:
                raise self.error(f"{keyword.arg!r} is given twice" if keyword.arg else "expected name=[...], got '**'", keyword, _SWEEP)
            items = keyword.value.elts if isinstance(keyword.value, ast.List) else [keyword.value]
            if not items:
                raise self.error("expected at least one value", keyword, _SWEEP)
            found[keyword.arg] = [self._of_sweep(keyword.arg, item) for item in items]
        return found

    def _of_sweep(self, name: str, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant) and node.value is ...:
            return ...
        value = self.value(node, inner=name == "shape")
        if name != "dtype":
            return value
        if not isinstance(value, str) or value not in DTYPES:
            raise self.error(f"expected a dtype as a text, got {self.shown(node)}", node, f"known: {', '.join(DTYPES)}")
        return DTYPES[value]

    def _held(self, node: ast.expr) -> tuple[str, str]:
        return self.held.get(self.column(node), ("", "")) if isinstance(node, ast.Name) else ("", "")

    def value(self, node: ast.expr, *, inner: bool = False) -> Any:
        """What a node stands for. A list is a tensor if it holds numbers; an inner list is left to the outer one."""
        kind, held = self._held(node)
        if kind:
            return held if kind == "text" else self._load(held, node)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr) and not isinstance(node.left, ast.BinOp):
            return self._cast(self.value(node.left), node.right, node)
        if isinstance(node, ast.Call):
            return self.made(node)
        word = node.id if isinstance(node, ast.Name) else str(node.value) if isinstance(node, ast.Constant) else ""
        if word.lower() in _CONSTANTS:
            return _CONSTANTS[word.lower()]
        if isinstance(node, ast.Tuple):
            return tuple(self.value(item) for item in node.elts)
        if isinstance(node, ast.List):
            values = [self.value(item, inner=True) for item in node.elts]
            with self.pointed_at(node):
                return values if inner or self.making is None else as_tensor(values, self.making.dtype)
        if isinstance(node, ast.Name | ast.Attribute):
            raise self._unknown(node)
        return self.number(node, "a value", KNOWN)

    def _cast(self, value: Any, dtype: ast.expr, node: ast.expr) -> torch.Tensor | None:
        name = dtype.id if isinstance(dtype, ast.Name) else ""
        if name not in DTYPES:
            hint = f"known: {', '.join(DTYPES)}{_similar(name, DTYPES)}"
            raise self.error(f"expected a dtype after ':', got {self.shown(dtype)}", dtype, hint)
        if self.making is None:
            return None
        if not isinstance(value, torch.Tensor | bool | int | float):
            raise self.error("only a tensor or a number has a dtype", node)
        with self.pointed_at(node):
            cast = value.to(DTYPES[name]) if isinstance(value, torch.Tensor) else torch.tensor(value, dtype=DTYPES[name])
        if any(value is tensor for tensor in self.making.fixed):
            self.making.fixed.append(cast)
        return cast

    def _unknown(self, node: ast.expr) -> SpecError:
        """The error for a name that means nothing here, or not in this way."""
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("torch", "numpy", "np"):
            example = MAKERS[node.attr].example if node.attr in MAKERS else "randn(4)"
            return self.error(f"names stand alone here: write {node.attr}, not {node.value.id}.{node.attr}", node, f"as in {example}")
        if not isinstance(node, ast.Name):
            return self.error(f"cannot read {self.shown(node)}", node, KNOWN)
        if node.id == FIXED:
            return self.error(_FIXED_USAGE, node)
        if node.id in MAKERS:
            return self.error(f"{node.id} needs arguments, for example {MAKERS[node.id].example}", node)
        return self.error(f"unknown name {self.shown(node)}{_similar(node.id, (*MAKERS, FIXED))}", node, KNOWN)

    def made(self, node: ast.Call) -> Any:
        """A call of a maker, or of `fixed`."""
        if not isinstance(node.func, ast.Name) or node.func.id not in (*MAKERS, FIXED):
            raise self._unknown(node.func)
        name = node.func.id
        for keyword in node.keywords:
            if keyword.arg == "dtype":
                raise self.error("a dtype follows after a colon", keyword, "as in randn(4):float32")
            raise self.error(f"{name} takes no names, got {self.shown(keyword)}", keyword)
        if name == FIXED:
            if len(node.args) != 1:
                raise self.error(_FIXED_USAGE, node)
            value = self.value(node.args[0])
            if self.making is not None:
                self.making.fixed += tensors(value)
            return value
        arguments = self.arguments(node, name)
        if self.making is None:
            return None
        with self.pointed_at(node):
            tensor = MAKERS[name].make(*arguments, self.making)
        return tensor.to(self.making.dtype) if tensor.is_floating_point() else tensor

    def arguments(self, node: ast.Call, name: str) -> list[Any]:
        """The numbers, then the shape as a tuple, however it was written."""
        maker = MAKERS[name]
        shapes = [item for item in node.args if isinstance(item, ast.Tuple | ast.List)]
        numbers = [self.number(item, "a number or a shape") for item in node.args if item not in shapes]
        wrong = self.error(f"{name} is written like {maker.example}", node)
        if len(shapes) > maker.shape or (shapes and node.args[-1] is not shapes[0]):
            raise wrong
        shape: tuple[int, ...] = ()  # of a single number, where it is left out
        if shapes:
            shape = tuple(self.size(self.number(item, "a size"), item) for item in shapes[0].elts)
        elif maker.numbers == (0,):
            shape, numbers = tuple(self.size(*pair) for pair in zip(numbers, node.args, strict=True)), []
        elif name == "randint" and len(numbers) == 2:
            a, b = numbers
            below = f"randint({a:g}, ({b:g},)) is {b:g} whole numbers below {a:g}"
            hint = f"{below}; randint({a:g}, {b:g}, (8,)) is 8 from {a:g} on, below {b:g}"
            raise self.error("randint of two numbers needs a shape too", node, hint)
        if len(numbers) not in maker.numbers:
            raise wrong
        if len(shape) > MOST_DIMENSIONS:
            raise self.error(f"{name} of {len(shape)} dimensions has more than {MOST_DIMENSIONS}", node)
        if math.prod(shape) > LARGEST:
            raise self.error(f"{name} of {math.prod(shape)} elements is more than {LARGEST}", node)
        return [*numbers, shape] if maker.shape else numbers

    def number(self, node: ast.expr, expected: str, hint: str = "") -> float:
        """A number with or without a sign."""
        sign, plain = 1, node
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
            sign, plain = -1 if isinstance(node.op, ast.USub) else 1, node.operand
        if not isinstance(plain, ast.Constant) or isinstance(plain.value, bool) or not isinstance(plain.value, int | float):
            raise self.error(f"expected {expected}, got {self.shown(node)}", node, hint)
        if isinstance(plain.value, int) and plain.value >= 2**63:
            raise self.error("a whole number must be below 2 to the 63", node)
        return sign * plain.value

    def size(self, value: float, node: ast.expr) -> int:
        if not isinstance(value, int) or not 0 <= value <= LARGEST:
            raise self.error(f"a size must be a whole number from 0 to {LARGEST}, got {value:g}", node)
        return value

    def _load(self, path: str, node: ast.expr) -> Any:
        if self.making is None:
            return None
        with self.pointed_at(node):
            if not Path(path).exists():
                near = _similar(Path(path).name, [file.name for file in Path(path).absolute().parent.glob("*")])
                raise ValueError(f"no such file: {path}{near}")
            return load(path, self.making.dtype)


def _similar(name: str, known: Any) -> str:
    near = difflib.get_close_matches(name, list(known), 1, 0.6)
    return f": did you mean {near[0]!r}?" if near else ""


_END = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_INTERVAL = re.compile(rf"\s*(?P<log>log\b)?\s*(?P<low>{_END})\s*\.\.\s*(?P<high>{_END})\s*$")
_NAMED = re.compile(r"\s*(?P<name>[A-Za-z_0-9][\w.\[\] ]*?)\s*=")
_DOMAIN = (
    'a domain is written like "0.1..4", "log 1e-3..1e3", "-1..1, log 1..1e4" (one for each input, _ for none) or "x=log 1..1e4, y=-1..1"'
)


_CONSTRAINTS = 'constraints are written like "symmetric", "simplex, _" (one for each input, _ for none) or "x=sphere, w=orthogonal"'


def parse_domain(text: str) -> Any:
    """An interval, a tuple of intervals and None, or a dict of intervals by name."""
    return _one_or_each(text, "an interval", _interval, _DOMAIN)


def parse_constraints(text: str) -> Any:
    """The name of a constraint, a tuple of names and None, or a dict of names by argument."""
    return _one_or_each(text, "a constraint", _constraint, _CONSTRAINTS)


def _one_or_each(text: str, what: str, read: Callable[[str, str, int], Any], grammar: str) -> Any:
    by_name: dict[str, Any] = {}
    listed: list[Any] = []
    column = 0
    for part in text.split(","):
        named = _NAMED.match(part)
        body = (part[named.end() :] if named else part).lstrip()
        start = column + len(part) - len(body)
        if named and named["name"] in by_name:
            raise SpecError(f"{named['name']!r} is given twice", text, column + named.start("name"), grammar)
        if named:
            by_name[named["name"]] = read(body, text, start)
        elif by_name:
            raise SpecError(f"{what} without a name cannot follow one with a name", text, start, grammar)
        else:
            listed.append(None if body.rstrip() == "_" else read(body, text, start))
        column += len(part) + 1
    if by_name and listed:
        raise SpecError(f"give every {what.split()[-1]} a name, or none", text, 0, grammar)
    return by_name or (listed[0] if len(listed) == 1 and listed[0] is not None else tuple(listed))


def _interval(body: str, text: str, column: int) -> Box | LogRange:
    if "..." in body:
        raise SpecError("three dots can be read in two ways: write two, as in 0.1..4 or 0..0.4", text, column + body.index("..."))
    found = _INTERVAL.match(body)
    if found is None:
        raise SpecError(f"expected low..high, got {body.strip()!r}" if body.strip() else "expected low..high", text, column, _DOMAIN)
    try:
        return (LogRange if found["log"] else Box)(float(found["low"]), float(found["high"]))
    except ValueError as error:
        reason = str(error).replace("LogRange needs", "log low..high needs").replace("Box needs", "low..high needs")
        raise SpecError(reason.partition(": use Box")[0], text, column) from None


def _constraint(body: str, text: str, column: int) -> str:
    try:
        return as_constraint(body.strip()).name
    except ValueError as error:
        raise SpecError(str(error).removeprefix("constraints: "), text, column, _CONSTRAINTS) from None

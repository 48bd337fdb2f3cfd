"""The small languages of `pairgrad audit`: inputs such as `x=randn(32,128), n=3`, and domains such as `x=log 1..1e4`. Nothing is evaluated as Python."""

from __future__ import annotations

import contextlib
import difflib
import math
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from pairgrad.cli.spec_values import DTYPES, FIXED, KNOWN, LARGEST, MAKERS, Maker, Making, as_tensor, load, tensors
from pairgrad.coherence import Box, LogRange


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
        return f"{self.message} (column {self.column + 1})\n    {shown}\n    {pointer}" + (f"\n{_laid_out(self.hint)}" if self.hint else "")


def _laid_out(hint: str) -> str:
    return textwrap.fill(hint, 78, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


_DEEPEST = 64  # values inside values, about twice the brackets

# Inputs -----------------------------------------------------------------------------------------------------------------

_TOKEN = re.compile(
    r"""(?P<space>\s+)
    | (?P<file>@(?:"[^"]*"|'[^']*'|[^\s,()\[\]"']+))
    | (?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?![\w.]))
    | (?P<name>[A-Za-z_]\w*)
    | (?P<text>"[^"]*"|'[^']*')
    | (?P<mark>[()\[\],=:])""",
    re.VERBOSE,
)


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    column: int


@dataclass(frozen=True)
class Inputs:
    """Parsed inputs: positional ones, keyword ones, each a recipe; `whole` if a single file is all of them."""

    positional: tuple[Any, ...]
    keywords: dict[str, Any]
    whole: bool = False

    def make(self, seed: int, dtype: torch.dtype = torch.float64) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments. Where some are `fixed`, the other floating-point tensors are marked to be differentiated."""
        making = Making(torch.Generator().manual_seed(seed), dtype)
        if self.whole:
            loaded = self.positional[0](making)
            if isinstance(loaded, dict):
                return (), loaded
            return (tuple(loaded) if isinstance(loaded, (tuple, list)) else (loaded,)), {}
        args = tuple(recipe(making) for recipe in self.positional)
        kwargs = {name: recipe(making) for name, recipe in self.keywords.items()}
        if making.fixed:
            held = {id(tensor) for tensor in making.fixed}
            for tensor in tensors((args, kwargs)):
                if tensor.is_floating_point() and id(tensor) not in held:
                    tensor.requires_grad_()
        return args, kwargs


Recipe = Callable[[Making], Any]


def parse_inputs(text: str) -> Inputs:
    """The inputs that a text describes; a SpecError with the column if it does not."""
    return _Parser(text).inputs()


class _Parser:
    def __init__(self, text: str) -> None:
        self.text, self.place, self.depth = text, 0, 0
        self.tokens: list[_Token] = []
        column = 0
        while column < len(text):
            found = _TOKEN.match(text, column)
            if found is None:
                raise self._unreadable(column)
            if found.lastgroup != "space":
                self.tokens.append(_Token(found.lastgroup or "", found.group(), column))
            column = found.end()
        self.tokens.append(_Token("end", "", len(text)))

    def _unreadable(self, column: int) -> SpecError:
        rest = self.text[column:]
        before = re.search(r"\b(?:torch|numpy|np)$", self.text[:column])
        attribute = re.match(r"\.(\w+)", rest)
        if before and attribute:
            name = attribute.group(1)
            example = MAKERS[name].example if name in MAKERS else "randn(4)"
            return SpecError(
                f"names stand alone here: write {name}, not {before.group()}.{name}", self.text, before.start(), f"as in {example}"
            )
        if rest[0] in "\"'":
            return SpecError("a quotation mark that is not closed", self.text, column)
        word = re.match(r"[^\s,()\[\]=:]+", rest)
        return SpecError(f"cannot read {word.group()!r}" if word else f"unexpected {rest[0]!r}", self.text, column, KNOWN)

    # Tokens

    @property
    def next(self) -> _Token:
        return self.tokens[self.place]

    def take(self) -> _Token:
        token = self.next
        self.place += 1
        return token

    def accept(self, mark: str) -> bool:
        if self.next.kind == "mark" and self.next.text == mark:
            self.place += 1
            return True
        return False

    def error(self, message: str, token: _Token | None = None, hint: str = "") -> SpecError:
        return SpecError(message, self.text, (token or self.next).column, hint)

    @contextlib.contextmanager
    def deeper(self, token: _Token) -> Iterator[None]:
        """One value inside another."""
        if self.depth == _DEEPEST:
            raise self.error("too many brackets inside one another", token)
        self.depth += 1
        yield
        self.depth -= 1

    # Grammar

    def inputs(self) -> Inputs:
        if self.next.kind == "end":
            raise self.error("no inputs", hint=KNOWN)
        positional: list[Recipe] = []
        keywords: dict[str, Recipe] = {}
        whole = len(self.tokens) == 2 and self.next.kind == "file"
        while self.next.kind != "end":
            token = self.next
            if token.kind == "name" and self.tokens[self.place + 1].text == "=":
                self.place += 2
                if token.text in keywords:
                    raise self.error(f"{token.text!r} is given twice", token)
                keywords[token.text] = self.value()
            elif keywords:
                raise self.error("a value without a name cannot follow one with a name", token)
            else:
                positional.append(self.value())
            if self.next.kind != "end" and not self.accept(","):
                raise self.error(f"expected a comma or the end, got {self.next.text!r}")
        return Inputs(tuple(positional), keywords, whole)

    def value(self) -> Recipe:
        token = self.next
        with self.deeper(token):
            recipe = self.atom()
        if not self.accept(":"):
            return recipe
        name = self.take()
        if name.text not in DTYPES:
            hint = f"known: {', '.join(DTYPES)}{_similar(name.text, DTYPES)}"
            raise self.error(f"expected a dtype after ':', got {name.text or 'nothing'!r}", name, hint)
        return self._cast(recipe, DTYPES[name.text], token)

    def _cast(self, recipe: Recipe, dtype: torch.dtype, token: _Token) -> Recipe:
        def make(making: Making) -> Any:
            value = recipe(making)
            if isinstance(value, torch.Tensor):
                was_fixed = any(value is tensor for tensor in making.fixed)
                value = value.to(dtype)
                making.fixed += [value] if was_fixed else []
                return value
            if isinstance(value, (bool, int, float)):
                return torch.tensor(value, dtype=dtype)
            raise self.error("only a tensor or a number has a dtype", token)

        return make

    def atom(self) -> Recipe:
        token = self.take()
        if token.kind == "number":
            value = _number(token.text)
            return lambda making: value
        if token.kind == "text":
            words = token.text[1:-1]
            return lambda making: words
        if token.kind == "file":
            path = token.text[1:].strip("\"'")
            return lambda making: self._load(path, token, making)
        if token.kind == "name":
            constants = {"true": True, "false": False, "none": None}
            if token.text.lower() in constants:
                constant = constants[token.text.lower()]
                return lambda making: constant
            return self.call(token)
        if token.text in ("[", "("):
            return self.listed(token)
        raise self.error(f"expected a value, got {token.text!r}" if token.text else "expected a value", token, KNOWN)

    def listed(self, opening: _Token, *, inner: bool = False) -> Recipe:
        """A tuple, or a list, which is a tensor if it holds numbers; an inner list is left to the outer one."""
        closing = "]" if opening.text == "[" else ")"
        items: list[Recipe] = []
        while not self.accept(closing):
            with self.deeper(self.next):
                items.append(self.listed(self.take(), inner=True) if closing == "]" and self.next.text == "[" else self.value())
            if not self.accept(",") and self.next.text != closing:
                what = f"got {self.next.text!r}" if self.next.text else "but the text ends"
                raise self.error(f"expected a comma or {closing!r}, {what}")

        def make(making: Making) -> Any:
            values = [item(making) for item in items]
            if closing == ")":
                return tuple(values)
            if inner:
                return values
            try:
                return as_tensor(values, making.dtype)
            except ValueError as error:
                raise self.error(str(error), opening) from None

        return make

    def call(self, name: _Token) -> Recipe:
        if name.text not in (*MAKERS, FIXED):
            message = f"unknown name {name.text!r}{_similar(name.text, (*MAKERS, FIXED))}"
            raise self.error(message, name, KNOWN)
        if not self.accept("("):
            example = "fixed(randn(8))" if name.text == FIXED else MAKERS[name.text].example
            raise self.error(f"{name.text} needs arguments, for example {example}", name)
        if name.text == FIXED:
            inner = self.value()
            if not self.accept(")"):
                raise self.error("expected ')' after the one value of fixed(...)")
            return lambda making: _hold(inner(making), making)
        maker = MAKERS[name.text]
        arguments: list[float | tuple[int, ...]] = []
        while not self.accept(")"):
            arguments.append(self.argument())
            if not self.accept(",") and self.next.text != ")":
                what = f"got {self.next.text!r}" if self.next.text else "but the text ends"
                raise self.error(f"expected a comma or ')' in {name.text}(...), {what}")
        made = self.arguments(name, maker, arguments)

        def make(making: Making) -> torch.Tensor:
            try:
                tensor = maker.make(*made, making)
            except (ValueError, RuntimeError) as error:
                raise self.error(str(error).splitlines()[0], name) from None
            return tensor.to(making.dtype) if tensor.is_floating_point() else tensor

        return make

    def argument(self) -> float | tuple[int, ...]:
        token = self.take()
        if token.kind == "number":
            return _number(token.text)
        if token.text in ("(", "["):
            sizes: list[int] = []
            closing = ")" if token.text == "(" else "]"
            while not self.accept(closing):
                size = self.take()
                if size.kind != "number":
                    raise self.error(f"expected a size, got {size.text or 'the end'!r}", size)
                sizes.append(self.size(_number(size.text), size))
                if not self.accept(",") and self.next.text != closing:
                    raise self.error(f"expected a comma or {closing!r} in a shape")
            return tuple(sizes)
        if token.text == "dtype":
            raise self.error("a dtype follows after a colon", token, "as in randn(4):float32")
        raise self.error(f"expected a number or a shape, got {token.text or 'the end'!r}", token)

    def arguments(self, name: _Token, maker: Maker, given: list[float | tuple[int, ...]]) -> list[Any]:
        """The numbers, then the shape as a tuple, however it was written."""
        wrong = self.error(f"{name.text} is written like {maker.example}", name)
        numbers = [value for value in given if not isinstance(value, tuple)]
        if any(isinstance(value, tuple) for value in given[:-1]):
            raise wrong
        if not maker.shape:
            if len(given) not in maker.numbers or len(numbers) != len(given):
                raise wrong
            return numbers
        if given and isinstance(given[-1], tuple):
            shape = given[-1]
        elif maker.numbers == (0,):
            shape, numbers = tuple(self.size(value, name) for value in numbers), []
        elif name.text == "randint" and len(numbers) == 2:
            a, b = numbers
            hint = (
                f"randint({a:g}, ({b:g},)) is {b:g} whole numbers below {a:g}; randint({a:g}, {b:g}, (8,)) is 8 from {a:g} on, below {b:g}"
            )
            raise self.error("randint of two numbers needs a shape too", name, hint)
        else:  # a single number where the shape is left out
            shape = ()
        if len(numbers) not in maker.numbers:
            raise wrong
        if math.prod(shape) > LARGEST:
            raise self.error(f"{name.text} of {math.prod(shape)} elements is more than {LARGEST}", name)
        return [*numbers, shape]

    def size(self, value: float, token: _Token) -> int:
        if not isinstance(value, int) or value < 0:
            raise self.error(f"a size must be a whole number >= 0, got {value:g}", token)
        return value

    def _load(self, path: str, token: _Token, making: Making) -> Any:
        try:
            return load(path, making.dtype)
        except FileNotFoundError:
            near = _similar(Path(path).name, [file.name for file in Path(path).absolute().parent.glob("*")])
            raise self.error(f"no such file: {path}{near}", token) from None
        except (OSError, ValueError, RuntimeError) as error:
            raise self.error(str(error), token) from None


def _hold(value: Any, making: Making) -> Any:
    making.fixed += tensors(value)
    return value


def _number(text: str) -> float:
    try:
        return int(text)
    except ValueError:
        return float(text)


def _similar(name: str, known: Any) -> str:
    near = difflib.get_close_matches(name, list(known), 1, 0.6)
    return f": did you mean {near[0]!r}?" if near else ""


# Domains ----------------------------------------------------------------------------------------------------------------

_END = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_INTERVAL = re.compile(rf"\s*(?P<log>log\b)?\s*(?P<low>{_END})\s*\.\.\s*(?P<high>{_END})\s*$")
_NAMED = re.compile(r"\s*(?P<name>[A-Za-z_0-9][\w.\[\] ]*?)\s*=")
_DOMAIN = (
    'a domain is written like "0.1..4", "log 1e-3..1e3", "-1..1, log 1..1e4" (one for each input, _ for none) or "x=log 1..1e4, y=-1..1"'
)


def parse_domain(text: str) -> Any:
    """An interval, a tuple of intervals and None, or a dict of intervals by name."""
    by_name: dict[str, Any] = {}
    listed: list[Any] = []
    column = 0
    for part in text.split(","):
        named = _NAMED.match(part)
        body = part[named.end() :] if named else part
        start = column + (named.end() if named else 0)
        start += len(body) - len(body.lstrip())
        if named and named["name"] in by_name:
            raise SpecError(f"{named['name']!r} is given twice", text, column + named.start("name"), _DOMAIN)
        if named:
            by_name[named["name"]] = _interval(body, text, start)
        elif by_name:
            raise SpecError("an interval without a name cannot follow one with a name", text, start, _DOMAIN)
        else:
            listed.append(None if body.strip() == "_" else _interval(body, text, start))
        column += len(part) + 1
    if by_name and listed:
        raise SpecError("give every interval a name, or none", text, 0, _DOMAIN)
    return by_name or (listed[0] if len(listed) == 1 and listed[0] is not None else tuple(listed))


def _interval(body: str, text: str, column: int) -> Box | LogRange:
    if "..." in body:
        raise SpecError(
            "three dots can be read in two ways: write two, as in 0.1..4 or 0..0.4",
            text,
            column + body.index("...") - (len(body) - len(body.lstrip())),
        )
    found = _INTERVAL.match(body)
    if found is None:
        raise SpecError(f"expected low..high, got {body.strip()!r}" if body.strip() else "expected low..high", text, column, _DOMAIN)
    try:
        return (LogRange if found["log"] else Box)(float(found["low"]), float(found["high"]))
    except ValueError as error:
        reason = str(error).replace("LogRange needs", "log low..high needs").replace("Box needs", "low..high needs")
        raise SpecError(reason.partition(": use Box")[0], text, column) from None

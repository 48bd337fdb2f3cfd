"""Mutants of a file, made by the operators of cosmic-ray."""

from __future__ import annotations

import ast
import hashlib
from dataclasses import dataclass
from functools import cache

from tests.mutation.scope import SOURCE

# One replacement for each arithmetic operator, both neighbours of each comparison, and everything that decides. cosmic-ray can replace every operator by
# every other; most of those die of a TypeError and tell nothing about the tests.
OPERATORS = (
    *(
        f"core/ReplaceBinaryOperator_{pair}"
        for pair in (
            "Add_Sub",
            "Sub_Add",
            "Mul_Div",
            "Div_Mul",
            "FloorDiv_Div",
            "Pow_Mul",
            "Mod_Mul",
            "BitOr_BitAnd",
            "BitAnd_BitOr",
            "BitXor_BitAnd",
            "RShift_LShift",
            "LShift_RShift",
        )
    ),
    *(
        f"core/ReplaceComparisonOperator_{pair}"
        for pair in (
            "Lt_LtE",
            "LtE_Lt",
            "Gt_GtE",
            "GtE_Gt",
            "Lt_GtE",
            "LtE_Gt",
            "Gt_LtE",
            "GtE_Lt",
            "Eq_NotEq",
            "NotEq_Eq",
            "Is_IsNot",
            "IsNot_Is",
        )
    ),
    "core/ReplaceUnaryOperator_Delete_USub",
    "core/ReplaceUnaryOperator_Delete_Invert",
    "core/ReplaceUnaryOperator_Delete_Not",
    "core/ReplaceTrueWithFalse",
    "core/ReplaceFalseWithTrue",
    "core/ReplaceAndWithOr",
    "core/ReplaceOrWithAnd",
    "core/AddNot",
    "core/ReplaceBreakWithContinue",
    "core/ReplaceContinueWithBreak",
    "core/ExceptionReplacer",
    "core/NumberReplacer",
    "core/ZeroIterationForLoop",
    "core/RemoveDecorator",
)


@dataclass(frozen=True)
class Place:
    """One application of an operator to a file: cheap to list, and enough to make the mutant."""

    module: str
    operator: str
    occurrence: int
    line: int

    @property
    def key(self) -> str:
        return f"{self.module} {self.operator} {self.occurrence}"


@dataclass(frozen=True)
class Mutant:
    """A file with one mistake in it.

    Attributes:
        place: the operator and where it was applied.
        function: qualified name of the innermost function or class around it, or "<module>".
        before, after: the lines that differ, without indentation.
        source: the whole file.
        lines: first and last line of the statement around it, to find the tests that execute it.
        at_import: whether the change is executed when the module is imported, not when a function is called.
    """

    place: Place
    function: str
    before: str
    after: str
    source: str
    lines: tuple[int, int]
    at_import: bool


def text_of(module: str) -> str:
    return (SOURCE / module).read_text(encoding="utf-8")


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@cache
def code_digest(source: str) -> str:
    """Of what is executed: comments and docstrings may change, and layout."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return digest(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(node) is not None:
            del node.body[0]
    return digest(ast.dump(tree))


def places(module: str) -> list[Place]:
    """All places of a file, in the order of the operators."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator

    nodes = list(ast_nodes(get_ast(text_of(module))))
    found = []
    for name in OPERATORS:
        operator = get_operator(name)()
        starts = [start[0] for node in nodes for start, _ in operator.mutation_positions(node)]
        found += [Place(module, name, occurrence, line) for occurrence, line in enumerate(starts)]
    return found


def make(place: Place) -> Mutant | None:
    """None if the file means the same as before: a change of an annotation, which is never evaluated."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    original = text_of(place.module)
    source = mutate_code(original, get_operator(place.operator)(), place.occurrence)
    if source is None:
        raise ValueError(f"{place.key} does not exist: the file has changed since its places were listed")
    if _meaning(original) == _meaning(source):
        return None
    before, after = _changed(original, source)
    function, lines, at_import = _surroundings(original, place.line)
    return Mutant(place, function, before, after, source, lines, at_import)


@cache
def _meaning(source: str) -> str:
    """The syntax tree without annotations. A file that cannot be parsed is a mutant too: it dies at once."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return source
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(None)
    return ast.dump(tree)


def _changed(original: str, source: str) -> tuple[str, str]:
    a, b = original.splitlines(), source.splitlines()
    start = next((i for i, (p, q) in enumerate(zip(a, b, strict=False)) if p != q), min(len(a), len(b)))
    end = 0
    while end < min(len(a), len(b)) - start and a[-1 - end] == b[-1 - end]:
        end += 1
    return tuple(" ".join(" ".join(lines[start : len(lines) - end]).split()) for lines in (a, b))  # type: ignore[return-value]


def _surroundings(source: str, line: int) -> tuple[str, tuple[int, int], bool]:
    names: list[str] = []
    lines, at_import = (line, line), True
    node: ast.AST = ast.parse(source)
    while True:
        inner = next((n for n in _statements(node) if _first(n) <= line <= (n.end_lineno or n.lineno)), None)
        if inner is None:
            return ".".join(names) or "<module>", lines, at_import
        body = _statements(inner)
        header_end = min((_first(n) for n in body), default=(inner.end_lineno or inner.lineno) + 1) - 1
        lines = (_first(inner), max(header_end, inner.lineno))
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.append(inner.name)
            if line > lines[1] and not isinstance(inner, ast.ClassDef):
                at_import = False
        node = inner


def _statements(node: ast.AST) -> list[ast.stmt]:
    found = [n for name in ("body", "orelse", "finalbody") for n in (getattr(node, name, None) or []) if isinstance(n, ast.stmt)]
    for handler in getattr(node, "handlers", None) or getattr(node, "cases", None) or []:
        found += handler.body
    return found


def _first(node: ast.stmt) -> int:
    return min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])

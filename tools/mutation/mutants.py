"""Lists the mutants of a file and makes them, with operators of cosmic-ray."""

from __future__ import annotations

import ast
from dataclasses import dataclass

# One replacement for each arithmetic operator, both neighbours of each comparison, and everything that decides. cosmic-ray can replace every operator by
# every other; most of those mutants raise a TypeError and say nothing about the tests.
_ARITHMETIC = (
    "Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "FloorDiv_Div", "Pow_Mul", "Mod_Mul",
    "BitOr_BitAnd", "BitAnd_BitOr", "BitXor_BitAnd", "RShift_LShift", "LShift_RShift",
)  # fmt: skip
_COMPARISONS = (
    "Lt_LtE", "LtE_Lt", "Gt_GtE", "GtE_Gt", "Lt_GtE", "LtE_Gt", "Gt_LtE", "GtE_Lt",
    "Eq_NotEq", "NotEq_Eq", "Is_IsNot", "IsNot_Is",
)  # fmt: skip
_OTHERS = (
    "ReplaceUnaryOperator_Delete_USub", "ReplaceUnaryOperator_Delete_Invert", "ReplaceUnaryOperator_Delete_Not",
    "ReplaceTrueWithFalse", "ReplaceFalseWithTrue", "ReplaceAndWithOr", "ReplaceOrWithAnd", "AddNot",
    "ReplaceBreakWithContinue", "ReplaceContinueWithBreak", "ZeroIterationForLoop", "ExceptionReplacer", "NumberReplacer", "RemoveDecorator",
)  # fmt: skip
OPERATORS = (
    *(f"core/ReplaceBinaryOperator_{pair}" for pair in _ARITHMETIC),
    *(f"core/ReplaceComparisonOperator_{pair}" for pair in _COMPARISONS),
    *(f"core/{name}" for name in _OTHERS),
)


@dataclass(frozen=True)
class Mutant:
    """One application of an operator to a file of the package. `lines` are the first and last line of the statement around it."""

    file: str
    operator: str
    occurrence: int
    line: int
    lines: tuple[int, int]

    @property
    def key(self) -> str:
        return f"{self.file} {self.operator} {self.occurrence}"


def listed(file: str, source: str) -> list[Mutant]:
    """All mutants of a file. Left out: annotations, which are never evaluated, and floating-point numbers so large that adding 1 does not change them."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator

    nodes = list(ast_nodes(get_ast(source)))
    tree = ast.parse(source)
    text = source.splitlines()
    skipped = _annotations(tree)
    found = []
    for name in OPERATORS:
        operator = get_operator(name)()
        starts = [(start, node.get_code(include_prefix=False)) for node in nodes for start, _ in operator.mutation_positions(node)]
        for occurrence, ((line, column), code) in enumerate(starts):
            place = line, len(text[line - 1][:column].encode()) if line <= len(text) else 0
            same = name == "core/NumberReplacer" and ast.literal_eval(code) == ast.literal_eval(code) + 1
            if not same and not any(first <= place < last for first, last in skipped):
                found.append(Mutant(file, name, occurrence, line, _statement(tree, line)))
    return found


def mutated(mutant: Mutant, source: str) -> str:
    """The source with the mistake in it."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    text = mutate_code(source, get_operator(mutant.operator)(), mutant.occurrence)
    if text is None:
        raise ValueError(f"{mutant.key} does not exist: the file has changed since its mutants were listed")
    return text


def change(before: str, after: str) -> str:
    """The lines that differ between two sources, each side on one line."""
    a, b = before.splitlines(), after.splitlines()
    start = next((i for i, (p, q) in enumerate(zip(a, b, strict=False)) if p != q), min(len(a), len(b)))
    end = 0
    while end < min(len(a), len(b)) - start and a[-1 - end] == b[-1 - end]:
        end += 1
    return "  ->  ".join(" ".join(" ".join(lines[start : len(lines) - end]).split()) for lines in (a, b))


def _annotations(tree: ast.AST) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    nodes = [getattr(node, name, None) for node in ast.walk(tree) for name in ("annotation", "returns")]
    return [((n.lineno, n.col_offset), (n.end_lineno or 0, n.end_col_offset or 0)) for n in nodes if isinstance(n, ast.expr)]


def _statement(tree: ast.AST, line: int) -> tuple[int, int]:
    """First and last line of the innermost statement; without its body, if it has one."""
    lines = line, line
    for node in ast.walk(tree):  # outer ones first
        if isinstance(node, ast.stmt):
            first = min(n.lineno for n in [node, *getattr(node, "decorator_list", [])])
            last = node.end_lineno or node.lineno
            if first <= line <= last:
                body = getattr(node, "body", None)
                lines = first, max(node.lineno, body[0].lineno - 1) if body and line < body[0].lineno else last
    return lines

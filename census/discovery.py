"""The functions with a backward of their own that a package defines, found in its source: which of them were reached is the first question of a census."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

BASES = {"Function", "InplaceFunction", "NestedIOFunction", "_SingleLevelFunction", "CustomFunction"}
JAX = ("custom_vjp", "custom_jvp")
WORDS = ("Function", "register_autograd", *JAX)
NODES = (ast.ClassDef, ast.FunctionDef, ast.Assign, ast.Call)
SKIPPED = {"tests", "test", "testing", "examples", "benchmarks", "docs", "third_party"}


@dataclass(frozen=True)
class Defined:
    """A function that a package defines.

    Attributes:
        name: qualified name in its module; of an operator, its name.
        where: file and first line, from the folder of the installation on.
        lines: first and last line.
        kind: "Function", "operator", "custom_vjp" or "custom_jvp".
    """

    name: str
    where: str
    lines: tuple[int, int]
    kind: str


def defined(module: str) -> list[Defined]:
    """Those of a top-level module that is installed, whether or not its parts can be imported."""
    spec = importlib.util.find_spec(module)
    if spec is None:
        raise ModuleNotFoundError(f"no module named {module}")
    if spec.submodule_search_locations:
        roots = [Path(p) for p in spec.submodule_search_locations]
        files = [f for root in roots for f in sorted(root.rglob("*.py")) if not SKIPPED & set(f.relative_to(root).parts[:-1])]
    else:
        roots, files = [Path(spec.origin or "")], [Path(spec.origin or "")]
    parent = roots[0].parents[module.count(".")]
    found: list[tuple[str, str, ast.AST]] = []
    for file in files:
        text = file.read_text(encoding="utf-8", errors="replace")
        if any(word in text for word in WORDS):
            with contextlib.suppress(SyntaxError, ValueError):
                name = str(file.relative_to(parent))
                found += [(name, scope, node) for scope, node in _scoped(ast.parse(text), "") if isinstance(node, NODES)]
    classes = [(node.name, {_last(base) for base in node.bases}) for _, _, node in found if isinstance(node, ast.ClassDef)]
    bases = set(BASES)
    while more := {name for name, derived in classes if derived & bases} - bases:  # a Function may derive from another one of the package
        bases |= more
    return [made for file, scope, node in found for made in _of(node, scope, bases, file)]


def _of(node: ast.AST, scope: str, bases: set[str], file: str) -> Iterator[Defined]:
    """What a node of the source defines: nothing, or one function."""

    def made(name: str, kind: str, last: int | None = None) -> Defined:
        first = node.lineno
        return Defined(name, f"{file}:{first}", (first, last or first), kind)

    if isinstance(node, ast.ClassDef):
        own = {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
        if {"backward", "vjp"} & own and any(_last(base) in bases for base in node.bases):
            yield made(scope + node.name, "Function", node.end_lineno)
    elif isinstance(node, ast.FunctionDef):
        kinds = [_last(part) for decorator in node.decorator_list for part in ast.walk(decorator)]
        yield from (made(scope + node.name, kind, node.end_lineno) for kind in kinds if kind in JAX)
    elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and _last(node.value.func) in JAX:
        yield made(scope + ast.unparse(node.targets[0]), str(_last(node.value.func)))
    elif isinstance(node, ast.Call) and _last(node.func) == "register_autograd" and node.args:
        first = node.args[0]
        owner = ast.unparse(node.func).removesuffix(".register_autograd")  # an operator, or torch.library
        spelled = isinstance(first, ast.Constant) and isinstance(first.value, str)
        yield made(str(first.value) if spelled else ast.unparse(first) if owner.endswith("library") else owner, "operator")


def _scoped(node: ast.AST, scope: str) -> Iterator[tuple[str, ast.AST]]:
    """Every node below, with the qualified name of what it is in."""
    for child in ast.iter_child_nodes(node):
        yield scope, child
        inner = scope
        if isinstance(child, ast.ClassDef):
            inner = f"{scope}{child.name}."
        elif isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            inner = f"{scope}{child.name}.<locals>."
        yield from _scoped(child, inner)


def _last(node: ast.AST) -> str | None:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None

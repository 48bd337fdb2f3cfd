"""Launches and temporaries of a module that inductor has generated, read from its text."""

from __future__ import annotations

import ast
from math import prod
from typing import Any

_BYTES = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2, "int16": 2, "int8": 1, "uint8": 1, "bool": 1}
_NO_LAUNCH = (
    "reinterpret_tensor",
    "empty_strided_cuda",
    "assert_size_stride",
    "assert_alignment",
    "get_raw_stream",
    "clear",
    "copy_if_misaligned",
)  # inputs of users are aligned


def read(code: str) -> dict[str, Any]:
    """What the function `call` of a module does: the names of its kernels and other launches in order, and the largest sum of living temporaries in bytes."""
    (call,) = (node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.FunctionDef) and node.name == "call")
    launches: list[str] = []
    memory = _Memory()
    for statement in _flat(call.body):
        for node in ast.walk(statement):
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func)
                if name.endswith(".run") or name.startswith(("extern_kernels.", "torch.ops.", "aten.")):
                    launches.append(name.removesuffix(".run"))
                elif not name.split(".")[-1].startswith(_NO_LAUNCH) and not name.startswith(("torch.cuda.", "empty_strided")):
                    launches.append(f"unknown: {name}")
        memory.take(statement)
    return {"launches": launches, "peak": memory.peak}


def _flat(body: list[ast.stmt]) -> list[ast.stmt]:
    """Statements in order, with those of `with` blocks in place of the block."""
    found = []
    for statement in body:
        found += _flat(statement.body) if isinstance(statement, ast.With) else [statement]
    return found


class _Memory:
    """Which storages the names of a straight-line function hold."""

    def __init__(self) -> None:
        self.holds: dict[str, int] = {}
        self.sizes: list[int] = []
        self.peak = 0

    def take(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.Delete):
            for target in statement.targets:
                self.holds.pop(ast.unparse(target), None)
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            name, value = statement.targets[0].id, statement.value
            if isinstance(value, ast.Call) and ast.unparse(value.func) == "empty_strided_cuda":
                self.holds[name] = len(self.sizes)
                shape = ast.literal_eval(value.args[0])
                self.sizes.append(prod(shape) * _BYTES[ast.unparse(value.args[2]).removeprefix("torch.")])
            else:
                same = value.args[0] if isinstance(value, ast.Call) and ast.unparse(value.func) == "reinterpret_tensor" else value
                if ast.unparse(same) in self.holds:
                    self.holds[name] = self.holds[ast.unparse(same)]
        self.peak = max(self.peak, sum(self.sizes[storage] for storage in set(self.holds.values())))

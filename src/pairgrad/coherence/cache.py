"""Results of audits, kept in a folder, so that what did not change is not audited again.

An entry belongs to a callable with its closure, its arguments, the settings of the audit and the versions of pairgrad, torch and Python. It holds for as
long as the source does that ran in the audit: the definitions that were called, all that they name, in their files and in those they import from, and every
statement of these files outside of definitions. Comments and the layout of the source do not count. What cannot be described like that is not kept.
"""

from __future__ import annotations

import ast
import enum
import functools
import hashlib
import inspect
import json
import os
import sys
import sysconfig
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pairgrad.coherence.report.report import Report
from pairgrad.ground._torch_private import operator_functions
from pairgrad.ground.devices import autocast_types, has_values
from pairgrad.ground.files import write_atomically
from pairgrad.ground.reading import read_bytes, read_json

VARIABLE = "PAIRGRAD_AUDIT_CACHE"
SCHEMA = "pairgrad.cache/2"
_OWN = [Path(__file__).parents[1] / part for part in ("coherence", "ground", "testing", "cli")]


def _folders(*places: Any) -> tuple[str, ...]:
    return tuple(f"{Path(place).resolve()}{os.sep}" for place in places)


_INSTALLED = _folders(sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))  # files there count as a whole
_VERSIONED = _folders(*_OWN, Path(torch.__file__).parent, Path(np.__file__).parent)  # the version stands for these
_STANDARD = _folders(sysconfig.get_path("stdlib"))
_SHELLS = ("<stdin>", "<console>", "<ipython", "<doctest")
_Names = dict[str, set[str]]  # by file: definitions at its top


class Unknown(Exception):
    """Something whose value has no description that is the same in another process."""


class Cache:
    """The folder of results for one audit.

    Attributes:
        folder: where results are kept.
        found: the report that was kept for this audit, if there is one that still holds.
    """

    def __init__(self, folder: str | os.PathLike[str], fn: Callable[..., Any], inputs: Any, options: Mapping[str, Any]) -> None:
        self.folder, self.found = Path(folder), None
        self._ran: set[types.CodeType] = set()
        try:
            described = [describe(value, self._ran) for value in (fn, inputs, dict(options))]
            self._file = self.folder / f"{_digest([SCHEMA, *_environment(), *described])}.json"
        except Unknown:
            self._file = None
            return
        try:
            entry = read_json(read_bytes(self._file))
            ran = {file: set(names) for file, names in entry["ran"].items()}
            whole = entry["schema"] == SCHEMA and entry["sha256"] == _digest(entry["report"])
            if whole and entry["source"] == _source(ran, lines=entry["lines"]):
                self.found = replace(Report.from_dict(entry["report"]), cached=True)
        except Exception:
            pass  # there is none, or it is damaged: it is made again

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Notes which functions run meanwhile."""
        if self._file is None:
            yield
            return
        hooks = ((sys.gettrace, sys.settrace), (sys.getprofile, sys.setprofile))
        free = next((put for taken, put in hooks if taken() is None), None)  # coverage and debuggers trace, profilers profile
        if free is None:
            self._file = None
            yield
            return
        ran, importing = self._ran, 0

        def note(frame: types.FrameType, event: str, argument: Any) -> Any:
            nonlocal importing
            code = frame.f_code
            if code.co_name == "_find_and_load":  # what runs in an import is no part of the callable
                importing += (event == "call") - (event == "return")
                frame.f_trace_lines = False
                return note  # for its end
            if event == "call" and not importing:
                ran.add(code)
            return None

        free(note)
        try:
            yield
        finally:
            free(None)

    def keep(self, report: Report) -> None:
        """Writes a report, if it is whole: one for which time was up is not."""
        if self._file is None or not report.complete or any("time was up" in what for what in report.left_out):
            return
        ran: _Names = {}
        for code in self._ran:
            made = code.co_name.startswith(("__", "<lambda>"))  # by dataclasses, or by namedtuple
            typed = code.co_filename == "<string>" and not made
            if typed or code.co_filename.startswith(_SHELLS):
                return  # nothing says whether it is the same again
            if code.co_filename.startswith("<") or _is_generated(code.co_filename):  # of Python, dataclasses, torch.fx and torch.compile
                continue
            file = os.path.realpath(code.co_filename)
            if not _is_versioned(file):
                if _file(file) is None:
                    return
                ran.setdefault(file, set()).update(_definition_at(file, code.co_firstlineno))
        lines = not report.passed  # which the report names
        entry = {"schema": SCHEMA, "ran": {file: sorted(names) for file, names in sorted(ran.items())}, "lines": lines}
        content = json.loads(json.dumps(report.to_dict(), allow_nan=False))  # as it will be read
        text = json.dumps(entry | {"source": _source(ran, lines=lines), "report": content, "sha256": _digest(content)})
        try:
            write_atomically(self._file, text)
        except OSError as error:
            warnings.warn(f"the result of an audit cannot be kept in {self.folder}: {error.strerror or error}", stacklevel=4)


def kept_in(place: str | os.PathLike[str] | bool | None, fn: Callable[..., Any], inputs: Any, options: Mapping[str, Any]) -> Cache | None:
    """The cache for an audit; None where results are not kept."""
    if place is True or not isinstance(place, (str, os.PathLike, bool, type(None))):
        raise TypeError(f"cache must be a folder, False, or None for the one that {VARIABLE} names, got {place!r}")
    folder = os.environ.get(VARIABLE) if place is None else place
    return Cache(folder, fn, inputs, options) if folder else None


def _environment() -> list[str]:
    """What results depend on besides the callable and its arguments."""
    flags = (
        torch.get_default_dtype(),
        torch.get_float32_matmul_precision(),
        torch.are_deterministic_algorithms_enabled(),
        *map(torch.is_autocast_enabled, autocast_types()),
    )
    libraries = sorted(f"{path}:{os.path.getsize(path)}" for path in torch.ops.loaded_libraries if os.path.exists(path))
    return [
        _own_source(),
        torch.__version__,
        np.__version__,
        sys.version,
        str(flags),
        os.environ.get("TRITON_INTERPRET", ""),
        *libraries,
    ]


@functools.cache
def _own_source() -> str:
    """The auditor itself."""
    return _digest([file.read_bytes().hex() for part in _OWN[:2] for file in sorted(part.rglob("*.py"))])


def _is_versioned(file: str) -> bool:
    """Whether the version of a library stands for a file."""
    return file.startswith(_VERSIONED) or (file.startswith(_STANDARD) and not file.startswith(_INSTALLED))


def _is_generated(file: str) -> bool:
    """Whether a file was written by torch.compile, from source that counts itself."""
    return "torchinductor_" in file or file.startswith(os.environ.get("TORCHINDUCTOR_CACHE_DIR", "\0"))


def _digest(parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


# Values ---------------------------------------------------------------------------------------------------------------


def describe(value: Any, codes: set[types.CodeType], _inside: tuple[int, ...] = ()) -> Any:
    """A description of a value in JSON that is equal in another process exactly where the value is; `codes` gets those of the functions that are met."""
    if value is None or value is ... or isinstance(value, (bool, int, str)):
        return [type(value).__name__, repr(value)]
    if isinstance(
        value, (float, complex, bytes, slice, range, torch.dtype, torch.device, torch.layout, torch.memory_format, np.generic, Path)
    ):
        return [type(value).__name__, repr(value)]
    if id(value) in _inside:
        return ["again", _inside.index(id(value))]
    inner = functools.partial(describe, codes=codes, _inside=(*_inside, id(value)))
    if isinstance(value, torch.Tensor):
        return _tensor(value)
    if isinstance(value, np.ndarray) and value.dtype != object:
        return ["array", str(value.dtype), value.shape, hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()]
    if isinstance(value, enum.Enum):
        return ["enum", type(value).__qualname__, value.name]
    if isinstance(value, Mapping):
        return [type(value).__name__, sorted(([inner(key), inner(item)] for key, item in value.items()), key=json.dumps)]
    if isinstance(value, (set, frozenset)):
        return [type(value).__name__, sorted(map(inner, value), key=json.dumps)]
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, [inner(item) for item in value]]
    if isinstance(value, inspect.BoundArguments):
        return ["bound", inner(value.args), inner(value.kwargs)]
    if isinstance(value, functools.partial):
        return ["partial", inner(value.func), inner(value.args), inner(value.keywords)]
    if isinstance(value, types.MethodType):
        return ["method", inner(value.__func__), inner(value.__self__)]
    if isinstance(value, types.FunctionType):
        codes.add(value.__code__)
        return _function(value, inner)
    if isinstance(value, (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)):
        owner = getattr(value, "__self__", None)
        return ["builtin", getattr(value, "__module__", None), value.__qualname__, inner(owner)]
    if isinstance(value, (staticmethod, classmethod)):
        return [type(value).__name__, inner(value.__func__)]
    if isinstance(value, type):
        return _class(value, inner)
    if isinstance(value, types.ModuleType):
        return ["module", value.__name__]
    if hasattr(value, "register_autograd"):
        return ["custom op", *map(inner, operator_functions(value))]
    if isinstance(value, torch.nn.Module):
        return ["nn.Module", inner(type(value)), inner(vars(value))]
    if is_dataclass(value):
        return ["dataclass", inner(type(value)), [inner(getattr(value, one.name)) for one in fields(value)]]
    raise Unknown(type(value).__qualname__)


def _tensor(tensor: torch.Tensor) -> Any:
    if tensor.layout != torch.strided or not has_values(tensor):
        raise Unknown(str(tensor.layout))
    plain = tensor.detach().cpu().contiguous().view(-1)
    bits = plain.view(torch.uint8) if plain.numel() else plain
    content = hashlib.sha256(bits.numpy().tobytes() if plain.numel() else b"").hexdigest()
    return ["tensor", str(tensor.dtype), [*tensor.shape], [*tensor.stride()], str(tensor.device), tensor.requires_grad, content]


def _function(function: types.FunctionType, inner: Callable[[Any], Any]) -> Any:
    """Its code, and the values that it does not get as arguments: defaults, closure, and plain globals."""
    known = function.__globals__
    plain = (bool, int, float, str, bytes, torch.dtype)
    globals_ = {name: inner(known[name]) for name in sorted(function.__code__.co_names) if isinstance(known.get(name), plain)}
    cells = [_contents(cell, inner) for cell in function.__closure__ or ()]
    own = {name: inner(item) for name, item in vars(function).items() if isinstance(item, (*plain, types.FunctionType, torch.Tensor))}
    defaults = [inner(function.__defaults__), inner(function.__kwdefaults__)]
    return ["function", function.__module__, function.__qualname__, _code(function.__code__), *defaults, cells, globals_, own]


def _contents(cell: Any, inner: Callable[[Any], Any]) -> Any:
    try:
        return inner(cell.cell_contents)
    except ValueError:  # not filled yet
        return None


def _code(code: types.CodeType) -> Any:
    constants = [
        _code(one) if isinstance(one, types.CodeType) else sorted(map(repr, one)) if isinstance(one, frozenset) else repr(one)
        for one in code.co_consts
    ]
    return [code.co_code.hex(), constants, code.co_names, code.co_varnames]


def _class(cls: type, inner: Callable[[Any], Any]) -> Any:
    """By its name, and, outside of libraries, by what is defined in it, which may hold a closure."""
    named = ["class", cls.__module__, cls.__qualname__]
    file = os.path.realpath(getattr(sys.modules.get(cls.__module__), "__file__", None) or "")
    if _is_versioned(file) or cls.__module__ == "builtins":
        return named
    members = {
        name: inner(item)
        for name, item in vars(cls).items()
        if isinstance(item, (types.FunctionType, staticmethod, classmethod, bool, int, float, str, torch.Tensor, torch.dtype))
        and name not in ("__module__", "__doc__", "__qualname__")
    }
    return [*named, members, [inner(base) for base in cls.__bases__]]


# Source ---------------------------------------------------------------------------------------------------------------


class _File:
    """A source file in the statements at its top."""

    def __init__(self, tree: ast.Module) -> None:
        self.definitions: dict[str, list[ast.stmt]] = {}
        self.others: list[ast.stmt] = []
        for statement in tree.body:
            if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                self.definitions.setdefault(statement.name, []).append(statement)
            elif not (isinstance(statement, ast.If) and "__name__" in ast.dump(statement.test)):
                self.others.append(statement)
        self.imports = [node for statement in tree.body for node in ast.walk(statement) if isinstance(node, (ast.Import, ast.ImportFrom))]


_FILES: dict[str, tuple[tuple[int, int], _File]] = {}


def _file(path: str) -> _File | None:
    try:
        stat = os.stat(path)
        stamp = (stat.st_mtime_ns, stat.st_size)
        if path not in _FILES or _FILES[path][0] != stamp:
            _FILES[path] = stamp, _File(ast.parse(Path(path).read_bytes()))
    except (OSError, SyntaxError, ValueError):
        return None
    return _FILES[path][1]


def _definition_at(path: str, line: int) -> list[str]:
    """The definition at the top of a file that a line is in; none if it is outside of any."""
    file = _file(path)
    for name, statements in (file.definitions if file is not None else {}).items():
        for statement in statements:
            first = min([statement.lineno, *(decorator.lineno for decorator in getattr(statement, "decorator_list", []))])
            if first <= line <= (statement.end_lineno or line):
                return [name]
    return []


def _source(ran: _Names, *, lines: bool) -> str:
    """The source of definitions, of all that they name, and of what stands beside definitions in their files; of installed files all."""
    wanted: dict[str, set[str]] = {}
    todo = [(file, name) for file, names in ran.items() for name in (*names, "")]
    parts: dict[str, Any] = {}
    while todo:
        path, name = todo.pop()
        if path.startswith(_INSTALLED):
            parts[path] = hashlib.sha256(Path(path).read_bytes()).hexdigest()
            continue
        file = _file(path)
        if file is None:
            raise OSError(f"{path} cannot be read")
        first, known = path not in wanted, wanted.setdefault(path, set())
        new = file.others if first else []
        if name == "*":
            todo += [(path, other) for other in file.definitions]
        if name in file.definitions and name not in known:
            known.add(name)
            new = [*new, *file.definitions[name]]
        for statement in new:
            for word in _words(statement):
                if word in file.definitions and word not in known:
                    todo.append((path, word))
                todo += _imported(path, file, word)
    for path, known in wanted.items():
        file = _file(path)
        assert file is not None
        statements = [*file.others, *(one for name in sorted(known) for one in file.definitions[name])]
        parts[path] = [[ast.dump(one), one.lineno if lines else 0] for one in statements]
    return _digest(parts)


@functools.lru_cache(maxsize=4096)
def _words(statement: ast.stmt) -> frozenset[str]:
    """Every name in a statement."""
    nodes = list(ast.walk(statement))
    return frozenset(node.id for node in nodes if isinstance(node, ast.Name)) | {
        node.attr for node in nodes if isinstance(node, ast.Attribute)
    }


def _imported(path: str, file: _File, word: str) -> list[tuple[str, str]]:
    """What a name that a file imports stands for: a definition of another file, or all of it. What is installed counts only where it ran."""
    found = []
    for statement in file.imports:
        for alias in statement.names:
            if (alias.asname or alias.name.partition(".")[0]) != word and alias.name != "*":
                continue
            if isinstance(statement, ast.Import):
                found.append((_place(alias.name), "*"))
                continue
            base = _absolute(path, statement)
            inside = _place(f"{base}.{alias.name}")  # a module of a package
            found.append((inside, "*") if inside else (_place(base), alias.name))
    return [(place, name) for place, name in found if place]


def _absolute(path: str, statement: ast.ImportFrom) -> str:
    """The full name of the module that is imported from."""
    if not statement.level:
        return statement.module or ""
    package, folder = [], Path(path).parent
    while (folder / "__init__.py").is_file():
        package.insert(0, folder.name)
        folder = folder.parent
    return ".".join([*package[: len(package) - statement.level + 1], *([statement.module] if statement.module else [])])


def _place(module: str) -> str:
    """The source file of a module of the user's, without importing it; empty for any other."""
    loaded, (top, *rest) = sys.modules.get(module), module.split(".")
    if loaded is not None:
        places = [getattr(loaded, "__file__", None) or ""]
    else:
        try:
            spec = find_spec(top)
        except (ImportError, ValueError, AttributeError):
            return ""
        roots = list(spec.submodule_search_locations or []) if spec is not None else []
        stems = [os.path.join(root, *rest) for root in roots] if rest else [(spec.origin if spec is not None else None) or ""]
        places = [place for stem in stems for place in ((f"{stem}.py", os.path.join(stem, "__init__.py")) if rest else (stem,))]
    file = next((os.path.realpath(place) for place in places if place.endswith(".py") and os.path.isfile(place)), "")
    return "" if _is_versioned(file) or file.startswith(_INSTALLED) else file

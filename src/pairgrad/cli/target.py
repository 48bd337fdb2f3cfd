"""What `pairgrad audit` is about: the callable that a target names, and arguments that fit it."""

from __future__ import annotations

import ast
import difflib
import importlib
import importlib.util
import inspect
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import torch

from pairgrad.coherence.subject.signature import function_of, signature
from pairgrad.ground.checks import describe
from pairgrad.ground.text import printable

_LIBRARIES = tuple(f"{Path(file).resolve().parent}{os.sep}" for file in (torch.__file__, Path(__file__).parent))
_STANDARD = f"{sysconfig.get_path('stdlib')}{os.sep}"
_LISTED = 12  # names in a message


class Unusable(Exception):
    """A target or inputs that cannot be audited. The message is for the user, in one line but with `lines`, where names in it are printable already;
    `way` is the traceback from the user's first frame on.
    """

    def __init__(self, message: str, way: str = "", *, lines: bool = False) -> None:
        super().__init__(printable(message, lines=lines))
        self.way = way


def split(target: str) -> tuple[str, str]:
    """The module or file, and the path of attributes in it."""
    place, colon, path = target.rpartition(":")
    if colon and place and path and all(part.isidentifier() for part in path.split(".")):
        return place, path
    if target.endswith(".py") and Path(target).is_file():
        names = _defined(Path(target))
        raise Unusable(f"{target!r} is a file: name a function in it, as in {target}:{names[0] if names else 'function'}{_holding(names)}")
    module, dot, name = target.strip(":").rpartition(".")
    example = f"{module}:{name}" if dot and module and name.isidentifier() and name != "py" else f"{target.strip(':') or 'losses'}:function"
    raise Unusable(f"{target!r} names no function: write module:function or path/to/file.py:function, for example {example}")


def imported(place: str) -> ModuleType:
    """The module of that name, or of that file; the working directory, or the folder of the file, is searched first."""
    try:
        return _from_file(place) if place.endswith(".py") or "/" in place or os.sep in place else _by_name(place)
    except Unusable:
        raise
    except SyntaxError as error:
        raise Unusable(f"cannot import {place}: {short(error.filename or '')}:{error.lineno}: {error.msg}", way_of(error)) from None
    except SystemExit as error:
        where = at(error).strip(" ()") or "sys.exit"
        raise Unusable(
            f"cannot import {place}: it ends the program when imported ({where}, code {error.code}); "
            'put what it runs under if __name__ == "__main__"',
            way_of(error),
        ) from None
    except Exception as error:
        raise Unusable(f"cannot import {place}: {saying(error)}{at(error)}", way_of(error)) from None


def _by_name(name: str) -> ModuleType:
    folder = os.getcwd()
    _search_first(folder)
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # something that the module itself imports
        near = close(error.name, _modules(Path(folder)))
        raise Unusable(f"no module named {error.name!r} in {folder} or among the installed packages{near}") from None
    except ValueError:  # an empty part of a dotted name
        raise Unusable(f"{name!r} is not a valid module name") from None
    own, used = Path(folder, *name.split(".")).with_suffix(".py"), getattr(module, "__file__", None)
    if own.is_file() and (used is None or Path(used).resolve() != own.resolve()):
        raise Unusable(f"{name} is the name of another module, {used or 'a part of Python'}: name the file, {short(str(own))}:function")
    return module


def _from_file(place: str) -> ModuleType:
    file = Path(place)
    if not file.is_file():
        folder = file.absolute().parent
        if not folder.is_dir():
            raise Unusable(f"no such file: {place}; there is no folder {folder}")
        raise Unusable(f"no such file: {place}{close(file.name, [path.name for path in folder.glob('*.py')])}")
    file = file.resolve()
    if file.suffix != ".py":
        raise Unusable(f"{place} is not a Python file: its name must end in .py")
    root, parts = file.parent, [file.stem]
    while (root / "__init__.py").is_file():  # a module of a package is imported as such
        parts.insert(0, root.name)
        root = root.parent
    _search_first(str(root))
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    if len(parts) > 1:
        return importlib.import_module(name)
    if file.stem in sys.modules and getattr(sys.modules[file.stem], "__file__", None) != str(file):
        name = f"audited_{file.stem}"  # the name of a module that is in use
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def file_of(place: str) -> str:
    """The file that a module is in, as far as that can be told without importing it."""
    file = Path(*place.split(".")).with_suffix(".py")
    return str(file) if file.is_file() else place


def _search_first(folder: str) -> None:
    if folder not in sys.path[:1]:
        sys.path.insert(0, folder)


def _modules(folder: Path) -> list[str]:
    try:
        return [entry.stem for entry in folder.iterdir() if entry.suffix == ".py" or (entry / "__init__.py").is_file()]
    except OSError:
        return []


def _defined(file: Path) -> list[str]:
    """Functions and classes at the top of a file, without importing it."""
    try:
        return [
            node.name
            for node in ast.parse(file.read_bytes()).body
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_")
        ]
    except (OSError, SyntaxError, ValueError):
        return []


def find(module: ModuleType, path: str) -> Any:
    """The object at a path of attributes."""
    found: Any = module
    for i, part in enumerate(path.split(".")):
        if isinstance(found, type) and issubclass(found, torch.nn.Module):
            found = as_callable(found, found.__name__)  # a method is that of an instance
        if isinstance(found, type) and issubclass(found, torch.autograd.Function) and part in ("forward", "backward"):
            raise Unusable(f"{path} is one half of a torch.autograd.Function: audit {found.__name__}, which is both")
        try:
            found = getattr(found, part)
        except AttributeError:
            owner = ".".join([module.__name__, *path.split(".")[:i]])
            names = _callables(found)
            raise Unusable(f"{owner} has no {part!r}{close(part, names)}{_holding(names)}") from None
    return found


def as_callable(found: Any, name: str) -> Callable[..., Any]:
    """What an audit calls: a Function by its apply, a module class by an instance, anything else as it is."""
    if isinstance(found, type) and issubclass(found, torch.autograd.Function):
        return found.apply
    if isinstance(found, type) and issubclass(found, torch.nn.Module):
        needed = [p for p in _parameters(signature(found)) if p.default is p.empty]
        if needed:
            raise Unusable(
                f"{name} is made with arguments ({', '.join(p.name for p in needed)}): make one in the module, for example "
                f"net = {name.rpartition('.')[2]}(...), and audit that"
            )
        found = called(found, name)
    if isinstance(found, type):
        raise Unusable(f"{name} is a class, neither a torch.nn.Module nor a torch.autograd.Function: name a function or an instance")
    if not callable(found):
        raise Unusable(f"{name} is not callable: it is {describe(found)[:200]}")
    runs = found.forward if isinstance(found, torch.nn.Module) else found
    if inspect.iscoroutinefunction(runs) or inspect.isasyncgenfunction(runs):
        raise Unusable(f"{name} is an async function: a call gives no tensors. Audit the function that it awaits, or one that runs it")
    if inspect.isgeneratorfunction(runs):
        raise Unusable(f"{name} is a generator function: a call gives no tensors. Audit a function that returns what it yields")
    return found


def called(given: Any, name: str) -> Any:
    """What the user's function gives without arguments; anything else as it is."""
    try:
        return given() if callable(given) else given
    except Exception as error:
        raise Unusable(f"{name}() raised {saying(error)}{at(error)}", way_of(error)) from None


def _callables(owner: Any) -> list[str]:
    """Names in a module or an object, its own first."""
    own = getattr(owner, "__name__", None)
    names = vars(owner) if isinstance(owner, ModuleType) else dir(owner)
    found = {name: getattr(owner, name, None) for name in names if not name.startswith("_") and callable(getattr(owner, name, None))}
    return [name for name, value in found.items() if getattr(value, "__module__", own) == own] or list(found)


_REST = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def arranged(
    fn: Any, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], domain: Any = None
) -> tuple[tuple[Any, ...] | dict[str, Any], Any]:
    """Arguments as an audit takes them, all positional or all by keyword, and a domain that names them in the same way."""
    expected = signature(fn)
    if expected is None:
        if args and kwargs:
            raise Unusable(f"the parameters of {name} are not known: give all inputs with names, or none")
        return (dict(kwargs) if kwargs else args), domain
    try:
        bound = expected.bind(*args, **kwargs)
    except TypeError as error:
        raise Unusable(f"the inputs do not fit {name}{shown(expected)}: {error}") from None
    placed = domain
    if isinstance(domain, Mapping):
        places = {parameter: f"input {i}" for i, parameter in enumerate(expected.parameters)}
        placed = {places.get(str(key), key): value for key, value in domain.items()}
    if function_of(fn) is not None:  # apply takes no keywords
        return bound.args, placed
    by_name = isinstance(domain, Mapping) and not kwargs and all(key in expected.parameters for key in domain)
    if not (args and (kwargs or by_name)):
        return (dict(kwargs) if kwargs else args), domain
    kinds = {expected.parameters[key].kind for key in bound.arguments}
    if kinds & {*_REST, inspect.Parameter.POSITIONAL_ONLY}:
        if kwargs:
            raise Unusable(f"{name}{shown(expected)} takes some inputs by position only: give none of them a name")
        return args, placed
    return dict(bound.arguments), domain


def structured(value: Any, source: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments that a function or an attribute gave."""
    if isinstance(value, torch.Tensor):
        return (value,), {}
    if isinstance(value, Mapping):
        return (), {str(key): item for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return tuple(value), {}
    raise Unusable(f"{source} must give a tensor, a tuple of arguments or a dict of keyword arguments, got {describe(value)[:200]}")


def example(fn: Any) -> str:
    """Inputs in the language of --inputs that could fit."""
    parameters = _parameters(signature(fn))
    needed = [p for p in parameters if p.default is p.empty] or parameters[:1]
    named = all(p.kind is not p.POSITIONAL_ONLY for p in needed)
    return ", ".join(f"{p.name}={_guess(p)}" if named else _guess(p) for p in needed) or "randn(8)"


def _parameters(expected: inspect.Signature | None) -> list[inspect.Parameter]:
    """Those of which there is one each."""
    return [] if expected is None else [p for p in expected.parameters.values() if p.kind not in _REST]


def _guess(parameter: inspect.Parameter) -> str:
    kind = getattr(parameter.annotation, "__name__", str(parameter.annotation))
    whole = re.search("label|target|index|indices|class|ids", parameter.name.lower())
    plain = {"int": "3", "float": "0.5", "bool": "true", "str": "'mean'"}
    return plain.get(kind, "randint(10, (8,))" if whole else "randn(8)")


def shown(expected: inspect.Signature) -> str:
    """A signature without annotations."""
    plain = [p.replace(annotation=p.empty) for p in expected.parameters.values()]
    return str(expected.replace(parameters=plain, return_annotation=expected.empty))


def way_of(error: BaseException) -> str:
    """The traceback from the first frame that is the user's on."""
    frames = traceback.extract_tb(error.__traceback__)
    first = next((i for i, frame in enumerate(frames) if not is_library(frame.filename)), 0)
    return "".join(
        ["Traceback (most recent call last):\n", *traceback.format_list(frames[first:]), *traceback.format_exception_only(error)]
    )


def at(error: BaseException) -> str:
    """File, line and function of the innermost frame that is the user's, in brackets; empty if there is none."""
    place = innermost(reversed(traceback.extract_tb(error.__traceback__)))
    return f" ({place})" if place else ""


def place_in(frame: FrameType | None) -> str:
    """Likewise of a running frame and its callers."""
    return innermost(reversed(traceback.extract_stack(frame)))


def innermost(frames: Iterable[traceback.FrameSummary]) -> str:
    """Of frames, the innermost first, the first one that is the user's, or at least not of torch or pairgrad; empty if there is none."""
    foreign = [frame for frame in frames if not is_library(frame.filename)]
    if not foreign:
        return ""
    chosen = next((frame for frame in foreign if not frame.filename.startswith(_STANDARD) or "site-packages" in frame.filename), foreign[0])
    inside = "" if chosen.name == "<module>" else f", in {chosen.name}"
    return f"{short(chosen.filename)}:{chosen.lineno or 0}{inside}"


def saying(error: BaseException) -> str:
    """The exception and what it says, in not too many words."""
    words = " ".join(str(error).split())
    words = words if len(words) <= 400 else f"{words[:400]}..."
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


def short(file: str) -> str:
    """A path as seen from the working directory."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


def close(name: str, known: Iterable[str]) -> str:
    """A known name that is nearly this one, as a question."""
    near = difflib.get_close_matches(name, [*known], 1, 0.6)
    return f" (did you mean {near[0]!r}?)" if near else ""


def is_library(file: str) -> bool:
    """Torch, pairgrad and the machinery of imports."""
    return file.startswith(("<frozen ", *_LIBRARIES)) or file == importlib.__file__


def _holding(names: Sequence[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"; it holds {', '.join(names[:_LISTED])}{more}" if names else ""

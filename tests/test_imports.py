"""The direction of imports (CONTRIBUTING.md), what `import pairgrad` loads, and where private names of torch are."""

import ast
import functools
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

SOURCE = Path(importlib.util.find_spec("pairgrad").submodule_search_locations[0])
FILES = sorted(SOURCE.rglob("*.py"))

_CORE = {"ground", "potentials"}
_STATE = {*_CORE, "sphere"}
_MIDDLE = {"losses", "distributions", "mixture", "certificates"}
# What each package may import of pairgrad, beside itself. A package that is not here must be put here, and in CONTRIBUTING.md, first.
ALLOWED = {
    "ground": {"_lazy"},
    "potentials": {"ground"},
    "sphere": _CORE,
    **{name: {*_STATE, *_MIDDLE} for name in _MIDDLE},
    "distributed": {*_STATE, *_MIDDLE, "_version"},
    "compat": {*_STATE, *_MIDDLE},
    "coherence": {"ground"},
    "ood": {"ground"},
    "testing": {"ground", "coherence"},
    "cli": {*_STATE, *_MIDDLE, "distributed", "compat", "coherence", "testing", "ood", "_version", "_lazy"},
    "integrations": {"ground", "coherence", "ood"},
    "_version": set(),
    "_lazy": set(),
}
TOP = {"cli", "integrations"}  # nothing imports these
OPTIONAL = (
    "scipy",
    "sklearn",
    "matplotlib",
    "jinja2",
    "flint",
    "mpmath",
    "typer",
    "rich",
    "jax",
    "PIL",
    "safetensors",
    "hypothesis",
    "pytest",
    "pairgrad_paper",
    "pairgrad.cli",
    "pairgrad.integrations",
    "lightning",
    "transformers",
    "tensorboard",
    "openood",
    "pytorch_ood",
    "triton",
    "torch._dynamo",  # a second and 85 MB: for those who compile
    "torch.distributed.checkpoint",
    "torch.distributed.tensor",
)
REQUIRED = {"torch", "numpy", "pairgrad"}
EXTRAS = {
    "mixture": {"sklearn"}
}  # packages that stand on the library of an extra; pairgrad/__init__.py loads them late and names the extra
KERNELS = "triton_"  # how names of modules begin that are written in Triton; what uses them imports them late


def package(path):
    """The part of pairgrad a file belongs to: a subpackage, or a module on the top level; "" for `__init__.py` and `__main__.py`."""
    first = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    return "" if first in ("__init__", "__main__") else first


def imported(tree, path):
    """Absolute names of the modules imported anywhere in a file, relative imports resolved."""
    here = ("pairgrad", *path.relative_to(SOURCE).parts[:-1])
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = here[: len(here) - node.level + 1] if node.level else ()
            module = ".".join((*base, *filter(None, [node.module])))
            yield from (f"{module}.{alias.name}" for alias in node.names)


def parts_of_ours(path):
    """The top-level parts of pairgrad that a file imports; "" for a name of `pairgrad` itself."""
    known = {package(f) for f in FILES}
    names = [name.split(".") for name in imported(ast.parse(path.read_text()), path)]
    return {(n[1] if len(n) > 1 and n[1] in known | set(ALLOWED) else "") for n in names if n[0] == "pairgrad"}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_point_downwards(path):
    own = package(path)
    used = parts_of_ours(path) - {own}
    if own == "":
        assert not used & TOP or path.name == "__main__.py", f"{path.name} imports {used & TOP}"
        return
    assert own in ALLOWED, f"{own} has no place in the direction of imports: give it one in CONTRIBUTING.md and here"
    assert used <= ALLOWED[own] | ({""} if own in TOP else set()), f"{own} may not import {used - ALLOWED[own]}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_only_torch_and_numpy_are_imported_at_the_top_of_a_module(path):
    """Optional packages are imported inside the functions that need them; the packages on top may do as they like."""
    if package(path) in TOP:
        return
    tree = ast.parse(path.read_text())
    typing_only = [n for n in tree.body if isinstance(n, ast.If) and "TYPE_CHECKING" in ast.unparse(n.test)]
    tree.body = [n for n in tree.body if isinstance(n, (ast.Import, ast.ImportFrom, ast.Try, ast.If)) and n not in typing_only]
    roots = {name.split(".")[0] for name in imported(tree, path)}
    allowed = (
        REQUIRED | EXTRAS.get(package(path), set()) | sys.stdlib_module_names | ({"triton"} if path.name.startswith(KERNELS) else set())
    )
    assert roots <= allowed, roots - allowed


PRIVATE = SOURCE / "ground" / "_torch_private.py"  # the one file that may
OVERRIDABLE = {"_apply", "_load_from_state_dict"}  # of a module: for subclasses
DESCRIBED = {"archive.py", "checkpoint.py"}  # of compat: these names stand in the files that torch writes


def is_private(name):
    return name.startswith("_") and not name.endswith("__")


@functools.cache
def known_private_names():
    """Of the objects of torch that code may hold without naming torch, and those in PRIVATE."""
    tensor = torch.ones(1, requires_grad=True)
    values = [tensor, tensor.untyped_storage(), tensor.exp().grad_fn, torch.ops.aten.add, torch.ops.aten.add.Tensor]
    objects = [torch, *values, torch.nn.Module(), torch.optim.SGD([tensor]), torch.distributions.Uniform(0, 1)]
    names = {name for found in objects for name in dir(found)}
    for node in ast.walk(ast.parse(PRIVATE.read_text())):
        names |= {node.attr} if isinstance(node, ast.Attribute) else {str(node.value)} if isinstance(node, ast.Constant) else set()
    return {name for name in names if is_private(name)} - OVERRIDABLE


def private_names_of_torch(tree, known):
    """What is imported, reached from a name that is imported from torch, or among `known`, also as a string; names that the file defines itself are not."""
    roots, own = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                full = f"{getattr(node, 'module', None) or ''}.{alias.name}".strip(".")
                if full.partition(".")[0] == "torch":
                    roots.add(alias.asname or alias.name.partition(".")[0])
                    yield from [full] * any(map(is_private, full.split(".")))
        elif isinstance(node, ast.FunctionDef):
            own.add(node.name)
        elif isinstance(node, (ast.Attribute, ast.Name)) and isinstance(node.ctx, ast.Store):
            own.add(node.attr if isinstance(node, ast.Attribute) else node.id)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            owner = ast.unparse(node.value)
            if owner.partition(".")[0] in roots or (node.attr in known and not (owner in ("self", "cls") and node.attr in own)):
                yield ast.unparse(node)
        elif isinstance(node, ast.Constant):
            name = str(node.value).strip(".")
            yield from [name] * (name in known - own or re.fullmatch(r"torch(\.\w+)*\._[\w.]+", name) is not None)


@pytest.mark.parametrize("path", [*FILES, SOURCE.parent / "pytest_pairgrad.py"], ids=lambda p: str(p.relative_to(SOURCE.parent)))
def test_private_names_of_torch_are_in_one_file(path):
    found = set(private_names_of_torch(ast.parse(path.read_text()), known_private_names()))
    if path != PRIVATE and not (path.parent.name == "compat" and path.name in DESCRIBED):
        assert not found, f"{path.name} touches {found}: give it a function in {PRIVATE.name}"


def test_private_names_of_torch_are_seen():
    lines = {
        "import torch._dynamo": "torch._dynamo",
        "from torch._C import _functorch as f": "torch._C._functorch",
        "from torch.utils import _pytree": "torch.utils._pytree",
        "import torch.distributed as dist\nstore = dist.distributed_c10d._get_default_store()": "dist.distributed_c10d._get_default_store",
        "before = tensor._version": "tensor._version",
        "self._buffers['a'] = None": "self._buffers",
        "getattr(ctx, '_forward_cls', None)": "_forward_cls",
        "made = module == 'torch._library.autograd'": "torch._library.autograd",
    }
    known = known_private_names()
    assert {text: [*private_names_of_torch(ast.parse(text), known)] for text in lines} == {text: [name] for text, name in lines.items()}
    ours = "class A(torch.nn.Module):\n    def _apply(self, fn):\n        self._parameters = 1\n        return super()._apply(self._parameters)"
    assert not [*private_names_of_torch(ast.parse(ours), known)]


def test_the_walk_sees_what_it_should():
    """The checks above pass on an empty list too; so: these files and these edges are there."""
    names = {str(p.relative_to(SOURCE)) for p in FILES}
    assert {"__init__.py", "ground/arithmetic.py", "potentials/miller.py"} <= names
    assert parts_of_ours(SOURCE / "potentials" / "miller.py") == {"ground", "potentials"}
    assert "potentials" in parts_of_ours(SOURCE / "__init__.py")
    tree = ast.parse("from ..ground import checks\nfrom . import debye\nimport pairgrad.cli")
    assert list(imported(tree, SOURCE / "potentials" / "x.py")) == ["pairgrad.ground.checks", "pairgrad.potentials.debye", "pairgrad.cli"]


def _in_a_new_process(code: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(SOURCE.parent)}
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_import_loads_nothing_optional():
    """In a new process, with every public name in use. torch may load numpy, and what torch itself loads does not count."""
    code = (
        "import sys, torch; before = set(sys.modules)\n"
        "import pairgrad, pairgrad.testing\n"
        "[getattr(pairgrad, name) for name in pairgrad.__all__ if name != 'VMFMixture']\n"
        f"print(*(m for m in {OPTIONAL!r} if m in sys.modules and m not in before))\n"
        "assert 'pairgrad.potentials' in sys.modules"
    )
    assert _in_a_new_process(code).split() == []


@pytest.mark.parametrize(
    "arguments",
    [[], ["--help"], ["-h"], ["audit", "-h"], ["train", "--help"], ["audit", "--htm", "x"], ["nothing"], ["--version"]],
    ids=" ".join,
)
def test_help_and_mistyped_options_do_not_load_torch(arguments):
    code = (
        f"import sys; sys.argv = ['pairgrad', *{arguments!r}]\n"
        "from pairgrad.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print('loaded:', *(name for name in ('torch', 'numpy') if name in sys.modules))"
    )
    assert _in_a_new_process(code).splitlines()[-1] == "loaded:"


def test_lazy_names_behave_as_imported_ones():
    """Every public name is found, once and for all; packages are attributes; a name that does not exist is an AttributeError."""
    code = (
        "import sys, pairgrad\n"
        "assert 'torch' not in sys.modules and set(pairgrad.__all__) <= set(dir(pairgrad))\n"
        "assert pairgrad.losses.ProCoLoss is pairgrad.ProCoLoss and pairgrad.ProCoLoss is pairgrad.ProCoLoss\n"
        "from pairgrad import *\n"
        "assert ClassBank is pairgrad.ClassBank and audit is pairgrad.coherence.audit\n"
        "assert not hasattr(pairgrad, 'ClassBanks')"
    )
    _in_a_new_process(code)


DEVICES = SOURCE / "ground" / "devices.py"  # the one file that names types of devices
DEVICE_TYPES = {"cpu", "cuda", "mps", "xpu", "hpu", "hip", "meta", "nccl"}
OPTIONS = SOURCE / "cli" / "commands.py"  # defaults of --device, which a user can type; it imports nothing of torch


def named_device_types(tree):
    """Strings that are a type of device, with or without an index; attributes such as is_cuda, torch.cuda, .cuda(). Docstrings and messages are not met."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.partition(":")[0] in DEVICE_TYPES:
            yield node.value
        elif isinstance(node, ast.Attribute) and node.attr.removeprefix("is_") in DEVICE_TYPES - {"cpu"} | {"is_cpu"}:
            yield ast.unparse(node)


@pytest.mark.parametrize("path", [*FILES, SOURCE.parent / "pytest_pairgrad.py"], ids=lambda p: str(p.relative_to(SOURCE.parent)))
def test_types_of_devices_are_named_in_one_table(path):
    """What differs between devices stands in ground/devices.py with its reason. `.cpu()`, a copy to the host, names no other device."""
    found = list(named_device_types(ast.parse(path.read_text())))
    if path not in (DEVICES, OPTIONS):
        assert not found, f"{path.name} names {found}: give {DEVICES.name} a field, or take HOST"


def test_named_device_types_are_seen():
    lines = {
        "x.device.type == 'mps'": "mps",
        "x.is_cuda": "x.is_cuda",
        "torch.cuda.synchronize()": "torch.cuda",
        "torch.device('cuda:1')": "cuda:1",
    }
    assert {text: [*named_device_types(ast.parse(text))] for text in lines} == {text: [name] for text, name in lines.items()}
    assert not [*named_device_types(ast.parse("x.detach().cpu(); 'cuda is fast'; x.device.type"))]

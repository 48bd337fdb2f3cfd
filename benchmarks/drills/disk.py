"""Power cuts, kills and full disks at every system call of a run that writes checkpoints, through an `os` of our own.

`Layer` stands between the run and the functions of `os` that change files. It writes them down, or lets them fail as a full disk does. From what
it wrote down, `Model` knows what a disk may hold after a crash before any of the calls: what was synced is there; of the rest anything may be, in any
combination. Each of these disks is made for real and the run resumes on it.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import safetensors.torch
import torch

from benchmarks.drills.row import Row
from pairgrad.ground import write_atomically
from pairgrad_paper.runs import CheckpointError, RunDirectory, RunError
from pairgrad_paper.runs.lock import LOCK

FACTS = {"recipe": "a drill", "seed": 1}
STEPS, EVERY = 8, 2  # updates, and updates between two checkpoints
RESULTS = [f'{{"step": {step}}}\n' for step in range(EVERY, STEPS + 1, EVERY)]  # a file that is replaced beside the run
RANDOM = 60  # random disks for each call, beside the four extreme ones

Call = tuple[Any, ...]
"""A call of `os`: its name, what it is about, and what it wrote."""


class Layer:
    """The calls of `os` that change files under `root`, in order; from the `full`-th call that takes space on, the disk is full."""

    def __init__(self, root: Path, full: float = float("inf"), half: bool = False) -> None:
        self.calls: list[Call] = []
        self._root, self._full, self._half = os.path.realpath(root), full, half
        self._open: dict[int, str] = {}
        self.taken = 0

    @contextmanager
    def installed(self) -> Iterator[None]:
        names = ("open", "close", "write", "fsync", "ftruncate", "rename", "replace", "unlink", "remove", "mkdir", "rmdir")
        real = {name: getattr(os, name) for name in names}
        serialize = getattr(safetensors.torch, "serialize_file")  # noqa: B009 (an import of theirs)

        def opened(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
            place = self._place(path, dir_fd)
            made = place is not None and flags & os.O_CREAT and not os.path.lexists(self._absolute(place))
            if made:
                self._take(path=path)
            handle = real["open"](path, flags, mode, dir_fd=dir_fd)
            if place is not None:
                self._open[handle] = place
                if made:
                    self.calls.append(("create", place))
            return handle

        def closed(handle: int) -> None:
            self._open.pop(handle, None)
            real["close"](handle)

        def wrote(handle: int, data: Any) -> int:
            if handle not in self._open:
                return real["write"](handle, data)
            short = self._take(len(data))
            count = real["write"](handle, data if short is None else bytes(data)[:short])
            self.calls.append(("content", self._open[handle], self._content(handle)))
            return count

        def synced(handle: int) -> None:
            if handle in self._open:
                self._take()
                self.calls.append(("sync", self._open[handle]))
            else:
                real["fsync"](handle)

        def cut(handle: int, size: int) -> None:
            real["ftruncate"](handle, size)
            if handle in self._open:
                self.calls.append(("content", self._open[handle], self._content(handle)))

        def renamed(name: str) -> Callable[..., None]:
            def rename(source: Any, target: Any) -> None:
                places = self._place(source, None), self._place(target, None)
                real[name](source, target)
                if None not in places:
                    self.calls.append(("rename", *places))
                    self._open |= {
                        handle: places[1] for handle, place in self._open.items() if place == places[0] and places[1] is not None
                    }

            return rename

        def one(name: str, takes: bool = False) -> Callable[..., None]:
            def change(path: Any, *more: Any, dir_fd: int | None = None) -> None:
                place = self._place(path, dir_fd)
                if takes and place is not None:
                    self._take(path=path)
                real[name](path, *more, dir_fd=dir_fd)
                if place is not None:
                    self.calls.append(({"remove": "unlink"}.get(name, name), place))

            return change

        def saved(tensors: Any, path: Any, *more: Any, **options: Any) -> None:
            """In Rust, past `os`: one call that makes a file and fills it."""
            self._take(path=path)
            serialize(tensors, path, *more, **options)
            place = self._place(path, None)
            self.calls += [("create", place), ("content", place, Path(path).read_bytes())]

        ours = {
            **{"open": opened, "close": closed, "write": wrote, "fsync": synced, "ftruncate": cut, "mkdir": one("mkdir", takes=True)},
            **{name: renamed(name) for name in ("rename", "replace")},
            **{name: one(name) for name in ("unlink", "remove", "rmdir")},
        }
        with mock.patch.multiple(os, **ours), mock.patch("safetensors.torch.serialize_file", saved):
            yield

    def _take(self, size: int = 0, path: Any = None) -> int | None:
        """Count a call that takes space; how much of it there is room for, None: enough."""
        self.taken += 1
        if self.taken <= self._full:
            return None
        if self._half and size > 1:
            self._half = False  # the rest, when it is tried, finds nothing
            return size // 2
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), *([] if path is None else [os.fspath(path)]))

    def _content(self, handle: int) -> bytes:
        return Path(f"/proc/self/fd/{handle}").read_bytes()

    def _place(self, path: Any, dir_fd: int | None) -> str | None:
        """The path below the root, None elsewhere."""
        name = os.fspath(path)
        if dir_fd is not None:
            name = os.path.join(self._absolute(self._open[dir_fd]), name)
        name = os.path.abspath(name)
        return os.path.relpath(name, self._root) if name.startswith(self._root + os.sep) or name == self._root else None

    def _absolute(self, place: str) -> str:
        return os.path.normpath(os.path.join(self._root, place))


@dataclass(eq=False)
class _Node:
    """A file or a directory."""

    folder: bool
    data: bytes = b""
    durable: bytes = b""


class _Name(NamedTuple):
    """A change of names: `node`, or nothing, under a name; a rename is two that happen together."""

    changes: tuple[tuple[_Node, str, _Node | None], ...]


@dataclass
class Model:
    """The files after some calls, and what of them is on the disk."""

    root: _Node = field(default_factory=lambda: _Node(folder=True))
    synced: list[_Name] = field(default_factory=list)
    pending: list[_Name] = field(default_factory=list)

    def apply(self, call: Call) -> None:
        kind, place, *rest = call
        tree = _tree([*self.synced, *self.pending])
        if kind in ("create", "mkdir"):
            self.pending.append(_Name(((*self._parent(tree, place), _Node(folder=kind == "mkdir")),)))
        elif kind == "content":
            self._at(tree, place).data = rest[0]
        elif kind in ("unlink", "rmdir"):
            self.pending.append(_Name(((*self._parent(tree, place), None),)))
        elif kind == "rename":
            self.pending.append(_Name(((*self._parent(tree, place), None), (*self._parent(tree, rest[0]), self._at(tree, place)))))
        elif kind == "sync":
            node = self._at(tree, place)
            node.durable = node.data
            reached = [name for name in self.pending if any(folder is node for folder, _, _ in name.changes)]
            self.synced += reached
            self.pending = [name for name in self.pending if name not in reached]

    def write(self, target: Path, names: list[_Name], content: Callable[[_Node], bytes]) -> None:
        """Make the files that these changes of names leave, beside those that are synced."""
        tree = _tree([*self.synced, *names])

        def fill(node: _Node, path: Path) -> None:
            path.mkdir()
            for name, child in tree.get(node, {}).items():
                if child.folder:
                    fill(child, path / name)
                else:
                    (path / name).write_bytes(content(child))

        fill(self.root, target)

    def _at(self, tree: dict[_Node, dict[str, _Node]], place: str) -> _Node:
        node = self.root
        for name in () if place == "." else place.split(os.sep):
            node = tree[node][name]
        return node

    def _parent(self, tree: dict[_Node, dict[str, _Node]], place: str) -> tuple[_Node, str]:
        return self._at(tree, os.path.dirname(place) or "."), os.path.basename(place)


def _tree(names: list[_Name]) -> dict[_Node, dict[str, _Node]]:
    tree: dict[_Node, dict[str, _Node]] = {}
    for name in names:
        for folder, entry, node in name.changes:
            if node is None:
                tree.get(folder, {}).pop(entry, None)
            else:
                tree.setdefault(folder, {})[entry] = node
    return tree


def state(step: int) -> dict[str, Any]:
    return {"x": torch.arange(500, dtype=torch.float64) * step, "optimizer": {0: {"step": step}}}


def work(run_folder: Path, returned: Callable[[int], object] = lambda step: None) -> None:
    """A run that writes everything that a run writes; `returned` hears of each checkpoint that is said to be on the disk."""
    with RunDirectory.create(run_folder, FACTS) as run:
        found = run.resume(_damaged)
        if found is not None and not torch.equal(found.state["x"], state(found.step)["x"]):
            raise AssertionError("the bits of a checkpoint have changed")
        for step in range(1 if found is None else found.step + 1, STEPS + 1):
            run.log.write("step", step, loss=1 / step)
            if step % EVERY == 0:
                write_atomically(run_folder.with_name("result.json"), RESULTS[step // EVERY - 1])
                run.save(step, state(step), keep=2)
                returned(step)
        run.save(STEPS, state(STEPS), keep=2)  # in the place of the one of this step


def _damaged(error: CheckpointError) -> None:
    raise AssertionError(f"a crash left a damaged checkpoint: {error}")


def left(run_folder: Path) -> tuple[Any, ...]:
    """What a finished run has: its steps, its checkpoints, the bits of the newest and the names of all files."""
    run = RunDirectory.open(run_folder)
    newest = run.latest(_damaged)
    assert newest is not None
    steps = [event for event in run.events(_damaged_log) if event["kind"] == "step"]
    files = sorted(str(path.relative_to(run_folder)) for path in run_folder.rglob("*"))
    return steps, [path.name for path in run.checkpoints()], newest.step, newest.state["x"].tolist(), files


def _damaged_log(sentence: str) -> None:
    raise AssertionError(sentence)


def look(run_folder: Path, promised: int, whole: tuple[Any, ...]) -> str | None:
    """What is wrong with a run after a crash; `promised` is the newest checkpoint that was said to be on the disk."""
    try:
        if (run_folder / "run.json").exists():
            run = RunDirectory.open(run_folder)
            newest = run.latest(_damaged)
            step = 0 if newest is None else newest.step
        else:
            step = 0
        if step < promised:
            return f"the checkpoint of step {promised} was said to be on the disk, and the newest is of step {step}"
        steps = [event["step"] for event in _events(run_folder) if event["kind"] == "step" and event["step"] <= step]
        if steps != list(range(1, step + 1)):
            return f"the record of a run at step {step} has the steps {steps}"
        result = run_folder.with_name("result.json")
        found = result.read_text() if result.exists() else None
        # It is written before the checkpoint of its step, and the next only once that one is said to be on the disk.
        if found not in [None, *RESULTS][step // EVERY : promised // EVERY + 2]:
            return f"{result.name} beside a checkpoint of step {step} has {found!r}, and that of step {promised} was said to be on the disk"
        with mock.patch("os.fsync"):  # which takes nearly all of the time of a drill on a real disk
            work(run_folder)
        if left(run_folder) != whole:
            return "the run that resumed is another than one that was not disturbed"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def _events(run_folder: Path) -> list[dict[str, Any]]:
    return RunDirectory.open(run_folder).events(lambda sentence: None) if (run_folder / "run.json").exists() else []


def recorded(folder: Path) -> tuple[list[Call], tuple[Any, ...]]:
    """The calls of a whole run, with `("returned", step)` where a checkpoint was said to be on the disk, and what the run left."""
    folder.mkdir()
    layer = Layer(folder)
    with layer.installed():
        work(folder / "run", lambda step: layer.calls.append(("returned", step)))
    model = Model()
    for call in layer.calls:
        model.apply(call)
    copy = folder.with_name(folder.name + "-as-recorded")
    model.write(copy, model.pending, lambda node: node.data)
    if _bytes(copy) != _bytes(folder):
        raise RuntimeError("the run changed files past the layer: what is recorded is not what it did")
    return layer.calls, left(folder / "run")


def _bytes(folder: Path) -> dict[str, bytes | None]:
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def crashes(directory: Path, few: bool) -> Iterator[Row]:
    """A kill and power cuts before, and in the middle of, each call."""
    calls, whole = recorded(directory / "undisturbed")
    kills, cuts, wrong_kills, wrong_cuts = 0, 0, list[str](), list[str]()
    moments, chance = 0, random.Random(0)
    for number in range(len(calls) + 1):
        model, promised = _after(calls[:number])
        halves = [None]
        if number < len(calls) and calls[number][0] == "content":
            halves = [None, calls[number]]  # killed within the call, too: half of what it writes is there
        for half in halves:
            moments += 1
            if half is not None:
                model, promised = _after([*calls[:number], ("content", half[1], _half(model, half))])
            for kind, names, content in _disks(model, chance, 1 if few else RANDOM):
                place = directory / "disk"
                model.write(place, names, content)
                trouble = look(place / "run", promised, whole)
                shutil.rmtree(place)
                sentence = f"{kind}, before call {number}, {calls[number][:2] if number < len(calls) else 'the end'}: {trouble}"
                if kind == "kill":
                    kills += 1
                    wrong_kills += [sentence] * (trouble is not None)
                else:
                    cuts += 1
                    wrong_cuts += [sentence] * (trouble is not None)
    where = f"before and in the middle of each of the {len(calls)} system calls of a run with {STEPS // EVERY + 1} checkpoints"
    yield Row(f"a kill {where}", f"{kills:,} kills", _found(wrong_kills), len(wrong_kills))
    unsynced = "what was not synced is lost, kept or cut, in any combination"
    yield Row(f"a power cut {where}; {unsynced}", f"{cuts:,} disks", _found(wrong_cuts), len(wrong_cuts))


def _after(calls: list[Call]) -> tuple[Model, int]:
    """The files after these calls, and the newest checkpoint that was said to be on the disk."""
    model, promised = Model(), 0
    for call in calls:
        if call[0] == "returned":
            promised = call[1]
        else:
            model.apply(call)
    return model, promised


def _half(model: Model, call: Call) -> bytes:
    node = model._at(_tree([*model.synced, *model.pending]), call[1])
    before, after = node.data, call[2]
    return after[: (len(before) + len(after)) // 2] if len(after) > len(before) else after


def _disks(model: Model, chance: random.Random, number: int) -> Iterator[tuple[str, list[_Name], Callable[[_Node], bytes]]]:
    """What the disk may hold: after a kill everything that was done, after a power cut what was synced and any of the rest."""
    yield "kill", model.pending, lambda node: node.data
    yield "power cut, the rest is lost", [], lambda node: node.durable
    yield "power cut, names without contents", model.pending, lambda node: node.durable
    yield "power cut, contents without names", [], lambda node: node.data
    for each in range(number):
        own = random.Random(chance.random())
        names = [name for name in model.pending if own.random() < (0.5, 0.9, 0.1)[each % 3]]

        def content(node: _Node, own: random.Random = own) -> bytes:
            if not node.data.startswith(node.durable):
                return own.choice((node.durable, node.data))
            more = node.data[len(node.durable) :]
            return node.durable + own.choice((b"", more, more[: len(more) // 2], bytes(len(more))))

        yield "power cut", names, content


def full(directory: Path, few: bool) -> Iterator[Row]:
    """A disk that is full from each call on that takes space; then there is room again, and the same run resumes."""
    layer = Layer(directory / "counted")
    (directory / "counted").mkdir()
    with layer.installed():
        work(directory / "counted" / "run")
    whole, wrong, tried = left(directory / "counted" / "run"), list[str](), 0
    for number in range(layer.taken):
        for half in (False,) if few else (False, True):
            tried += 1
            place = directory / "disk"
            place.mkdir()
            promised = list[int]([0])
            failing = Layer(place, full=number, half=half)
            trouble = None
            try:
                with failing.installed():
                    work(place / "run", promised.append)
            except (RunError, OSError) as error:
                if str(place) not in str(error):
                    trouble = f"the message names no file: {error!r}, {''.join(traceback.format_exception(error))}"
            except Exception as error:
                trouble = f"{type(error).__name__}: {error}"
            trouble = trouble or _stray(place) or look(place / "run", promised[-1], whole)
            wrong += [f"full from call {number} on, half={half}: {trouble}"] * (trouble is not None)
            shutil.rmtree(place)
    what = f"the disk is full from any of the {layer.taken} calls on that take space, at once or in the middle of the call"
    yield Row(what, f"{tried} full disks", _found(wrong), len(wrong))


def _stray(place: Path) -> str | None:
    """What a process that was not killed should have removed: on a full disk that takes no space."""
    names = sorted(str(path.relative_to(place)) for path in place.rglob(".*") if path.name != LOCK)
    return f"half-written files stay: {names}" if names else None


def _found(wrong: list[str]) -> str:
    if wrong:
        return f"{len(wrong)} went wrong, the first: {wrong[0]}"
    return "all resumed; records lost 0, bits changed 0, damaged checkpoints 0"

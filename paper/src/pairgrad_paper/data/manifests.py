"""Lists of picture files: `relpath label` lines, SC-OOD lists, and folders."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import torch

from pairgrad.ground import read_json
from pairgrad_paper.data.files import DataError, DataRoot
from pairgrad_paper.data.images import FileImages
from pairgrad_paper.data.pictures import SUFFIXES

_LONGEST = 4096  # characters of a dict: Python reads longer ones with thousands of equal hashes, and for minutes


def read_manifest(root: DataRoot, path: Path, folders: Sequence[Path], *, name: str, origin: str, labelled: bool = True) -> FileImages:
    """The pictures of a list with `relpath label` on each line.

    Args:
        root: takes the fact about the list.
        path: the list.
        folders: where the pictures may be; the first folder that holds the first picture is taken for all of them.
        name: of the set.
        origin: where to get the data, for messages.
        labelled: whether each line must have a label >= 0; if not, a label may stand there and is left aside.

    Raises:
        DataError: with the number of the first line that is wrong, or whose picture is missing.
    """

    def parse(line: str) -> tuple[str, int]:
        *file, label = line.rsplit(maxsplit=1) or [""]
        number = int(label) if label.isascii() and label.isdecimal() and len(label) < 10 else None
        if not labelled:
            return (line if number is None or not file else file[0]), 0
        if not file:
            raise DataError("expected 'relpath label'")
        if number is None:
            raise DataError(f"expected an integer from 0 to 999999999 as the label, got {label[:40]!r}")
        return file[0], number

    paths, labels = _entries(root, path, parse, origin)
    base = _base(path, paths, folders, origin)
    return FileImages(name, base, paths, torch.tensor(labels) if labelled else None)


def read_scood(root: DataRoot, path: Path, folder: Path, *, name: str, origin: str) -> FileImages:
    """The pictures of an SC-OOD list: `relpath {dict}` on each line, labelled with the dict's `sc_label` (-1: out of distribution)."""
    paths, labels = _entries(root, path, _scood_line, origin)
    return FileImages(name, _base(path, paths, [folder], origin), paths, torch.tensor(labels))


def read_folder(root: DataRoot, folder: Path, *, name: str, labelled: bool = False) -> FileImages:
    """The pictures in a folder and its sub-folders, sorted by path.

    Args:
        root: takes the fact about the folder.
        folder: the folder.
        name: of the set.
        labelled: take the position of the sub-folder among the sorted sub-folders as the label.

    Raises:
        DataError: there are no pictures, or one that should have a label lies in no sub-folder.
    """
    found, others, seen = [], 0, set()
    for directory, subfolders, files in os.walk(folder, onerror=_unreadable, followlinks=True):
        subfolders[:] = [each for each in subfolders if not each.startswith(".")]
        if (place := os.path.realpath(directory)) in seen:
            raise DataError(f"{directory}: a link leads to a folder that was read already: remove the link")
        seen.add(place)
        for file in files:
            if Path(file).suffix.lower() in SUFFIXES and not file.startswith("."):
                found.append(Path(directory, file).relative_to(folder).as_posix())
            else:
                others += 1
    if not found:
        kinds = ", ".join(sorted(SUFFIXES))
        raise DataError(
            f"{folder}: expected a folder with pictures ({kinds}), found {others} other files: put the pictures there, or move it elsewhere"
        )
    paths = tuple(sorted(found))
    root.listing(folder, paths)
    labels = None
    if labelled:
        loose = next((each for each in paths if "/" not in each), None)
        if loose is not None:
            raise DataError(f"{folder}: expected every picture in a sub-folder, whose name is its class, found {loose} outside")
        classes = {each: label for label, each in enumerate(sorted({each.split("/")[0] for each in paths}))}
        labels = torch.tensor([classes[each.split("/")[0]] for each in paths])
    return FileImages(
        name, folder, paths, labels, f"{others} files in {root.relative(folder)} that are not pictures are left aside" if others else ""
    )


def _unreadable(error: OSError) -> None:
    raise DataError(f"{error.filename} cannot be read ({error.strerror or error}): make it readable, or move it elsewhere") from error


def _scood_line(line: str) -> tuple[str, int]:
    file, brace, rest = line.partition(" {")
    if not brace or not file.strip():
        raise DataError("expected 'relpath {dict}'")
    facts = _literal(brace.strip() + rest)
    if not isinstance(facts, dict) or "sc_label" not in facts:
        raise DataError("expected a dict with 'sc_label'")
    label = facts["sc_label"]
    if type(label) is not int or not -1 <= label < 10**9:
        raise DataError(f"expected an integer from -1 to 999999999 as sc_label, got {_shown(label)}")
    return file.strip(), label


def _shown(label: Any) -> str:
    try:
        return repr(label)[:40]
    except ValueError:  # Python writes no integer of thousands of digits
        return "one of thousands of digits"


def _literal(text: str) -> Any:
    """A dict in the notation of JSON or of Python, or None; nothing is evaluated."""
    if len(text) > _LONGEST:
        return None
    try:
        return read_json(text)
    except ValueError:
        pass
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


def _entries(root: DataRoot, path: Path, parse: Callable[[str], tuple[str, int]], origin: str) -> tuple[tuple[str, ...], list[int]]:
    """Paths and labels of a list, in order; blank lines at its end are no lines."""
    try:
        text = root.read(path, origin).decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}: expected text in UTF-8, got byte {error.object[error.start]:#04x} at position {error.start}; {origin}"
        ) from None
    paths, labels = [], []
    for number, line in enumerate(text.rstrip().split("\n"), start=1):
        try:
            file, label = parse(line.strip())
            parts = PurePosixPath(file).parts
            if not parts or file.startswith("/") or ".." in parts or "\0" in file:
                raise DataError(f"expected a path inside the folder of pictures, got {file[:80]!r}")
        except DataError as error:
            raise DataError(f"{path}, line {number}: {error}, the line is {line[:80]!r}; {origin}") from None
        paths.append(file)
        labels.append(label)
    return tuple(paths), labels


def _base(path: Path, paths: Sequence[str], folders: Sequence[Path], origin: str) -> Path:
    """The folder that holds all the pictures of a list."""
    base = next((folder for folder in folders if os.path.isfile(folder / paths[0])), None)
    if base is None:
        raise DataError(f"{path}, line 1: the picture {paths[0]} is missing, looked for under {', '.join(map(str, folders))}; {origin}")
    if (missing := _first_missing(base, paths)) is not None:
        raise DataError(f"{path}, line {missing + 1}: the picture {base / paths[missing]} is missing; {origin}")
    return base


def _first_missing(base: Path, paths: Iterable[str]) -> int | None:
    """Position of the first path without a file. Each folder is listed once: asking for every file is slow on network drives."""
    listed: dict[str, set[str]] = {}
    for position, each in enumerate(paths):
        folder, _, file = each.rpartition("/")
        if folder not in listed:
            try:
                listed[folder] = set(os.listdir(base / folder))
            except OSError:
                listed[folder] = set()
        if file not in listed[folder]:
            return position
    return None

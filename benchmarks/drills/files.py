"""Small valid files, changed at random, and hostile ones, opened in a child process that notes what is executed.

`kinds` has the files and their readers, `mutations` the changes.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.drills.kinds import Kind, kinds
from benchmarks.drills.mutations import Files
from benchmarks.drills.row import Row
from benchmarks.progress import progress
from pairgrad_paper.runs import RunError

FILES, FEW = 100_000, 240  # over all kinds
SECONDS = 2.0  # of the processor, for a file
MEMORY = 1 << 30  # bytes, beyond those of the process
HANGS = 30  # seconds of the processor that end a child
STANDS = 3600  # seconds on the clock that do, too: far more than a drill is paused or a busy machine needs
FORBIDDEN = frozenset(
    [
        "os.system",
        "os.exec",
        "os.fork",
        "os.forkpty",
        "os.posix_spawn",
        "os.mkdir",
        "subprocess.Popen",
        "pickle.find_class",
        "exec",
        "socket.connect",
    ]
)
RUNNING = ("importlib._bootstrap", "importlib._bootstrap_external", "typing", "dataclasses", "collections")  # modules that run code of ours


def files(directory: Path, few: bool) -> Iterator[Row]:
    """One row for each kind."""
    found_kinds = kinds(directory, few)
    for number, kind in enumerate(found_kinds):
        count = (FEW if few else FILES) // len(found_kinds)
        outcomes = opened(kind, directory / f"opened-{number}", count)
        wrong = [outcome for outcome in outcomes if outcome["wrong"]]
        came = [sum(outcome["how"] == how for outcome in outcomes) for how in ("read", "refused")]
        executed, slowest = sum(outcome["executed"] for outcome in outcomes), max(outcome["seconds"] for outcome in outcomes)
        found = f"{came[0]:,} read, {came[1]:,} refused; slowest {slowest:.2f} s; executed {executed}"
        if wrong:
            found += f"; {len(wrong)} went wrong, the first: {wrong[0]['wrong']}"
        yield Row(kind.what, f"{count:,} files", found, len(wrong))


def opened(kind: Kind, folder: Path, count: int) -> list[dict[str, Any]]:
    """What came of each of the first `count` files of a kind; `folder` is made."""
    folder.mkdir()
    outcomes = list[dict[str, Any]]()
    while len(outcomes) < count:
        outcomes += _in_a_child(kind, folder, len(outcomes), count)
        progress("files", len(outcomes), count)
    return outcomes


def _in_a_child(kind: Kind, folder: Path, first: int, count: int) -> list[dict[str, Any]]:
    """What came of the files from `first` on, until the end or the one that ended the child."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        with contextlib.suppress(BaseException):
            _open_all(kind, folder, first, count, writing)
        os._exit(0)
    os.close(writing)
    with open(reading) as lines:
        outcomes = [json.loads(line) for line in lines]
    _, status = os.waitpid(child, 0)
    if first + len(outcomes) < count:
        wrong = f"file {first + len(outcomes)}: the child ended with status {status}"
        outcomes.append({"how": "", "seconds": 0.0, "executed": 0, "wrong": wrong})
    return outcomes


def _open_all(kind: Kind, folder: Path, first: int, count: int, writing: int) -> None:
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)  # what C libraries say about pictures
    warnings.simplefilter("ignore")
    seen, looking = list[str](), False
    known = sys.stdlib_module_names | {name.partition(".")[0] for name in sys.modules}

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        if not looking:
            return
        strange = event == "import" and arguments[0].partition(".")[0] not in known
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        ours = event == "exec" and sys._getframe(1).f_globals.get("__name__") in RUNNING
        if strange or writes or (event in FORBIDDEN and not ours):
            seen.append(f"{event} {arguments[:1]!r:.80}")

    for seed in kind.seeds:  # what the libraries import late is imported now
        _put(folder, seed)
        with contextlib.suppress(Exception):  # the format before 1.6 is never read
            kind.reader(folder, next(iter(seed)))
    sys.addaudithook(look)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, resource.RLIM_INFINITY))
    for index in range(first, count):
        contents, name = kind.example(index)
        _put(folder, contents)
        how, wrong = "read", ""
        signal.setitimer(signal.ITIMER_PROF, HANGS)
        signal.alarm(STANDS)
        looking, began = True, time.process_time()
        try:
            kind.reader(folder, name)
        except (ValueError, RunError, OSError) as error:
            how = "refused"
            if Path(name).name not in str(error) and str(Path(folder, name).parent) not in str(error):
                wrong = f"an error that does not name the file: {type(error).__name__}: {error!s:.300}"
            if _for_want_of_memory(error):
                wrong = f"refused only because memory ran out: {error!s:.300}"
        except BaseException as error:
            how, wrong = "", f"{type(error).__name__}: {error!s:.300}"
        looking, seconds = False, time.process_time() - began
        if how == "read" and index < len(kind.hostile):
            wrong = "a hostile file was read"
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        wrong = f"executed: {seen[0]}" if seen else wrong or (f"{seconds:.1f} s" if seconds > SECONDS else "")
        outcome = {"how": how, "seconds": seconds, "executed": len(seen), "wrong": wrong and f"file {index} ({name}): {wrong}"}
        os.write(writing, json.dumps(outcome).encode() + b"\n")
        seen.clear()


def _for_want_of_memory(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, MemoryError) or "MemoryError" in str(error) or "allocate memory" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def _put(folder: Path, contents: Files) -> None:
    for name, data in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)

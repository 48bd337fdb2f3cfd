"""Hostile command lines: each ends with the documented code and a sentence that names what is wrong, and leaves nothing behind."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest
import torch

import pairgrad as pg
from pairgrad.certificates import SavedState, save_state
from tests.cli.command import invoke

NUMBERS = (
    "",
    "nan",
    "inf",
    "1e400",
    "-1",
    "0",
    "ten",
    "½",
    "٣",
)  # no counts: empty, not finite, too large, negative, none, words, digits of others
INTEGERS = ("", "1e400", "1.5")  # what no integer option takes
PLAN = {"--classes": "10", "--dim": "8", "--ranks": "2", "--batch": "8"}
GARBAGE = bytes(range(256)) * 4


def plan(option: str, value: str) -> tuple[str, ...]:
    return ("plan", *(word for pair in {**PLAN, option: value}.items() for word in pair))


def each(values: tuple[str, ...], *words: str) -> list[tuple[str, ...]]:
    return [(*words, value) for value in values]


PLANS = [
    *(plan("--classes", value) for value in NUMBERS),
    *(
        plan(option, value)
        for option in ("--classes", "--dim", "--ranks", "--batch", "--views")
        for value in ("", "1e400", "-1", "0", "1.5")
    ),
    *(plan("--memory", value) for value in ("nan", "1e400", "0", "-1")),
    *(plan("--ranks", value) for value in ("x", "2x", "x2", "2x0", "2x2x2", "1x11", "2*2")),
    *(plan("--gpu", value) for value in ("", "nan", "ü", "H100 SXM")),
    *(plan("--json", value) for value in ("", "folder", "file/plan.json")),
]
PROOFS = [
    *(line for option in ("--dim", "--order", "--shift", "--max-order") for line in each(INTEGERS, "prove", option)),
    *each(("-1", "0", "1", "99999999999999999999"), "prove", "--dim"),
    *each(("", "nan", "inf", "-inf", "1e400", "-1", "ten"), "prove", "--nu"),
    *each(("-1", "0", "25", "99999999999999999999"), "prove", "--order"),
    *each(("-1", "0", "25", "99999999999999999999"), "prove", "--max-order"),
    *each(("-1", "0", "99999999999999999999"), "prove", "--dim", "64", "--order"),
    *each(("-1", "0", "2"), "prove", "--shift"),
    *each(("-1", "0", "2"), "prove", "--dim", "64", "--shift"),
    ("prove", "--dim", "64", "--nu", "31"),
    *each(("--temperature", "--state", "--bank"), "prove"),
]
CERTIFICATES = [
    ("certify",),
    *each(("missing", "missing.pt", "folder", "garbage", "garbage.pt", "empty", "file", "état"), "certify"),
    *(
        ("certify", "state", option, value)
        for option in ("--features", "--labels", "--class-counts")
        for value in ("", "missing.pt", "folder", "garbage", "garbage.pt", "garbage.json", "broken.json", "file")
    ),
    *each(("hot", "nan", "-1", "0", "inf", ""), "certify", "state", "--temperature"),
    *each(("", "nope", "original", "ü"), "certify", "state", "--realization"),
    *each(("", "float16", "ü"), "certify", "state", "--dtype"),
    *each(("other", "ü"), "certify", "state", "--bank"),
    *each(("folder", "file/bounds.json"), "certify", "state", "--json"),
    ("certify", "state", "--dim", "64"),
]
AUDITS = [
    *(("audit", target) for target in ("", ":", "losses", "losses:", ":f")),  # what a process has to look for is in audit/test_mistakes.py
    *each(("", "randn(", "randn(-1)", "randn(1e400)", "randn(nan)", "nope(3)", "½", "1/0"), "audit", "m:f", "--inputs"),
    *each(("", "1", "5..1", "nan..1", "0..inf", "log -1..1", "a..b"), "audit", "m:f", "--domain"),
    *(("audit", "m:f", option, value) for option in ("--dtype", "--effort", "--intent", "--format") for value in ("", "nan", "ü")),
    *each(("nan", "-1", "1", "inf", "1e400", "x"), "audit", "m:f", "--tolerance"),
    *each(("nan", "-1", "inf", "1e400", "x"), "audit", "m:f", "--timeout"),
    *each(("-1", *INTEGERS), "audit", "m:f", "--seed"),
    *(("audit", "m:f", option, value) for option in ("--html", "--json") for value in ("", "folder", "report.txt", "file/a.html")),
    ("audit",),
    ("audit", "m:f", "--inputs", "randn(3)", "--inputs-from", "m:g"),
]
COUNTS = {  # options of `train` that count something, and what they refuse beside what no integer is
    "--threads": ("0", "-1", "99999999999"),
    "--workers": ("-1",),
    "--keep": ("0",),
    "--checkpoint-every": ("0", "-1"),
    "--record-every": ("0", "-1"),
    "--evaluate-every": ("-1",),
    "--monitor-every": ("-1",),
    "--stop-at": ("0", "-1"),
    "--class-parallel": ("0", "3"),
}
SETTINGS = (
    *("", "x", "=", "=1", "x=1", "epochs", "ü=ö", "optimizer=3", "data.name=cifar", "loss.geometry=x", "schedule.milestones=x"),
    *("epochs=", "epochs=0", "epochs=-1", "epochs=nan", "epochs=1e400", "epochs=1.5", "batch_size=0", "loss.temperature=nan"),
    *(f"optimizer.lr={value}" for value in ("nan", "inf", "-1", "0", "x")),
)
TRAIN = ("train", "digits-lt", "--dry-run")
TRAININGS = [
    *each(("", "nope", "digits", "ü", "folder", "../digits-lt"), "train"),
    *(line for option, values in COUNTS.items() for line in each((*values, "1.5"), *TRAIN, option)),
    *each(("", "Paired", "reference", "ü"), *TRAIN, "--realization"),
    *each(("-1", "99999999999999999999", *INTEGERS), *TRAIN, "--seed"),
    *each(SETTINGS, *TRAIN, "--set"),
    *each(("", "x", "cuda:99", "meta"), *TRAIN, "--device"),
    *each(("-1", "nan", "x"), *TRAIN, "--checkpoint-minutes"),
    *each(("nan", "-1", "0", "inf", "x"), *TRAIN, "--timeout"),
    *(line for option in ("--exchange", "--wrap") for line in each(("", "x", "nan"), *TRAIN, option)),
    *each(("file", "file/runs"), *TRAIN, "--output"),
    *each(("file", "file/runs"), "train", "digits-lt", "--quiet", "--output"),
    ("train", "digits-lt", "--quiet", "--threads", "99999999999"),
]
FORKS = [
    ("fork",),
    ("fork", "digits-lt", "--from", "folder"),
    ("fork", "digits-lt", "--step", "3"),
    *each(("nope", "", "folder"), "fork"),
    *each(("missing", "folder", "file", "damaged", "other"), "fork", "--from"),
    *each(("0", "-1", *INTEGERS), "fork", "digits-lt", "--updates"),
    *each(("0", "1", "2000", *INTEGERS), "fork", "digits-lt", "--probes"),
    *each(("", "arfr", "nope"), "fork", "digits-lt", "--branch"),
    *each(("-1", *INTEGERS), "fork", "digits-lt", "--seed"),
    *each(("epochs=0", "optimizer.lr=nan", "x=1"), "fork", "digits-lt", "--set"),
    *each(("file", "file/forks"), "fork", "digits-lt", "--updates", "9", "--output"),
    *each(("x", "cuda:99", ""), "fork", "digits-lt", "--device"),
    *each(("0", "99999999999"), "fork", "digits-lt", "--threads"),
]
RUNS = [
    *(("evaluate", name) for name in ("missing", "folder", "file", "damaged", "other", "list")),
    *((command, name) for command in ("frozen", "states", "collect") for name in ("missing", "folder", "file", "damaged", "other", "list")),
    *((command,) for command in ("evaluate", "frozen", "states", "collect")),
    *(("evaluate", "other", option, value) for option in ("--score", "--convention") for value in ("", "nope", "ü")),
    *each(("x", "cuda:99", ""), "evaluate", "other", "--device"),
    *each(INTEGERS, "evaluate", "other", "--step"),
    *each(("", "folder", "file/a.json", "missing/a.json"), "evaluate", "other", "--json"),
    *each(("-1", *INTEGERS), "frozen", "other", "--step"),
    *each(INTEGERS, "frozen", "other", "--batch-size"),
    *each(("0", "99999999999"), "frozen", "other", "--threads"),
    *each(("", "folder", "file/a.jsonl", "missing/a.jsonl"), "frozen", "other", "--output"),
    *each(("0", "-1", *INTEGERS), "states", "other", "--every"),
    *each(("garbage", "empty", "broken.jsonl", "broken.json", "garbage.jsonl", "garbage.json"), "collect"),
]
TABLES = [
    *((command, "--only", name) for command in ("tables", "figures") for name in ("", "nope", "ratio-fidelitty", "ü")),
    *((command, "--records", name) for command in ("tables", "figures", "report") for name in ("missing", "file", "records")),
    ("tables", "--only", "parity", "--output", "file"),
    ("tables", "--only", "parity", "--output", "file/tables"),
    ("figures", "--only", "value-and-slope", "--output", "file"),
    ("report", "--output", "file"),
]
MEASUREMENTS = [
    *(
        line
        for option in ("--batch", "--classes", "--dim", "--repeats", "--threads")
        for line in each(("0", "-1", *INTEGERS), "bench", option)
    ),
    ("bench", "--threads", "99999999999"),
    ("bench", "--repeats", "1", "--batch", "99999999999999"),
    *each(("", "x", "cuda:99", "meta"), "bench", "--device"),
    *each(("", "float16", "nan"), "bench", "--dtype"),
    *each(("", "folder", "file/a.json"), "bench", "--json"),
    *each(("", "folder", "file/a.json"), "doctor", "--json"),
    *(line for option in ("--elements", "--repeats") for line in each(("0", "-1", *INTEGERS), "times", option)),
    *each(("", "folder", "file/a.jsonl"), "times", "--output"),
    *each(("0", "-1", *INTEGERS), "demo", "--epochs"),
    *each(("file", "file/demo"), "demo", "--output"),
]
SLIPS = [
    *((name,) for name in ("", "trian", "ü", "--nope", "certfy", "proof")),
    *((name, "extra") for name in ("demo", "doctor", "realizations", "tables", "figures", "report", "times", "prove", "bench")),
    *(
        (name, "--nope")
        for name in ("demo", "doctor", "audit", "train", "evaluate", "plan", "fork", "frozen", "states", "collect", "prove", "certify")
    ),
    ("tables", "--only"),
    ("plan",),
]
LINES = list(dict.fromkeys([*PLANS, *PROOFS, *CERTIFICATES, *AUDITS, *TRAININGS, *FORKS, *RUNS, *TABLES, *MEASUREMENTS, *SLIPS]))


def about(line: tuple[str, ...]) -> set[str]:
    """What the sentence has to name, one of them: the option that is wrong, its value, or the argument."""
    pairs = [(option, value) for option, value in itertools.pairwise((*line, "")) if option.startswith("--")]
    wrong = [pair for pair in pairs if line[0] != "plan" or pair not in PLAN.items()]
    if wrong:
        option, value = wrong[-1]
        key = value.partition("=")[0] if option == "--set" else value
        return {option, repr(key), "not enough memory", *([key] if len(key) > 1 else ())}
    words = {piece for word in line[1:] for piece in (word, word.partition(":")[0]) if piece}
    return words or {"Missing", "recipe", "''", f"command {line[0]!r}"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with everything that a path can wrongly lead to."""
    root = tmp_path_factory.mktemp("hostile")
    for name in ("folder", "damaged", "other", "list", "records"):
        (root / name).mkdir()
    for name in ("garbage", "garbage.py", "garbage.pt", "garbage.jsonl", "garbage.json", "records/a.jsonl"):
        (root / name).write_bytes(GARBAGE)
    (root / "file").write_text("x")
    (root / "empty").write_text("")
    (root / "broken.jsonl").write_text('{"a": 1}\n{')
    (root / "broken.json").write_text('{"a":')
    (root / "damaged" / "run.json").write_text("{")
    (root / "other" / "run.json").write_text("{}")
    (root / "list" / "run.json").write_text("[]")
    state = pg.ClassState(torch.eye(3, 8), torch.ones(3))
    save_state(root / "state", SavedState(torch.eye(8)[:3], torch.arange(3), state, temperature=0.1))
    return root


def contents(root: Path) -> dict[str, bytes | None]:
    return {str(path.relative_to(root)): path.read_bytes() if path.is_file() else None for path in sorted(root.rglob("*"))}


@pytest.mark.parametrize("line", LINES, ids=lambda line: " ".join(line) or "nothing")
def test_a_hostile_line_is_refused_with_a_sentence(line: tuple[str, ...], place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    monkeypatch.delenv("PAIRGRAD_DATA", raising=False)
    before = contents(place)
    done = invoke(*line)
    assert done.exit_code == 2, f"code {done.exit_code}\n{done.output}"
    assert done.stderr.strip(), "nothing is said"
    assert "Traceback" not in done.output
    assert any(word in done.stderr for word in about(line)), f"none of {about(line)} is named:\n{done.stderr}"
    assert contents(place) == before


@pytest.mark.parametrize(
    "line", [("tables", "--only", "nope"), ("prove", "--dim", "1"), ("certify", "nope"), ("bench", "--device", "x")], ids=" ".join
)
def test_the_way_to_a_mistake_is_shown_on_request_only(line: tuple[str, ...]) -> None:
    assert "Traceback" in invoke(*line, "--debug").stderr
    assert "Traceback" not in invoke(*line).output


@pytest.mark.skipif(os.name != "posix" or os.getuid() == 0, reason="the superuser may write anywhere")
def test_a_directory_without_permission_is_told_before_anything_is_measured(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    done = invoke("bench", "--json", str(closed / "times.json"))
    assert done.exit_code == 2
    assert "no permission" in done.stderr


def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        done = invoke(*plan("--json", str(pipe)))
        written = os.read(reader, 1 << 16)
    finally:
        os.close(reader)
    assert done.exit_code == 0, done.output
    assert written.startswith(b"{")
    assert pipe.is_fifo()

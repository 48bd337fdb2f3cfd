"""`pairgrad audit` as a user runs it: with the worker in a process of its own where that is what is tested, else in this one."""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from pairgrad.cli import audit_child
from pairgrad.cli.app import app
from pairgrad.cli.audit import _code as exit_code
from pairgrad.cli.audit_worker import run as work
from pairgrad.coherence import Report, Verdict

LOSSES = '''
    """Losses of a user, some of them wrong."""
    import ctypes, os, subprocess, sys, time
    import torch

    class Sine(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, scale=1.0):
            ctx.save_for_backward(x)
            return x.sin() * scale

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * x.cos() * 1.25, None

    class Step(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.round()

        @staticmethod
        def backward(ctx, g):
            return g

    def bad(x):
        return Sine.apply(x, 1.0)

    def good(x, scale: float = 1.0):
        return x.sin() * scale

    def ratio(x, y, *, power=1):
        return (x / y) ** power

    def only(x, /, y):
        return x * y

    def step(x):
        return Step.apply(x)

    def drops(x):
        return (x * x.detach()).sum()

    def counts(x, calls=[]):
        calls.append(1)
        return x * len(calls)

    def raises(x):
        raise ArithmeticError("the user's own words")

    def raises_inside(x):
        return torch.linalg.cholesky(-x)

    def raises_later(x):
        global calls
        calls += 1
        if calls > 10:
            raise ArithmeticError("once too often")
        return x.sin()

    def nan(x):
        return x * float("nan")

    def no_tensor(x):
        return 3.0

    def exits(x):
        sys.exit(5)

    def entropy(logits, labels):
        return torch.nn.functional.cross_entropy(logits, labels)

    def entropy_inputs():
        return torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(4, 3), torch.tensor([0, 1, 2, 0])

    def held(x):
        return x.exp()

    held.example_inputs = {"x": torch.tensor([0.25, 0.5], dtype=torch.float64)}

    def wrong_inputs():
        return 3

    def broken_inputs():
        raise KeyError("no batch")

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(3, 2)

        def forward(self, x):
            return self.linear(x).tanh()

    class Needs(torch.nn.Module):
        def __init__(self, dim, heads):
            super().__init__()

    class Plain:
        pass

    net = Net()
    number = 3
    calls = 0

    def stuck(x):
        """Incoherent, and hangs after 400 calls."""
        global calls
        calls += 1
        if calls > 400:
            mark("stuck")
            time.sleep(600)
        return Sine.apply(x, 1.0)

    def deaf(x):
        """Hangs, and does not listen to an interruption."""
        word = "stuck"
        while True:
            try:
                mark(word)
                time.sleep(600)
            except KeyboardInterrupt:
                word = "swallowed"

    def mark(word):
        """On the screen and as a file, for who waits."""
        open(f"{word}.mark", "w").close()
        print(word, flush=True)

    def leaves_a_process_behind(x, started=[]):
        if not started:
            started.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]))
            open("pid", "w").write(str(started[0].pid))
        return x.sin()

    def interrupts(x):
        raise KeyboardInterrupt

    async def later(x):
        return x.sin()

    def yields(x):
        yield x.sin()

    def constant():
        return torch.ones(2)

    def crashes(x):
        global calls
        calls += 1
        if calls > 40:
            ctypes.string_at(0)
        return x.sin()
'''


QUICK = ("--inputs", "randn(2)", "--effort", "quick", "--no-second-order", "--no-consequences")


class Here:
    """The worker in this process: everything has happened when it is made."""

    code = 0

    def __init__(self, request):
        self.events = queue.Queue()
        work(json.loads(json.dumps(request)), lambda event: self.events.put(json.loads(json.dumps(event))))
        self.events.put({"event": "end"})

    def ended(self):
        return True

    def wait(self, seconds):
        pass

    def close(self):
        pass


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The user's folder, in which the command is run."""
    (tmp_path / "losses.py").write_text(textwrap.dedent(LOSSES))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    return tmp_path


@pytest.fixture
def here(folder, monkeypatch):
    """The folder, the worker in this process, and its traces wiped out afterwards."""
    monkeypatch.setattr(audit_child, "Child", Here)
    path, modules = list(sys.path), set(sys.modules)
    yield folder
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(folder)):
            del sys.modules[name]


def audit(*arguments, **env):
    done = CliRunner(env={"COLUMNS": "300", **env}).invoke(app, ["audit", *map(str, arguments)], catch_exceptions=False)
    return done.exit_code, done.stdout, done.stderr


def quick(*arguments, **env):
    return audit(*arguments, *QUICK[2:], **env)


# Processes ----------------------------------------------------------------------------------------------------------------


PROGRAM = (str(Path(sys.executable).with_name("pairgrad")),)
PATIENT = (sys.executable, "-c", "from pairgrad.cli import audit_child, main; audit_child._GRACE = 86400; main()")  # with a busy machine


def started(folder, *arguments, program=PROGRAM, stdout=subprocess.PIPE, **env):
    """`pairgrad audit ARGUMENTS` in a process group of its own, as a shell starts it."""
    return subprocess.Popen(
        [*program, "audit", *arguments],
        cwd=folder,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "COLUMNS": "300", **env},
    )


class Clock:
    """The clock by which the parent waits: it stands still, and jumps ahead half a second after a mark is seen. How fast the machine is plays no part."""

    def __init__(self, folder):
        self.seen = {folder / f"{word}.mark": None for word in ("stuck", "swallowed")}

    def monotonic(self):
        now = time.monotonic()
        for mark, since in self.seen.items():
            self.seen[mark] = now if since is None and mark.exists() else since
        return 1e6 * sum(since is not None and now > since + 0.5 for since in self.seen.values())


@pytest.fixture
def clock(folder, monkeypatch):
    monkeypatch.setattr(audit_child, "time", Clock(folder))


def until(process, word):
    for line in process.stdout:
        if word in line:
            return
    raise AssertionError(f"ended before {word!r}: {process.stderr.read()}")


@pytest.mark.slow
def test_an_incoherent_function_of_another_folder(folder, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    arguments = (f"{folder}/losses.py:bad", "--inputs", "randn(3)", "--effort", "quick", "--json", "report.json", "--html", "report.html")
    process = started(elsewhere, *arguments)
    out, err = process.communicate(timeout=250)
    assert process.returncode == 1, err
    assert out.startswith("bad: incoherent, by 0.2 of the gradient")
    assert f"Sine ({folder}/losses.py:" in out
    assert [line.split(" (")[0] for line in err.splitlines()[:2]] == ["[1/5] repeating calls", "[2/5] looking at the inputs"]
    assert "Written: report.html, report.json" in err
    report = Report.from_dict(json.loads((elsewhere / "report.json").read_text()))
    assert report.complete
    assert str(report) == out.rstrip("\n")
    assert "<html" in (elsewhere / "report.html").read_text()


def test_an_interruption_keeps_what_was_found(folder):
    process = started(folder, "losses:stuck", "--inputs", "randn(2)", "--domain", "-2..2", "--json", "report.json", program=PATIENT)
    until(process, "stuck")
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=250)
    assert process.returncode == 1, err
    assert "pairgrad audit: interrupted while looking" in err
    assert re.search(r"\(\d{3} calls\), at losses\.py:\d+, in (stuck|mark)\b", err)
    assert "; this was found until then:" in err
    assert "Traceback" not in err
    assert out.startswith("stuck: incoherent, by 0.2 of the gradient")
    report = Report.from_dict(json.loads((folder / "report.json").read_text()))
    assert report.verdict == "incoherent"
    assert not report.complete
    assert report.evaluations > 390  # the report is of the moment of the interruption, not the last one that was sent before it


def test_a_second_interruption_ends_at_once(folder):
    """The first one, which asks to end as a batch system does, is swallowed by the function; it would be waited for until tomorrow."""
    with started(folder, "losses:deaf", "--inputs", "randn(2)", program=PATIENT) as process:
        until(process, "stuck")
        process.terminate()
        until(process, "swallowed")
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=250)
    assert process.returncode == 2, err
    assert "pairgrad audit:" not in err
    assert "Traceback" not in err


def test_time_over(folder, clock):
    code, out, err = audit("losses:stuck", "--inputs", "randn(2)", "--domain", "-2..2", "--timeout", 3, "--json", "report.json")
    assert code == 1, err
    assert "pairgrad audit: losses:stuck timed out after 3 s while looking" in err
    assert re.search(r"\(\d{3} calls\), at losses\.py:\d+, in (stuck|mark)\b", err)
    assert out.startswith("stuck: incoherent")
    assert not json.loads((folder / "report.json").read_text())["complete"]


def test_a_deaf_function_is_killed_and_its_prints_are_kept_out_of_the_data(folder, clock, capfd):
    code, out, err = audit("losses:deaf", "--inputs", "randn(2)", "--timeout", 1, "--format", "json")
    assert code == 2
    assert "losses:deaf timed out after 1 s while calling deaf for the first time, at losses.py:" in err
    assert json.loads(out)["error"] in err
    assert capfd.readouterr() == ("", "stuck\nswallowed\n")


def test_a_crash(folder):
    code, out, err = audit("losses:crashes", "--inputs", "randn(2)", "--json", "report.json")
    assert code == 2
    assert "the process that audits losses:crashes was ended by SIGSEGV while looking at the inputs" in err
    assert "at losses.py:" in err
    assert "in crashes" in err
    assert "nothing was found until then" in err
    assert out == ""
    assert json.loads((folder / "report.json").read_text())["complete"] is False


def test_a_worker_without_a_parent_ends(folder):
    child = audit_child.Child(options("losses:deaf", inputs="randn(2)"))
    try:
        while not child.events.get(timeout=250).get("stage", "").startswith("calling"):
            pass
        assert child.code is None
        child._process.stdin.close()  # as the end of the parent does
        child.wait(250)
        assert child.code == 2
    finally:
        child.close()


@pytest.mark.slow
def test_nobody_reads(folder):
    """As in `pairgrad audit ... | true`: the file is written, and the exit code is that of the verdict."""
    reading, writing = os.pipe()
    os.close(reading)
    process = started(folder, "losses:good", *QUICK, "--json", "report.json", stdout=writing)
    os.close(writing)
    _, err = process.communicate(timeout=250)
    assert process.returncode == 0, err
    assert "rror" not in err
    assert json.loads((folder / "report.json").read_text())["passed"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize(("target", "code"), [("losses:good", 2), pytest.param("losses:bad", 1, marks=pytest.mark.slow)])
def test_standard_output_is_full(folder, target, code):
    with open("/dev/full", "w") as full:
        process = started(folder, target, *QUICK, "--json", "report.json", stdout=full)
        _, err = process.communicate(timeout=250)
    assert process.returncode == code, err
    assert "pairgrad audit: cannot write to standard output: No space left on device" in err
    assert "Traceback" not in err
    assert json.loads((folder / "report.json").read_text())["passed"] is (target == "losses:good")


def test_a_locale_without_the_characters(folder):
    process = started(
        folder, "losses:bad", *QUICK, "--json", "r.json", LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0", PYTHONIOENCODING="ascii"
    )
    out, err = process.communicate(timeout=250)
    assert process.returncode == 1, err
    assert out.startswith("bad: incoherent, by 0.2 of the gradient (? ")
    assert (folder / "r.json").exists()


@pytest.mark.slow
def test_what_the_function_started_ends_with_the_audit(folder):
    code, out, err = quick("losses:leaves_a_process_behind", "--inputs", "randn(2)")
    assert code == 0, out + err
    pid = int((folder / "pid").read_text())
    for _ in range(600):
        if not _is_running(pid):
            return
        time.sleep(0.1)
    os.kill(pid, signal.SIGKILL)
    raise AssertionError("it is still there")


def _is_running(pid):
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


@pytest.mark.slow
def test_a_script_with_arguments_of_its_own(folder):
    """It gets none: those of the worker are not its."""
    (folder / "script.py").write_text(
        "import argparse, sys\nparser = argparse.ArgumentParser()\nparser.add_argument('--n', default=3)\n"
        "n = parser.parse_args().n\nassert sys.argv == ['script.py']\n\ndef f(x):\n    return n * x\n"
    )
    for target in ("script:f", "script.py:f"):
        code, out, err = quick(target, "--inputs", "randn(2)")
        assert code == 0, out + err


def options(target, **given):
    from pairgrad.cli.audit import Options

    return Options(**given).request(target)


@pytest.mark.parametrize(
    ("how", "failure", "verdict", "passed", "complete", "intent", "code"),
    [
        ("done", None, "coherent", True, True, None, 0),
        ("done", None, "straight-through-like", True, True, "straight-through", 0),
        ("done", None, "jump", False, True, None, 1),
        ("done", None, "inconclusive", False, True, None, 2),
        ("timeout", None, "incoherent", False, False, None, 1),
        ("interrupted", None, "incoherent", False, False, None, 1),
        ("interrupted", None, "inconclusive", False, False, None, 2),
        ("timeout", None, "incoherent", False, False, "gradient-cap", 2),  # whether it is declared is not known yet
        ("timeout", None, "incoherent", True, False, None, 2),
        ("died", None, "incoherent", False, False, None, 2),
        ("done", {"kind": "raised", "message": "", "way": ""}, "incoherent", False, False, None, 2),
    ],
)
def test_exit_codes(how, failure, verdict, passed, complete, intent, code):
    report = Report("f", Verdict(verdict), passed, intent, 1e-12, 1e-12, 0.0, 0.0, (), (), complete=complete)
    assert exit_code(audit_child.Outcome(how, report.to_dict(), failure), report) == code
    assert exit_code(audit_child.Outcome(how), None) == 2


# Verdicts -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "inputs", "code", "verdict"),
    [
        ("losses:good", "randn(3)", 0, "coherent"),
        ("losses:bad", "randn(3)", 1, "incoherent"),
        ("losses:Sine", "randn(3)", 1, "incoherent"),
        ("losses:Sine.apply", "randn(3), 2.0", 1, "incoherent"),
        ("losses:step", "[0.3, 1.7]", 1, "straight-through-like"),
        ("losses:counts", "[0.3, 1.7]", 1, "not-reentrant"),
        ("losses:drops", "[0.3, 1.7]", 1, "incoherent"),
        ("losses:Net", "randn(3)", 0, "coherent"),
        ("losses:net", "randn(3)", 0, "coherent"),
        ("losses:Net.forward", "randn(3)", 0, "coherent"),
        ("losses.py:good", "randn(3)", 0, "coherent"),
        ("torch:sin", "randn(3)", 0, "coherent"),
        ("torch.nn.functional:softplus", "randn(3)", 0, "coherent"),
    ],
)
def test_verdicts_and_exit_codes(here, target, inputs, code, verdict):
    got, out, err = quick(target, "--inputs", inputs)
    assert got == code, out + err
    assert f": {verdict}" in out.splitlines()[0]
    assert len(out.splitlines()) > 2


def test_a_declared_intent_passes(here):
    assert audit("losses:step", "--inputs", "[0.3, 1.7]", "--intent", "straight-through", "--effort", "quick")[0] == 0


def test_the_options_reach_the_audit(here):
    assert quick("losses:bad", "--inputs", "randn(3)", "--tolerance", 0.5)[0] == 0
    code, out, _ = quick("losses:Net", "--inputs", "randn(3)", "--dtype", "float64", "--seed", 3, "--format", "json")
    report = json.loads(out)
    assert code == 0
    assert (report["dtype"], report["seed"], report["effort"]) == ("float64", 3, "quick")
    assert json.loads(quick("losses:Net", "--inputs", "randn(3)", "--format", "json")[1])["dtype"] == "float32"  # as its parameters are
    second = [finding["kind"] for finding in json.loads(audit("losses:Sine", "--inputs", "randn(3)", "--format", "json")[1])["findings"]]
    assert "node" in second
    without = json.loads(audit("losses:Sine", "--inputs", "randn(3)", "--format", "json", "--no-consequences")[1])
    assert "node" not in [finding["kind"] for finding in without["findings"]]


def test_the_seed_gives_the_inputs(here):
    def states(seed):
        return json.loads(quick("losses:good", "--inputs", "randn(3)", "--seed", seed, "--format", "json")[1])["curves"]

    assert states(1) == states(1)
    assert states(1) != states(2)


# Inputs and domains -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ("losses:ratio", "--inputs", "randn(3), y=positive(3)"),
        ("losses:ratio", "--inputs", "randn(3), positive(3), power=2"),
        ("losses:ratio", "--inputs", "0.5, 2.5"),
        ("losses:Sine", "--inputs", "scale=2.0, x=randn(3)"),
        ("losses:only", "--inputs", "randn(3), positive(3)", "--domain", "x=-1..1"),
        ("losses:ratio", "--inputs", "randn(3), fixed(positive(3))"),
        ("losses:ratio", "--domain", "x=-1..1, y=log 0.1..10"),
        ("losses:ratio", "--domain", "-1..1, log 0.1..10"),
        ("losses:ratio", "--inputs", "randn(2), positive(2)", "--domain", "y=log 0.1..10"),
        ("losses:ratio", "--inputs", "randn(2), positive(2)", "--domain", "_, log 0.1..10"),
        ("losses:Sine", "--domain", "x=-1..1"),
        ("losses:good", "--domain", "-1..1"),
        ("losses:entropy",),
        ("losses:held",),
        ("losses:good", "--inputs-from", "losses:entropy_inputs"),
        ("losses:entropy", "--inputs-from", "entropy_inputs"),
    ],
)
def test_inputs_of_all_sorts(here, arguments):
    code, out, err = quick(*arguments)
    expected = {"losses:Sine": 1, "losses:good": 2 if "--inputs-from" in arguments else 0}.get(arguments[0], 0)
    assert code == expected, out + err
    if "--domain" in arguments:
        assert "  over " in out


def test_what_is_fixed_is_not_audited(here):
    def audited(inputs):
        report = json.loads(quick("losses:ratio", "--inputs", inputs, "--format", "json")[1])
        return {state["argument"] for state in report["states"]}

    assert audited("randn(3), positive(3)") >= {"input 0", "input 1"}
    assert "input 1" not in audited("randn(3), fixed(positive(3))")


def test_names_become_positions_for_a_function_that_takes_no_keywords(here):
    report = json.loads(quick("losses:Sine", "--inputs", "scale=2.0, x=randn(3)", "--format", "json")[1])
    assert {state["argument"] for state in report["states"]} == {"input 0"}


def test_a_file_of_inputs(here):
    torch.save({"logits": torch.linspace(-1, 1, 6, dtype=torch.float64).reshape(2, 3), "labels": torch.tensor([0, 2])}, "batch.pt")
    assert quick("losses:entropy", "--inputs", "@batch.pt")[0] == 0
    code, _, err = quick("losses:good", "--inputs", "@batch.pt")
    assert code == 2
    assert "the inputs do not fit good(x, scale=1.0): missing a required argument: 'x'" in err


def test_a_module_of_a_package_with_relative_imports(here):
    package = here / "deep" / "models"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "parts.py").write_text("def twice(x):\n    return 2 * x\n")
    (package / "net.py").write_text("from .parts import twice\n\ndef f(x):\n    return twice(x).sin()\n")
    assert quick("deep/models/net.py:f", "--inputs", "randn(2)")[0] == 0


def test_a_file_with_the_name_of_a_module_in_use(here):
    (here / "queue.py").write_text("def f(x):\n    return x.sin()\n")
    assert quick("queue.py:f", "--inputs", "randn(2)")[0] == 0
    assert sys.modules["queue"] is queue


# Mistakes -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("losses",), "'losses' names no function: write module:function or path/to/file.py:function, for example losses:function"),
        (("losses.good",), "for example losses:good"),
        (("losses.py",), "'losses.py' is a file: name a function in it, as in losses.py:Sine; it holds Sine, Step, bad"),
        (("losses:",), "names no function"),
        (("losess:good",), "no module named 'losess' in {folder} or among the installed packages (did you mean 'losses'?)"),
        (("lossy.py:good",), "no such file: lossy.py"),
        (("nowhere/losses.py:good",), "there is no folder {folder}/nowhere"),
        (("losses:godo",), "losses has no 'godo' (did you mean 'good'?); it holds Sine, Step, bad, good"),
        (("losses:net.forwards",), "losses.net has no 'forwards' (did you mean 'forward'?)"),
        (("signal:f",), "signal is the name of another module, {signal}: name the file, signal.py:function"),
        (("losses:number",), "number is not callable: it is 3 (int)"),
        (("losses:Plain",), "Plain is a class, neither a torch.nn.Module nor a torch.autograd.Function"),
        (("losses:Needs",), "Needs is made with arguments (dim, heads): make one in the module, for example net = Needs(...)"),
        (("losses:Sine.forward",), "one half of a torch.autograd.Function: audit Sine"),
        (("imports:f",), "cannot import imports: ModuleNotFoundError: No module named 'nowhere_at_all' (imports.py:2)"),
        (("deep:f",), "cannot import deep: ZeroDivisionError: division by zero (fails.py:3, in at_import)"),
        (("syntax:f",), "cannot import syntax: syntax.py:2: invalid syntax"),
        (("script:f",), "cannot import script: it ends the program when imported (script.py:2, code 3)"),
        (("losses:good", "--inputs", "rnadn(3)"), "--inputs: unknown name 'rnadn': did you mean 'randn'? (column 1)"),
        (("losses:good", "--domain", "4..1"), "--domain: low..high needs low < high, got low=4.0, high=1.0 (column 1)"),
        (("losses:ratio", "--inputs", "randn(3)"), "the inputs do not fit ratio(x, y, *, power=1): missing a required argument: 'y'"),
        (("losses:ratio", "--domain", "0..1"), "the inputs do not fit ratio(x, y, *, power=1): missing"),
        (("losses:ratio", "--domain", "0..1, _"), "--domain leaves an input out (_)"),
        (("losses:good", "--domain", "y=0..1"), "the inputs do not fit good(x, scale=1.0)"),
        (("losses:good", "--inputs", "randn(2)", "--domain", "z=0..1"), "domain names 'z', which is not differentiated"),
        (("losses:only", "--inputs", "randn(3), y=randn(3)"), "takes some inputs by position only"),
        (("losses:good", "--inputs", "3"), "inputs must hold at least one floating-point tensor"),
        (("losses:good", "--inputs", "1", "--inputs-from", "losses:x"), "give --inputs or --inputs-from, not both"),
        (("losses:good", "--inputs-from", "wrong_inputs"), "wrong_inputs must give a tensor, a tuple of arguments or a dict"),
        (("losses:good", "--inputs-from", "broken_inputs"), "broken_inputs() raised KeyError: 'no batch' (losses.py:"),
        (("losses:raises", "--inputs", "randn(3)"), "raises raised ArithmeticError: the user's own words (losses.py:{raises}, in raises)"),
        (("losses:raises_inside", "--inputs", "spd(3,3)"), "raises_inside raised _LinAlgError: linalg.cholesky"),
        (("losses:no_tensor", "--inputs", "randn(3)"), "no_tensor must return at least one floating-point tensor, got 3.0 (float)"),
        (("losses:exits", "--inputs", "randn(3)"), "exits ends the program (sys.exit, code 5)"),
        (("losses:interrupts", "--inputs", "randn(3)"), "interrupts raised KeyboardInterrupt (losses.py:"),
        (("losses:later", "--inputs", "randn(3)"), "later is an async function: a call gives no tensors"),
        (("losses:yields", "--inputs", "randn(3)"), "yields is a generator function: a call gives no tensors"),
        (("losses:constant",), "constant() takes no arguments, so there is nothing to differentiate"),
        (("losses:good", "--inputs", "(" * 3000), "--inputs: too many brackets inside one another (column 33)"),
        (("losses:nan", "--inputs", "randn(3)"), "nan returns nothing but NaN at the inputs"),
        (("losses:good", "--effort", "slow"), "--effort must be one of 'quick', 'standard', 'thorough', got 'slow'"),
        (("losses:good", "--dtype", "int64"), "--dtype must be one of"),
        (("losses:good", "--intent", "none"), "--intent must be one of"),
        (("losses:good", "--format", "xml"), "--format must be one of"),
        (("losses:good", "--tolerance", "2"), "--tolerance must be a number from 0 to 1"),
        (("losses:good", "--seed", "-1"), "--seed must be an integer >= 0"),
        (("losses:good", "--timeout", "-1"), "--timeout must be a number of seconds"),
        (("losses:good", "--html", "out.txt"), "--html must be a file that ends in .html or .htm, got out.txt"),
        (("losses:good", "--json", "out.html"), "--json must be a file that ends in .json"),
        (("losses:good", "--json", "losses.py/out.json"), "cannot write losses.py/out.json: losses.py is not a folder"),
        (("losses:good", "--json", "folder.json"), "cannot write folder.json: it is a folder"),
        (("losses:good", "losses:bad", "--json", "out.json"), "--json must be a folder where there are several targets"),
    ],
)
def test_mistakes_are_explained(here, arguments, message):
    (here / "folder.json").mkdir()
    (here / "imports.py").write_text("import os\nimport nowhere_at_all\n")
    (here / "deep.py").write_text("import fails\n")
    (here / "fails.py").write_text("\ndef at_import():\n    return 1 / 0\n\nat_import()\n")
    (here / "syntax.py").write_text("def f(x):\n  return x +\n")
    (here / "script.py").write_text("import sys\nsys.exit(3)\n")
    (here / "signal.py").write_text("def f(x):\n  return x\n")
    raises = 1 + (here / "losses.py").read_text().splitlines().index('    raise ArithmeticError("the user\'s own words")')
    code, out, err = quick(*arguments) if "--effort" not in arguments else audit(*arguments)
    assert code == 2, out + err
    assert message.format(folder=here, raises=raises, signal=signal.__file__) in err
    assert err.splitlines()[-1].startswith("pairgrad audit: ") or "(column" in err
    assert "Traceback" not in err
    assert len(err.splitlines()) <= 16
    if arguments[-1] == "z=0..1":  # a mistake, not a beginning of an audit
        assert out == ""
        assert "until then" not in err


def test_without_inputs_an_example_is_given_for_the_signature(here):
    code, _, err = audit("losses:ratio")
    assert code == 2
    assert "ratio(x, y, *, power=1) needs inputs" in err
    assert 'pairgrad audit losses:ratio --inputs "x=randn(8), y=randn(8)"' in err
    assert quick("losses:ratio", "--inputs", "x=randn(8), y=randn(8)")[0] == 0  # the example is right
    assert '--inputs "x=randn(8)"' in audit("losses:Sine")[2]
    assert '--inputs "randn(8), randn(8)"' in audit("losses:only")[2]


def test_a_place_that_cannot_be_written_is_found_before_the_function_is_called(here):
    (here / "marks.py").write_text("open('called', 'w').close()\ndef f(x):\n    return x\n")
    assert audit("marks:f", "--inputs", "randn(2)", "--html", "losses.py/x.html")[0] == 2
    assert not (here / "called").exists()
    assert quick("marks:f", "--inputs", "randn(2)", "--html", "new/x.html")[0] == 0
    assert (here / "called").exists()
    assert (here / "new" / "x.html").exists()


def test_the_traceback_begins_at_the_users_frame(here):
    _, _, err = quick("losses:raises", "--inputs", "randn(2)")
    assert "--traceback shows the way there" in err
    _, _, err = quick("losses:raises", "--inputs", "randn(2)", "--traceback")
    lines = err[err.index("Traceback") :].splitlines()
    assert lines[1].strip().startswith(f'File "{here}/losses.py"')
    assert "ArithmeticError: the user's own words" in err


def test_a_function_that_raises_in_the_middle(here):
    code, out, err = quick("losses:raises_later", "--inputs", "[0.3]", "--json", "report.json")
    assert code == 2, out
    assert "raises_later raised ArithmeticError: once too often (losses.py:" in err
    assert "while repeating calls" in err
    assert "nothing was found until then" in err
    assert json.loads((here / "report.json").read_text())["complete"] is False


# Files -----------------------------------------------------------------------------------------------------------------------


def disk_full(self, path=None):
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(("target", "code"), [("losses:good", 2), ("losses:bad", 1)])
def test_a_file_that_cannot_be_written_in_the_end(here, monkeypatch, target, code):
    monkeypatch.setattr(Report, "to_json", disk_full)
    got, out, err = quick(target, "--inputs", "randn(2)", "--json", "report.json")
    assert got == code
    assert "cannot write report.json: No space left on device" in err
    assert target.partition(":")[2] in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("losses:godo", "--inputs", "randn(2)"), "losses has no 'godo'"),
        (("losses:raises", "--inputs", "randn(2)"), "raises raised ArithmeticError"),
        (("losses:good", "--inputs", "rnadn(2)"), "--inputs: unknown name 'rnadn'"),
        (("losses:good", "--inputs", "randn(2)", "--domain", "z=0..1"), "domain names 'z'"),
    ],
)
def test_an_old_report_does_not_outlive_a_failure(here, arguments, message):
    for name in ("report.json", "report.html", "quality.json"):
        (here / name).write_text("old")
    files = ("--json", "report.json", "--html", "report.html", "--code-quality", "quality.json")
    code, out, _ = quick(*arguments, *files, "--format", "json")
    assert code == 2
    data = json.loads((here / "report.json").read_text())
    assert data["target"] == arguments[0]
    assert data["error"].startswith(message)
    assert json.loads(out) == data
    assert not (here / "report.html").exists() or (here / "report.html").read_text() != "old"
    (entry,) = json.loads((here / "quality.json").read_text())
    assert entry["check_name"] == "pairgrad/failure"
    assert message in entry["description"]
    assert set(entry) == {"description", "check_name", "fingerprint", "severity", "location"}
    assert entry["location"]["path"] == ("losses.py" if "raise" in message or "domain" in message else "unknown")


def test_what_is_not_audited_any_more_leaves_no_old_report(here, monkeypatch):
    """An error of the command itself in the second of three targets."""
    from pairgrad.cli import audit as command

    def watch(request, *rest):
        if request["target"] == "losses:bad":
            raise RuntimeError("a bug")
        return audit_child.watch(request, *rest)

    monkeypatch.setattr(command, "watch", watch)
    (here / "out").mkdir()
    (here / "out" / "losses_nan.json").write_text("old")
    code, out, err = quick("losses:good", "losses:bad", "losses:nan", "--inputs", "randn(2)", "--json", "out")
    assert code == 2
    assert "good: coherent" in out
    assert err.splitlines()[-1] == "pairgrad audit: cannot go on: RuntimeError: a bug"
    assert "error" not in json.loads((here / "out" / "losses_good.json").read_text())
    for name in ("bad", "nan"):
        data = json.loads((here / "out" / f"losses_{name}.json").read_text())
        assert data == {"target": f"losses:{name}", "error": "cannot go on: RuntimeError: a bug"}


def test_targets_with_names_alike_do_not_overwrite_each_other(here):
    assert quick("losses:good", "losses:good", "losses.py:good", "losses:Good", "--inputs", "randn(2)", "--json", "out")[0] == 2
    assert sorted(path.name for path in (here / "out").iterdir()) == [
        "losses.py_good.json",
        "losses_Good-3.json",
        "losses_good-2.json",
        "losses_good.json",
    ]


# Output -------------------------------------------------------------------------------------------------------------------


def test_only_the_verdict_where_quiet(here):
    code, out, err = quick("losses:bad", "--inputs", "randn(2)", "--quiet", "--json", "report.json")
    assert code == 1
    assert len(out.splitlines()) == 1
    assert out.startswith("bad: incoherent, by 0.2 of the gradient")
    assert err == ""
    assert (here / "report.json").exists()


def test_plain_words(here):
    _, out, _ = quick("losses:bad", "--inputs", "randn(2)", "--explain")
    assert "Likely causes: (a)" in " ".join(out.split())


def test_data_on_standard_output_and_nothing_else(here):
    code, out, err = quick("losses:bad", "--inputs", "randn(2)", "--format", "json")
    report = json.loads(out)
    assert code == 1
    assert Report.from_dict(report).verdict == "incoherent"
    assert report["target"] == "losses:bad"
    assert "[1/5]" in err
    code, out, _ = quick("losses:raises", "--inputs", "randn(2)", "--format", "json")
    assert code == 2
    assert json.loads(out)["error"].startswith("raises raised ArithmeticError")


def test_annotations(here):
    code, out, _ = quick("losses:bad", "--inputs", "randn(2)", "--format", "github")
    line = next(i for i, text in enumerate((here / "losses.py").read_text().splitlines(), 1) if text.startswith("def bad"))
    assert code == 1
    assert out.startswith(f"::error file=losses.py,line={line},title=bad is incoherent::incoherent, by 0.2")
    assert len(out.splitlines()) == 1
    assert quick("losses:good", "--inputs", "randn(2)", "--format", "github")[1] == ""
    out = quick("losses:raises", "--inputs", "randn(2)", "--format", "github")[1]
    assert out.startswith("::error file=losses.py,line=")
    assert "title=losses%3Araises could not be audited to the end::raises raised ArithmeticError" in out
    assert quick("losses", "--format", "github")[1].startswith("::error title=pairgrad audit::'losses' names no function")


def test_on_github_they_come_by_themselves(here):
    _, out, _ = quick("losses:bad", "--inputs", "randn(2)", GITHUB_ACTIONS="true")
    assert out.startswith("bad: incoherent")
    assert out.splitlines()[-1].startswith("::error file=losses.py")
    _, out, err = quick("losses:bad", "--inputs", "randn(2)", "--format", "json", GITHUB_ACTIONS="true")
    json.loads(out)
    assert "::error" in err
    assert "::error" not in quick("losses:bad", "--inputs", "randn(2)")[1]


def test_several_targets(here):
    targets = ("losses:good", "losses:bad", "losses:nan")
    code, out, err = quick(*targets, "--inputs", "randn(2)", "--json", "reports", "--html", "pages", "--code-quality", "quality.json")
    assert code == 1
    assert [line.split(":")[1].split(",")[0].strip() for line in out.splitlines() if line[0] != " "] == [
        "coherent",
        "incoherent",
        "inconclusive",
    ]
    assert sorted(path.name for path in (here / "reports").iterdir()) == ["losses_bad.json", "losses_good.json", "losses_nan.json"]
    assert (here / "pages" / "losses_bad.html").exists()
    assert [entry["check_name"] for entry in json.loads((here / "quality.json").read_text())] == [
        "pairgrad/incoherent",
        "pairgrad/inconclusive",
    ]
    assert "losses:bad: [1/5]" in err
    assert quick("losses:good", "losses:nan", "--inputs", "randn(2)")[0] == 2
    data = json.loads(quick("losses:good", "losses:raises", "--inputs", "randn(2)", "--format", "json")[1])
    assert [entry["target"] for entry in data] == ["losses:good", "losses:raises"]


def test_the_command_is_on_the_list():
    done = CliRunner(env={"COLUMNS": "120"}).invoke(app, ["--help"])
    assert "Find out whether the backward of a function is the derivative of its forward." in done.output

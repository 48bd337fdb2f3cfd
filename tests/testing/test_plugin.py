"""The pytest plugin: what --coherence records, tells, writes and fails; the marker; the fixture; xdist; and that it weighs nothing when not used."""

import json
import os
import subprocess
import sys

import pytest
import torch

import pairgrad as pg

pytest_plugins = ["pytester"]

FUNCTIONS = """
import pytest
import torch

class Cap(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sinh()

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.saved_tensors[0].cosh().clamp(max=3)     # right up to 1.76

class Sinh(Cap):
    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.saved_tensors[0].cosh()

def step(function, *x):
    function.apply(torch.tensor(x, dtype=torch.float64, requires_grad=True)).sum().backward()
"""

RIGHT = "def test_right():\n    step(Sinh, 1.0)\n"
WRONG = """
@pytest.mark.parametrize("x", [0.5, 2.0, 2.5])
def test_wrong(x):
    step(Cap, x)
    step(Sinh, x)
"""

QUICK = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest")  # whose summary imports all of Hypothesis, in every run anew


@pytest.fixture(autouse=True, scope="module")
def _everything_imported():
    """What torch imports late is imported before pytester takes its first snapshot of the modules."""
    pg.audit(torch.tanh, torch.tensor(0.5))
    with pg.coherence.record(loss=False) as recording:
        pass
    recording.audit()


@pytest.fixture
def run(pytester, monkeypatch):
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)  # pytester forgets modules, and Triton can be imported once

    def run(text, *options):
        pytester.makepyfile(test_it=FUNCTIONS + text)
        return pytester.runpytest_inprocess(*QUICK, "-W", "error", "--strict-markers", *options)

    return run


def test_importing_the_plugin_imports_neither_torch_nor_pairgrad():
    code = "import sys, pytest_pairgrad; print(*(name for name in ('torch', 'numpy', 'pairgrad') if name in sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == []


def test_a_session_without_options_never_loads_torch(pytester):
    pytester.makepyfile("import sys\ndef test_nothing():\n    assert 'torch' not in sys.modules and 'pairgrad' not in sys.modules")
    result = pytester.runpytest_subprocess(*QUICK)
    result.assert_outcomes(passed=1)
    assert "coherence" not in result.stdout.str()


def test_without_the_option_nothing_is_recorded(run):
    result = run(WRONG)
    assert result.ret == 0
    assert "coherence" not in result.stdout.str()


def test_an_incoherent_backward_fails_the_session(run):
    result = run(RIGHT + WRONG, "--coherence")
    result.assert_outcomes(passed=4)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "*= coherence =*",
            "1 of 2 custom backwards fail: Cap",
            "7 backward passes recorded: incoherent: Cap (1 of 2 custom backwards)",
            "*1. Cap (test_it.py:*): incoherent, by up to 0.51*, at 2 of 3 visited states*",
            "*2. Sinh (test_it.py:*): coherent*at 4 of 4 visited states",
            "*Cap does not pass in test_it.py::test_wrong[[]2.0], test_it.py::test_wrong[[]2.5]",
            "coherence: FAILED. *pairgrad.intended*mark.coherence(skip=True)",
        ]
    )
    assert "::error" not in result.stdout.str()
    assert "loss" not in result.stdout.str()


SECOND = """
class Lost(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.y = x.exp().detach()
        return x.exp()

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.y  # right, and its own derivative is lost

def test_lost():
    Lost.apply(torch.tensor([0.5, 1.5], dtype=torch.float64, requires_grad=True)).square().sum().backward()
"""


def test_every_failing_function_is_counted_those_of_second_order_too(run):
    result = run(RIGHT + WRONG + SECOND, "--coherence")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    first = result.stdout.str().split("= coherence =")[1].splitlines()[1]
    assert first in ("2 of 3 custom backwards fail: Cap, Lost", "2 of 3 custom backwards fail: Lost, Cap")


def test_the_audit_of_a_session_has_a_budget_and_says_what_it_left_out(run):
    assert "(default: 10)" in run("", "--help").stdout.str()
    result = run(RIGHT + WRONG, "--coherence", "--coherence-seconds=1e-6")
    result.stdout.fnmatch_lines(
        ["*left out: Cap: second order at 1 of 1 states: time was up", "*left out: Cap: 2 of 3 states kept: time was up"]
    )


def test_a_coherent_session_passes(run):
    result = run(RIGHT, "--coherence")
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        ["*= coherence =*", "0 of 1 custom backwards fail", "1 backward pass recorded: coherent: 1 custom backward"]
    )
    assert "FAILED" not in result.stdout.str()


def test_a_failing_test_stays_the_reason(run):
    result = run(RIGHT + "def test_false():\n    assert 0", "--coherence")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "coherence: FAILED" not in result.stdout.str()


def test_no_backward_at_all(run):
    result = run("def test_nothing():\n    pass", "--coherence")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*no custom backward was met*"])
    assert run("", "--coherence").ret == pytest.ExitCode.NO_TESTS_COLLECTED


def test_warn_reports_and_does_not_fail(run):
    result = run(WRONG, "--coherence-warn")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*1. Cap (*): incoherent*", "coherence: does not pass (--coherence-warn*"])


def test_what_cannot_be_decided_does_not_fail(run):
    """A value of pure noise: nothing is known of its gradient."""
    noise = """
class Rough(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return (x * 1e9).sin() * (1 + x * 1e-9)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output

def test_rough():
    step(Rough, 1.0)
"""
    result = run(noise, "--coherence")
    result.stdout.fnmatch_lines(["*1. Rough (*): inconclusive*"])
    assert result.ret == 0


def test_annotations(run, monkeypatch):
    line = "::error file=test_it.py,line=*,title=Cap is incoherent::incoherent, by up to 0.51*"
    run(WRONG, "--coherence", "--coherence-annotations").stdout.fnmatch_lines([line])
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    run(WRONG, "--coherence").stdout.fnmatch_lines([line])


def test_files(run, pytester):
    result = run(WRONG, "--coherence-json=out/report.json", "--coherence-html=pages")
    assert result.ret == pytest.ExitCode.TESTS_FAILED  # asking for a file asks for the recording
    result.stdout.fnmatch_lines(["written: out/report.json", "written: pages"])
    data = json.loads((pytester.path / "out" / "report.json").read_text())
    assert data["schema"] == "pairgrad.tests/1"
    assert not data["passed"]
    assert [node["name"] for node in data["run"]["nodes"]] == ["Cap", "Sinh"]
    assert data["tests"][0]["tests"] == ["test_it.py::test_wrong[2.0]", "test_it.py::test_wrong[2.5]"]
    assert pg.coherence.RunReport.from_dict(data["run"]).verdict == "incoherent"
    index = (pytester.path / "pages" / "index.html").read_text()
    assert '<a href="run.html">' in index
    assert "1 of 2 custom backwards fail: Cap." in index
    assert 'class="chip v-incoherent"' in index
    assert ".chip" in index.partition("<style>")[2].partition("</style>")[0]  # styled as the reports are
    assert "Cap" in (pytester.path / "pages" / "run.html").read_text()


def test_one_page(run, pytester):
    run(WRONG, "--coherence-html=out/all.html").stdout.fnmatch_lines(["written: out/all.html"])
    assert [path.name for path in (pytester.path / "out").iterdir()] == ["all.html"]


def test_a_file_that_cannot_be_written_is_told(run, pytester):
    """The place is fine when the session begins."""
    taken = "def test_takes_the_place():\n    open('out', 'w').close()\n"
    result = run(RIGHT + taken, "--coherence-json=out/report.json")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["--coherence-json=out/report.json could not be written: *", "coherence: FAILED"])


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--coherence-seconds=-1", "--coherence-seconds must be a number > 0, got -1"),
        ("--coherence-seconds=0", "--coherence-seconds must be a number > 0, got 0"),
        ("--coherence-seconds=nan", "--coherence-seconds must be a number > 0, got nan"),
        ("--coherence-json=taken/report.json", "--coherence-json=taken/report.json cannot be written: taken is not a folder"),
        ("--coherence-json=folder", "--coherence-json=folder cannot be written: it is a folder"),
        ("--coherence-html=taken", "--coherence-html=taken cannot be written: it is a file, not a folder"),
        ("--coherence-html=taken/deep/pages", "--coherence-html=taken/deep/pages cannot be written: taken is not a folder"),
        ("--coherence-html=folder/x.html/y.html", "cannot be written: permission denied for folder"),
    ],
)
def test_options_that_make_no_sense_are_told_before_anything_runs(run, pytester, monkeypatch, option, message):
    (pytester.path / "taken").write_text("")
    (pytester.path / "folder").mkdir()
    access = os.access  # the tests may run as root, who may write anywhere
    monkeypatch.setattr(os, "access", lambda path, mode: str(path) != "folder" and access(path, mode))
    result = run(RIGHT, "--coherence", option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert message in result.stderr.str()
    assert "passed" not in result.stdout.str()


def test_an_interrupted_session_says_that_nothing_was_audited(pytester):
    pytester.makepyfile(test_it=FUNCTIONS + WRONG + "\ndef test_interrupt():\n    raise KeyboardInterrupt\n")
    result = pytester.runpytest_subprocess(*QUICK, "--coherence")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["*= coherence =*", "not audited: the session was interrupted"])


def test_collecting_audits_nothing(run):
    assert "coherence" not in run(WRONG, "--coherence", "--collect-only").stdout.str()


def test_time_is_limited(run):
    many = "def test_many():\n    for k in range(40):\n        step(Sinh, 0.1 * k)\n"
    result = run(many, "--coherence", "--coherence-seconds=1e-6")
    result.stdout.fnmatch_lines(["*at 1 of 40 visited states*", "*left out: 23 of 24 states kept: time was up"])


def test_setup_and_teardown_are_recorded_too(run):
    fixture = "@pytest.fixture\ndef prepared():\n    step(Cap, 2.0)\n    yield\n    step(Cap, 2.5)\n\ndef test_it(prepared):\n    pass\n"
    run(fixture, "--coherence").stdout.fnmatch_lines(["*at 2 of 2 visited states*"])


def test_a_test_can_be_left_out(run):
    result = run("@pytest.mark.coherence(skip=True)" + WRONG + RIGHT, "--coherence")
    assert result.ret == 0
    assert "Cap" not in result.stdout.str()
    result.stdout.fnmatch_lines(["1 backward pass recorded: coherent: 1 custom backward"])


def test_a_test_can_declare_what_runs_in_it(run):
    declared = "@pytest.mark.coherence(intent='gradient-cap')" + WRONG
    result = run(declared, "--coherence")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*Cap (*): incoherent*as declared: gradient-cap*"])
    # where it is not declared it fails, and the functions carry no mark of the other test
    result = run(
        declared + "def test_elsewhere():\n    step(Cap, 2.0)\n    assert not hasattr(Cap, '__pairgrad_intent__')\n", "--coherence"
    )
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "*Cap (*): incoherent*1 of 4 visited states*",
            "*Sinh (*): coherent, to 9.09e-13 of the gradient, at 3 of 3*",
            "*Cap does not pass in test_it.py::test_elsewhere",
        ]
    )


def test_a_declaration_has_to_be_what_is_measured(run):
    result = run("@pytest.mark.coherence(intent='straight-through')" + WRONG, "--coherence")
    assert result.ret == pytest.ExitCode.TESTS_FAILED


@pytest.mark.parametrize("arguments", ["intent='cap'", "intend='gradient-cap'", "True"])
def test_a_marker_that_makes_no_sense_is_told(run, arguments):
    result = run(RIGHT + f"@pytest.mark.coherence({arguments})" + WRONG, "--coherence")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "passed" not in result.stdout.str()  # it is told before the first test
    result.stderr.fnmatch_lines(["*test_it.py::test_wrong*the marker takes skip=True, or intent= one of 'straight-through'*"])


WITH_FIXTURE = """
X = torch.tensor([0.5, 2.0], dtype=torch.float64)

def test_right(coherence):
    assert coherence(Sinh.apply, X, domain=(-2, 2), effort="quick").passed

def test_wrong(coherence):
    with pytest.raises(AssertionError, match="What to do"):
        coherence(Cap.apply, X)

def test_fails(coherence):
    coherence(Cap.apply, X)

def test_allowed(coherence):
    assert coherence(Cap.apply, X, allow=["incoherent"]).verdict == "incoherent"

@pytest.mark.coherence(intent="gradient-cap")
def test_declared(coherence):
    assert coherence(Cap.apply, X).intent == "gradient-cap"
"""


def test_the_fixture_without_the_option(run):
    result = run(WITH_FIXTURE)
    result.assert_outcomes(passed=4, failed=1)
    result.stdout.fnmatch_lines(
        [
            "E*AssertionError: Cap.apply: incoherent, by 0.1*",
            "*Captured coherence call*",
            "Cap.apply: incoherent, by 0.1*",
            "*= coherence =*",
            "5 audits made by tests:",
            "  test_it.py::test_wrong: Cap.apply: incoherent*",
            "  test_it.py::test_fails: Cap.apply: incoherent*",
            "  test_it.py::test_right: Sinh.apply: coherent*",
        ]
    )
    assert "session.py" not in result.stdout.str()  # of the traceback, the user's line is what is shown
    assert "coherence: FAILED" not in result.stdout.str()


def test_the_fixture_is_silent_where_all_is_well(run):
    text = "def test_right(coherence):\n    coherence(Sinh.apply, torch.ones(2))\n"
    for options in ((), ("-q",), ("-qq",)):
        assert "coherence" not in run(text, *options).stdout.str()
    run(text, "-v").stdout.fnmatch_lines(["1 audit made by tests:", "  test_it.py::test_right: Sinh.apply: coherent*"])


def test_the_fixture_in_the_files(run, pytester):
    result = run(WITH_FIXTURE, "--coherence-json=report.json", "--coherence-html=pages", "--junitxml=junit.xml", "--coherence-annotations")
    data = json.loads((pytester.path / "report.json").read_text())
    kept = [(audit["test"].partition("::")[2], audit["passed"], audit["report"]["verdict"]) for audit in data["audits"]]
    assert kept == [
        ("test_right", True, "coherent"),
        ("test_wrong", False, "incoherent"),
        ("test_fails", False, "incoherent"),
        ("test_allowed", True, "incoherent"),
        ("test_declared", True, "incoherent"),
    ]
    assert data["passed"]  # of what was recorded: the calls of an audit are not
    assert data["run"]["nodes"] == []
    assert sorted(path.name for path in (pytester.path / "pages").glob("audit-*")) == [
        f"audit-{i}-test-{name}.html" for i, name in enumerate(["right", "wrong", "fails", "allowed", "declared"])
    ]
    assert "Sinh.apply: coherent" in (pytester.path / "junit.xml").read_text()
    annotated = [line for line in result.outlines if line.startswith("::error")]
    assert len(annotated) == 2
    assert all("file=test_it.py,line=" in line for line in annotated)


def test_an_annotation_stands_where_the_function_does(run):
    """No custom backward is to blame here."""
    text = "def cut(x):\n    return x * x.detach()\n\ndef test_cut(coherence):\n    coherence(cut, torch.ones(2))\n"
    line = (FUNCTIONS + text).strip().splitlines().index("def cut(x):") + 1
    run(text, "--coherence-annotations").stdout.fnmatch_lines([f"::error file=test_it.py,line={line},title=cut is incoherent::*"])


def test_with_xdist(pytester, monkeypatch):
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    pytester.makepyfile(test_it=FUNCTIONS + RIGHT + WRONG + "def test_fixture(coherence):\n    coherence(Sinh.apply, torch.ones(2))\n")
    result = pytester.runpytest_subprocess(*QUICK, "-n", "2", "--coherence", "--coherence-json=report.json")
    result.assert_outcomes(passed=5)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "7 backward passes recorded: incoherent: Cap (1 of 2 custom backwards)",
            "*1. Cap (test_it.py:*): incoherent, by up to 0.51*, at 2 of 3 visited states*",
            "*2. Sinh (test_it.py:*): coherent*at 4 of 4 visited states",
            "*test_it.py::test_wrong[[]2.5]*",
            "  test_it.py::test_fixture: Sinh.apply: coherent*",
            "coherence: FAILED*",
        ]
    )
    assert len(json.loads((pytester.path / "report.json").read_text())["audits"]) == 1


@pytest.mark.slow
def test_a_worker_of_xdist_that_dies(pytester, monkeypatch):
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    pytester.makepyfile(test_it=FUNCTIONS + WRONG + "\ndef test_dies():\n    import os\n    os._exit(1)\n")
    result = pytester.runpytest_subprocess(*QUICK, "-n", "1", "--coherence")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*= coherence =*", "worker gw0 died; what it recorded is lost", "coherence: FAILED"])


def test_switched_off(run):
    assert run(WRONG, "-p", "no:pairgrad").ret == 0
    assert run(WRONG, "-p", "no:pairgrad", "--coherence").ret == pytest.ExitCode.USAGE_ERROR

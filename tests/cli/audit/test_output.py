"""Files and streams that `pairgrad audit` writes."""

from __future__ import annotations

import json

import pytest

from pairgrad.cli import audit_child
from pairgrad.coherence import Report
from tests.cli.audit.command import quick
from tests.cli.command import invoke


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
    assert "PASS good\ncoherent, to " in out
    assert err.splitlines()[-1] == "pairgrad audit: cannot continue: RuntimeError: a bug"
    assert "error" not in json.loads((here / "out" / "losses_good.json").read_text())
    for name in ("bad", "nan"):
        data = json.loads((here / "out" / f"losses_{name}.json").read_text())
        assert data == {"target": f"losses:{name}", "error": "cannot continue: RuntimeError: a bug"}


def test_targets_with_names_alike_do_not_overwrite_each_other(here):
    assert quick("losses:good", "losses:good", "losses.py:good", "losses:Good", "--inputs", "randn(2)", "--json", "out")[0] == 2
    assert sorted(path.name for path in (here / "out").iterdir()) == [
        "losses.py_good.json",
        "losses_Good-3.json",
        "losses_good-2.json",
        "losses_good.json",
    ]


def test_only_the_verdict_where_quiet(here):
    code, out, err = quick("losses:bad", "--inputs", "randn(2)", "--quiet", "--json", "report.json")
    assert code == 1
    assert len(out.splitlines()) == 1
    assert out.startswith("bad: incoherent, by 0.2")
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
    assert "[1/4]" in err
    code, out, _ = quick("losses:raises", "--inputs", "randn(2)", "--format", "json")
    assert code == 2
    assert json.loads(out)["error"].startswith("raises raised ArithmeticError")


def test_annotations(here):
    code, out, _ = quick("losses:bad", "--inputs", "randn(2)", "--format", "github")
    line = next(i for i, text in enumerate((here / "losses.py").read_text().splitlines(), 1) if text.startswith("def bad"))
    assert code == 1
    assert out.startswith(f"::error file=losses.py,line={line},title=bad is incoherent::gradient of input 0 (argument 1) is ")
    assert len(out.splitlines()) == 1
    assert quick("losses:good", "--inputs", "randn(2)", "--format", "github")[1] == ""
    out = quick("losses:raises", "--inputs", "randn(2)", "--format", "github")[1]
    assert out.startswith("::error file=losses.py,line=")
    assert "title=losses%3Araises could not be audited to the end::raises raised ArithmeticError" in out
    assert quick("losses", "--format", "github")[1].startswith("::error title=pairgrad audit::'losses' names no function")


def test_on_github_they_come_by_themselves(here):
    _, out, _ = quick("losses:bad", "--inputs", "randn(2)", GITHUB_ACTIONS="true")
    assert out.startswith("FAIL bad\n")
    assert "bad: incoherent" in out
    assert out.splitlines()[-1].startswith("::error file=losses.py")
    _, out, err = quick("losses:bad", "--inputs", "randn(2)", "--format", "json", GITHUB_ACTIONS="true")
    json.loads(out)
    assert "::error" in err
    assert "::error" not in quick("losses:bad", "--inputs", "randn(2)")[1]


def test_several_targets(here):
    targets = ("losses:good", "losses:bad", "losses:nan")
    code, out, err = quick(*targets, "--inputs", "randn(2)", "--json", "reports", "--html", "pages", "--code-quality", "quality.json")
    assert code == 1
    first = ("PASS", "FAIL", "UNDECIDED")
    assert [line for line in out.splitlines() if line.startswith(first)] == ["PASS good", "FAIL bad", "UNDECIDED nan"]
    assert sorted(path.name for path in (here / "reports").iterdir()) == ["losses_bad.json", "losses_good.json", "losses_nan.json"]
    assert (here / "pages" / "losses_bad.html").exists()
    assert [entry["check_name"] for entry in json.loads((here / "quality.json").read_text())] == [
        "pairgrad/incoherent",
        "pairgrad/inconclusive",
    ]
    assert "losses:bad: [1/4]" in err
    assert quick("losses:good", "losses:nan", "--inputs", "randn(2)")[0] == 2
    data = json.loads(quick("losses:good", "losses:raises", "--inputs", "randn(2)", "--format", "json")[1])
    assert [entry["target"] for entry in data] == ["losses:good", "losses:raises"]


def test_the_command_is_on_the_list():
    assert "Is a backward the derivative of its forward?" in invoke("--help").output

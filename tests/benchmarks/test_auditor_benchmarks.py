"""The pages on the auditor: that they count what the tools say, that evidence decides what is a false alarm, and that docs/ has the present zoo."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
import torch
from benchmarks.auditor import __main__ as command
from benchmarks.auditor import comparison, cost, example, library, recording
from benchmarks.auditor.as_jax import NotWrapped, check_grads

from tests.coherence import library_functions

DOCS = Path(__file__).resolve().parents[2] / "docs"
SPECIMENS = {specimen.name: specimen for specimen in (*comparison.ZOO, *comparison.HALF)}
FUNCTIONS = {function.name: function for function in library_functions.FUNCTIONS}
SPENT = {"audited": 30.0, "audited and kept": 45.0, "kept before": 0.5}
COST = cost.Cost("f", "coherent", seconds=1.0, seconds_goal=2.0, evaluations=10, own=3.0, peak=203.5)

# Wrong in the ninth digit, which torch's tolerance of 1e-3 cannot see; wrong by half; right in both dtypes, all three.
SUBTLE, COARSE = "independent-leaky-gelu", "independent-squared-hinge"
OPERATOR = "independent-log-floor"  # a custom op of torch.library


def cells(text: str, heading: str) -> list[list[str]]:
    """The rows of the table under a heading."""
    section = text.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("|")]
    return rows[2:]


@pytest.fixture(scope="module")
def cases() -> list[comparison.Case]:
    return comparison.compare([(SPECIMENS[name], dtype) for name in (SUBTLE, COARSE) for dtype in (torch.float64, torch.float32)], seeds=1)


@pytest.fixture(scope="module")
def entries() -> list[library.Entry]:
    names = ("special.digamma, negative", "softmax", "binary_cross_entropy", "embedding, with a padding row")
    return library.sweep([FUNCTIONS[name] for name in names], seeds=1)


def test_what_each_tool_finds_is_counted(cases: list[comparison.Case]) -> None:
    double = [case for case in cases if case.dtype == torch.float64]
    assert comparison.share(double, "broken", "audit") == (2, 2)
    assert comparison.share(double, "broken", "gradcheck") == (1, 2)
    assert comparison.share(double, "broken", "fast gradcheck") == (1, 2)
    assert comparison.share(double, "broken", "pairgrad.gradcheck") == (2, 2)
    assert comparison.share(double, "broken", "check_grads") == (1, 2)
    for tool in ("audit", *comparison.OTHERS, "check_grads"):
        assert comparison.share(double, "right", tool) == (0, 2), tool
    assert comparison.distinguished(double, "audit") == (2, 2)
    assert comparison.distinguished(double, "gradcheck") == (1, 2)
    assert comparison.clean(cases)


def test_a_function_that_is_not_broken_in_a_dtype_does_not_count(cases: list[comparison.Case]) -> None:
    single = [case for case in cases if case.dtype == torch.float32]
    assert comparison.share(single, "broken", "audit") == (1, 1)
    assert comparison.share(single, "right", "audit") == (0, 2)
    # Differences of step 1e-6 are rounding in float32: what is right is flagged too, and no pair is distinguished.
    assert comparison.share(single, "right", "gradcheck") == (2, 2)
    assert comparison.distinguished(single, "gradcheck") == (0, 1)


def test_the_comparison_is_written_from_the_counts(cases: list[comparison.Case]) -> None:
    text = comparison.page(
        cases, {"float64": [comparison.Outcome("cleared", seconds=s, calls=100) for s in range(1, 11)]}, [COST], SPENT, "the command"
    )
    assert "Measured by `the command` on" in text
    assert "| float64 | audit | 2 / 2 | 0 / 2 | 2 / 2 |\n| float64 | pairgrad.gradcheck | 2 / 2 | 0 / 2 | 2 / 2 |" in text
    assert "| float64 | gradcheck | 1 / 2 | 0 / 2 | 1 / 2 |" in text
    assert (
        "Broken functions that pass all three gradient checks of torch at some draw: 1, 0 wrong only away from the inputs, 1 with mistakes of 7e-09"
        in text
    )
    assert (
        "the pairs number 2. Pairs distinguished: audit 2, gradcheck 1, fast gradcheck 1, gradgradcheck 0, gradcheck and gradgradcheck together 1."
        in text
    )
    assert [row[0] for row in cells(text, "By specimen, float64")] == [SUBTLE, COARSE]
    subtle, coarse = cells(text, "By specimen, float64")
    assert re.fullmatch(r"[5-9](\.\d+)?e-09 ± \de-1\d", subtle[3])
    assert subtle[4:] == ["found", "**missed**", "**missed**", "**missed**", "**missed**", "", "**missed**", "none"]
    assert coarse[4:] == ["found", "found", "found", "**missed**", "found", "", "found", "none"]
    *_, scalars = cells(text, "Time of an audit")
    assert scalars == ["10 scalar functions of torch, float64", "10", "5.50", "9.00", "10.00", "100", "100"]
    assert "None: every broken function was flagged, and every right one cleared." in text
    assert "| audited | audited and kept | kept before |\n|---|---|---|\n| 30 | 45 | 0.5 |" in text
    assert "without kept results: held" in text
    assert "without kept results: **not held**" in cost.many_table(SPENT | {"audited": 61.0})
    assert cells(text, "Cost of an audit")[0][5:] == ["3.0", "200.5", "at most 200: **not held**"]


def test_a_missed_function_and_a_wrong_accusation_are_not_clean(cases: list[comparison.Case]) -> None:
    (case,) = (case for case in cases if case.specimen.name == COARSE and case.dtype == torch.float64)
    assert case.broken is not None
    missed = dataclasses.replace(case, broken={**case.broken, "audit": case.right["audit"]})
    accused = dataclasses.replace(case, right={**case.right, "audit": case.broken["audit"]})
    for said in (comparison.RAISED, comparison.UNDECIDED):
        stumbled = dataclasses.replace(case, right={**case.right, "audit": [comparison.Outcome(said)]})
        assert not comparison.clean([stumbled])
    assert not comparison.clean([missed])
    assert not comparison.clean([accused])
    assert "- independent-squared-hinge (right, float64, draw 0): flagged, 0." in comparison.page([accused], {}, [], SPENT, "")
    assert "- independent-squared-hinge (broken, float64, draw 0): cleared, coherent" in comparison.page([missed], {}, [], SPENT, "")


def test_opcheck_counts_operators_alone_and_does_not_judge_gradients() -> None:
    cases = comparison.compare([(SPECIMENS[name], torch.float64) for name in (OPERATOR, COARSE)], seeds=1)
    assert comparison.share(cases, "broken", "audit") == (2, 2)
    assert comparison.share(cases, "broken", "opcheck") == (0, 1)
    assert comparison.share(cases, "right", "opcheck") == (0, 1)
    assert comparison.distinguished(cases, "opcheck") == (0, 1)
    text = comparison.page(cases, {}, [], SPENT, "")
    assert "Of the 2 pairs in float64 it applies to 1: it flags 0 of 1 broken functions and 0 of 1 right ones." in text
    assert [row[9] for row in cells(text, "By specimen, float64")] == ["**missed**", ""]


def test_rules_are_counted_in_the_first_table() -> None:
    cases = comparison.compare([(SPECIMENS[name], torch.float64) for name in ("reported-jvp-order", "ours-vmap-rule")], seeds=1)
    jvp, vmap, *others = cells(comparison.page(cases, {}, [], SPENT, ""), "What each tool looks at")
    assert jvp == ["`jvp` rules", "1 / 1", "0 / 1; with `check_forward_ad` 1 / 1", "no", '`modes=["fwd"]`']
    assert vmap == ["`vmap` rules", "1 / 1", "0 / 1; with `check_batched_grad` 0 / 1", "no", "no"]
    assert others[0][0] == "many configurations at once"  # there is no specimen of the others here


def test_check_grads_gets_value_and_backward() -> None:
    """Two outputs, an argument that is held, and a backward that is off by two per cent."""

    def fn(x: torch.Tensor, count: int, factor: float) -> tuple[torch.Tensor, torch.Tensor]:
        return x.sin() * count, factor * x.square() + (1 - factor) * x.detach().square()

    x = torch.tensor([0.3, 1.2], dtype=torch.float64, requires_grad=True)
    check_grads(fn, (x, 2, 1.0))
    with pytest.raises(AssertionError, match="VJP cotangent projection"):
        check_grads(fn, (x, 2, 1.02))
    with pytest.raises(NotWrapped, match="sparse"):
        check_grads(lambda a: a.to_dense(), (torch.eye(2).to_sparse().requires_grad_(),))


def test_an_operator_that_is_registered_wrongly_is_flagged_by_opcheck() -> None:
    op = torch.library.custom_op("benchmark_tests::half", mutates_args=(), schema="(Tensor x) -> Tensor")(lambda x: x / 2)
    specimen = dataclasses.replace(SPECIMENS[OPERATOR], right=lambda: op, broken=lambda: op)
    outcome = comparison.judge("opcheck", specimen, "right", torch.float64, 0)
    assert (outcome.said, outcome.text) == (comparison.FLAGGED, "fails test_faketensor, test_aot_dispatch_dynamic")


def test_audits_get_the_constraints_of_a_specimen() -> None:
    specimen = SPECIMENS["ours-symmetric-solve"]
    assert specimen.constraints is not None
    assert comparison.judge("audit", specimen, "right", torch.float64, 0).said == comparison.CLEARED
    refused = dataclasses.replace(specimen, constraints=("sphere", *specimen.constraints[1:]))
    assert comparison.judge("audit", refused, "right", torch.float64, 0).said == comparison.RAISED


def test_scalar_functions_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "SCALARS", {"sin": torch.sin})
    found = comparison.time_scalars()
    assert list(found) == ["float64", "float32"]
    for (outcome,) in found.values():
        assert outcome.said == comparison.CLEARED
        assert outcome.seconds > 0
        assert outcome.calls > 0


def test_errors_that_are_no_verdict_are_listed() -> None:
    def raising():
        def fn(x: torch.Tensor) -> torch.Tensor:
            raise ArithmeticError("not today")

        return fn

    specimen = dataclasses.replace(SPECIMENS[COARSE], name="raising", right=raising, broken=raising)
    cases = comparison.compare([(specimen, torch.float64)], seeds=1)
    assert comparison.share(cases, "broken", "gradcheck") == (0, 1)
    assert any(
        line.startswith("- gradcheck, ") and "raising (broken, float64), raising (right, float64)" in line
        for line in comparison.raised(cases)
    )


def test_gradcheck_gets_keywords_and_parameters() -> None:
    torch.manual_seed(0)
    layer = torch.nn.Linear(3, 2)
    fn, inputs = comparison.as_positional(layer, {"input": torch.ones(4, 3, dtype=torch.float64)}, torch.float64)
    assert [tuple(tensor.shape) for tensor in inputs] == [(4, 3), (2, 3), (2,)]
    assert all(tensor.requires_grad for tensor in inputs)
    doubled = (inputs[0], 2 * inputs[1], 2 * inputs[2])
    torch.testing.assert_close(fn(*doubled), 2 * fn(*inputs))


@pytest.mark.slow
def test_evidence_bears_out_what_was_found(entries: list[library.Entry]) -> None:
    assert [(entry.function.name, len(entry.evidence)) for entry in entries] == [
        ("special.digamma, negative", 1),
        ("softmax", 0),
        ("binary_cross_entropy", 1),
        ("embedding, with a padding row", 2),
    ]
    assert library.false_alarms(entries) == []
    digamma = entries[0].evidence[torch.float64]
    assert digamma is not None
    # At the very place where the auditor looked: two methods that share nothing agree.
    assert digamma.defect == pytest.approx(library.worst(entries[0].reports[torch.float64]).defect, rel=0.05)


def test_an_accusation_without_evidence_is_called_a_false_alarm(entries: list[library.Entry]) -> None:
    accused = entries[2]
    nothing = dataclasses.replace(accused, evidence={torch.float64: None})
    found = accused.evidence[torch.float64]
    assert found is not None
    little = dataclasses.replace(accused, evidence={torch.float64: dataclasses.replace(found, defect=1e-13)})
    for entry in (nothing, little):
        assert library.false_alarms([entry]) == ["binary_cross_entropy (float64)"]
        assert "1 are not: binary_cross_entropy (float64). These count as false alarms." in library.page([entry], "")


def test_right_functions_have_no_defect_by_the_same_evidence() -> None:
    """digamma's own derivative is the culprit: mpmath finds nothing in log Γ, whose gradient is digamma."""
    row = library.split(torch.lgamma, library.EXACT["lgamma"], 1.7, torch.float64, 1)
    assert abs(row.defect) < 1e-12  # rounding of the value over a segment of 1/64 of the argument


def test_the_library_page_lists_every_function(entries: list[library.Entry]) -> None:
    text = library.page(entries, "the command")
    assert "Measured by `the command` on" in text
    assert "passed are 1 in float64 and 3 in float32" in text
    assert "4 are borne out by evidence that the auditor has no part in, and 0 are not: there is no false alarm." in text
    assert [row[0] for row in cells(text, "All functions")] == [entry.function.name for entry in entries]


def test_the_cost_of_an_audit_is_measured() -> None:
    found = cost.one("erfcx, one number")
    assert found.headline.startswith("coherent")
    assert found.seconds > 0
    assert found.evaluations > 0
    assert found.beyond >= 0


@pytest.mark.parametrize(("clean", "alarms", "code"), [(True, [], 0), (False, [], 1), (True, ["f"], 1)])
def test_exit_code_and_pages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, clean: bool, alarms: list[str], code: int) -> None:
    monkeypatch.setattr(comparison, "compare", lambda cases, seeds: [])
    monkeypatch.setattr(comparison, "page", lambda cases, scalars, costs, spent, command: f"{command}\n")
    monkeypatch.setattr(comparison, "clean", lambda cases: clean)
    monkeypatch.setattr(comparison, "time_scalars", dict)
    monkeypatch.setattr(cost, "measure", lambda: [COST])
    monkeypatch.setattr(cost, "many", lambda: SPENT)
    monkeypatch.setattr(library, "sweep", lambda functions, seeds: [])
    monkeypatch.setattr(library, "page", lambda entries, command: f"{command}\n")
    monkeypatch.setattr(library, "false_alarms", lambda entries: alarms)
    monkeypatch.setattr(recording, "measure", lambda say: ())
    monkeypatch.setattr(recording, "page", lambda command: f"{command}\n")
    monkeypatch.setattr(recording, "good", lambda: True)
    monkeypatch.setattr(example, "make", lambda folder: [folder / "audit-example.html"])
    assert command.main(["all", "--seeds", "3", "--output", str(tmp_path)]) == code
    assert (tmp_path / "auditor-comparison.md").read_text() == "python -m benchmarks.auditor comparison --seeds 3\n"
    assert (tmp_path / "auditor-library.md").read_text() == "python -m benchmarks.auditor library --seeds 3\n"
    assert (tmp_path / "auditor-recording.md").read_text() == "python -m benchmarks.auditor recording\n"


def test_the_comparison_in_docs_has_the_present_zoo() -> None:
    """If this fails, a specimen has changed: run `make audit-pages ARGS=comparison`."""
    text = (DOCS / "auditor-comparison.md").read_text()
    assert re.search(r"^Measured by `python -m benchmarks\.auditor comparison( --seeds \d+)?` on$", text, re.MULTILINE)
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        listed = {
            (row[0].removesuffix(", over a domain"), row[1]) for row in cells(text, f"By specimen, {str(dtype).removeprefix('torch.')}")
        }
        assert listed == {(specimen.name, specimen.kind) for specimen, of in comparison.zoo_cases() if of == dtype}
    assert [row[0] for row in cells(text, "Cost of an audit")] == list(cost.CASES)


def test_the_library_in_docs_has_the_present_functions() -> None:
    """If this fails, a function has been added: run `make audit-pages ARGS=library`."""
    text = (DOCS / "auditor-library.md").read_text()
    assert re.search(r"^Measured by `python -m benchmarks\.auditor library( --seeds \d+)?` on$", text, re.MULTILINE)
    assert [row[0] for row in cells(text, "All functions")] == list(FUNCTIONS)

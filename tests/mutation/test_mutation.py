"""The declarations of the mutation tests: they must keep up with the code. The mutants themselves are run by `python -m tests.mutation run`."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

from tests.mutation import explained, pages
from tests.mutation.mutants import code_digest, make, places, text_of
from tests.mutation.results import Results, files_of, importers
from tests.mutation.scope import GROUPS, ROOT, SOURCE, Group, selected


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.name)
def test_declared_files_exist(group: Group) -> None:
    missing = [name for name in group.modules if not (SOURCE / name).is_file()]
    missing += [name for name in (*group.tests, *group.leave_out) if not (ROOT / "tests" / name.split("::")[0]).exists()]
    for name in group.leave_out:
        file, _, test = name.partition("::")
        if test and f"def {test}(" not in (ROOT / "tests" / file).read_text(encoding="utf-8"):
            missing.append(name)
    assert not missing, f"tests/mutation/scope.py names what does not exist: {missing}"
    assert files_of(group)


def test_a_module_is_declared_once() -> None:
    names = selected([])
    assert len(names) == len(set(names))


def _functions(module: str) -> dict[str, str]:
    """Source of each function and class by qualified name, in one line; "<module>" is everything."""
    text = text_of(module)
    found = {"<module>": explained.normal(text)}

    def visit(node: ast.AST, names: tuple[str, ...]) -> None:
        for child in ast.iter_child_nodes(node):
            inner = names
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inner = (*names, child.name)
                first = min([child.lineno, *(d.lineno for d in child.decorator_list)])
                lines = text.splitlines()[first - 1 : child.end_lineno]
                found[".".join(inner)] = found.get(".".join(inner), "") + " " + explained.normal(" ".join(lines))
            visit(child, inner)

    visit(ast.parse(text), ())
    return found


@pytest.mark.parametrize("entry", explained.load(), ids=lambda e: f"{e.module}:{e.function}:{e.kind}")
def test_explanations_are_about_code_that_exists(entry: explained.Explanation) -> None:
    assert entry.kind in explained.KINDS
    assert entry.module in selected([]), f"{entry.module} is not in tests/mutation/scope.py"
    assert len(entry.reason) > 20
    assert entry.changes
    source = _functions(entry.module).get(entry.function)
    assert source is not None, f"{entry.module} has no {entry.function} any more: remove its explanation"
    stale = [before for before, after in entry.changes if explained.normal(before) not in source or before == after]
    assert not stale, f"{entry.module}, {entry.function} has changed; look again whether these are explained: {stale}"


def test_no_change_is_explained_twice() -> None:
    entries = explained.load()
    assert len(explained.index(entries)) == sum(len(entry.changes) for entry in entries)


def test_the_page_shows_the_explanations() -> None:
    page = pages.PAGE.read_text(encoding="utf-8")
    assert pages.with_explanations(page) == page, "run `python -m tests.mutation docs`"


def test_rows_of_files_that_were_not_run_here_stay() -> None:
    page = pages.PAGE.read_text(encoding="utf-8")
    assert pages.with_counts(page, {}) == page
    row = Counter(mutants=7, killed=4, timeout=1, explained=2)
    table = pages.counts_on(pages.with_counts(page, {"sphere/area.py": row}))
    assert table.pop("sphere/area.py") == row
    assert table == {module: counts for module, counts in pages.counts_on(page).items() if module != "sphere/area.py"}
    assert len(table) > 30


# With the tool ----------------------------------------------------------------------------------------------------------


def test_mutants_have_one_mistake_and_know_where_it_is() -> None:
    pytest.importorskip("cosmic_ray")
    listed = places("sphere/area.py")
    made = [mutant for mutant in map(make, listed) if mutant is not None]
    assert len(made) == len(listed)
    texts = {(m.before, m.after) for m in made}
    assert (
        "return math.log(2) + half * math.log(math.pi) - math.lgamma(half)",
        "return math.log(2) + half * math.log(math.pi) + math.lgamma(half)",
    ) in texts
    constant = next(m for m in made if m.before.startswith("_LARGEST_GAMMA_DIM = 300"))
    assert (constant.function, constant.at_import) == ("<module>", True)
    inside = next(m for m in made if m.before.startswith("half ="))
    assert (inside.function, inside.at_import) == ("log_area", False)
    assert all(len(set(m.source.splitlines()) - set(text_of("sphere/area.py").splitlines())) == 1 for m in made)


def test_a_change_of_an_annotation_is_no_mutant() -> None:
    pytest.importorskip("cosmic_ray")
    annotations = [p for p in places("sphere/geometry.py") if "BitOr" in p.operator]
    assert len(annotations) == 1  # Temperature = float | torch.Tensor is evaluated
    assert make(annotations[0]) is not None
    unions = [p for p in places("sphere/resultant.py") if "BitOr" in p.operator]
    assert unions
    assert [make(p) for p in unions] == [None] * len(unions)


def test_outcomes_are_forgotten_when_the_file_or_the_test_that_killed_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cosmic_ray")
    mutant = make(places("sphere/area.py")[0])
    assert mutant is not None
    results = Results(tmp_path)
    results.add(mutant, "killed", "tests/sphere/test_area.py::test_log_area_against_fifty_digits[2]", "live", 1.0, 3)
    assert Results(tmp_path).records[mutant.place.key]["outcome"] == "killed"
    monkeypatch.setattr("tests.mutation.results.text_of", lambda module: "changed")
    assert Results(tmp_path).records == {}
    monkeypatch.undo()
    monkeypatch.setattr("tests.mutation.results.digest_of_test", lambda name: "changed")
    assert Results(tmp_path).records == {}


def test_comments_and_docstrings_are_no_code() -> None:
    before = "def f(x):\n    return x + 1\n"
    assert code_digest('"""Says."""\n\n\ndef f(x):\n    """More."""\n    return x + 1  # one\n') == code_digest(before)
    assert code_digest(before.replace("+", "-")) != code_digest(before)
    assert code_digest('def f(x):\n    "a" + x\n    return x + 1\n') != code_digest(before)
    assert code_digest("def f(") != code_digest(before)


def test_tests_that_read_constants_are_found_by_their_imports() -> None:
    files = ["tests/coherence/test_panel.py", "tests/coherence/test_status.py"]
    assert importers("coherence/limits.py", files) == {"tests/coherence/test_panel.py"}
    assert importers("coherence/status.py", files) == set()
    assert importers("coherence/subject.py", files) == {"tests/coherence/test_panel.py"}

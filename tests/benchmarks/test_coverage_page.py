"""The page on coverage counts by package, joins neighbouring lines and does not round up to all."""

from __future__ import annotations

from benchmarks.coverage import ALL_TESTS, package, page, ranges, share


def file(statements: int, missing: list[int]) -> dict[str, object]:
    return {"summary": {"num_statements": statements, "covered_lines": statements - len(missing)}, "missing_lines": missing}


def test_numbers() -> None:
    assert ranges([5, 3, 4, 9, 11, 12]) == "3-5, 9, 11-12"
    assert ranges([]) == ""
    assert (share(9999, 10000), share(10, 10), share(0, 0)) == ("99.9", "100.0", "100.0")
    paths = (
        "src/pairgrad/ground/checks.py",
        "paper/src/pairgrad_paper/runs/lock.py",
        "paper/src/pairgrad_paper/table.py",
        "src/pytest_pairgrad.py",
    )
    assert [package(path) for path in paths] == ["pairgrad.ground", "pairgrad_paper.runs", "pairgrad_paper", "pytest_pairgrad"]
    assert package("src/pairgrad/__init__.py") == "pairgrad"


def test_page() -> None:
    files = {
        "src/pairgrad/ground/a.py": file(90, [1, 2, 3]),
        "src/pairgrad/ground/b.py": file(10, [7]),
        "src/pairgrad/ood/c.py": file(20, []),
    }
    totals = {"num_statements": 120, "covered_lines": 116, "excluded_lines": 2}
    text = page({"files": files, "totals": totals, "meta": {"version": "7"}}, ALL_TESTS)
    assert "| `pairgrad.ground` | 100 | 4 | 96.0 |" in text
    assert "| `pairgrad.ood` | 20 | 0 | 100.0 |" in text
    assert "| all | 120 | 4 | 96.6 |" in text
    assert "| `src/pairgrad/ground/a.py` | 3 | 1-3 |" in text
    assert "b.py" not in text
    assert "(1 others have one or two)" in text
    assert "The goal of 95 % is reached: 96.6 %." in text
    totals["covered_lines"] = 113
    assert "is not reached: 94.1 %" in page({"files": files, "totals": totals, "meta": {"version": "7"}}, ALL_TESTS)
    assert "The goal" not in page({"files": files, "totals": totals, "meta": {"version": "7"}}, "by some tests")

"""examples/gpu.ipynb: its cells run from first to last, with the CPU as the device."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "examples" / "gpu.ipynb"
SMALL = {
    "DEVICE": "cpu",
    "SIZES": ("--batch", "4", "--classes", "20", "--dim", "16", "--repeats", "1"),
    "TESTS": ("tests/test_gpu.py", "-k", "wrong_label"),
    "COMPILE": (),
}


def cells() -> list[str]:
    content = json.loads(NOTEBOOK.read_text())
    assert (content["nbformat"], content["nbformat_minor"]) == (4, 4)
    return ["".join(cell["source"]) for cell in content["cells"] if cell["cell_type"] == "code"]


def test_it_is_kept_without_outputs() -> None:
    assert all(
        not cell["outputs"] and cell["execution_count"] is None for cell in json.loads(NOTEBOOK.read_text())["cells"] if "outputs" in cell
    )


def test_the_first_cell_has_the_parameters() -> None:
    names = {
        target.id
        for node in ast.parse(cells()[0]).body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    assert names == SMALL.keys()


def ran(changed: dict[str, object], folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[str, dict[str, int]]:
    names: dict[str, object] = {}
    for number, cell in enumerate(cells()):
        exec(compile(cell, f"cell {number}", "exec"), names)
        if number == 0:
            names.update(changed)
        if number == 1:
            names["OUTPUT"] = folder
    codes = names["codes"]
    assert isinstance(codes, dict)
    return capsys.readouterr().out, codes


@pytest.mark.slow
def test_it_runs_on_the_cpu(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT / "examples")
    printed, codes = ran(SMALL, tmp_path, capsys)
    assert codes == {"pairgrad doctor": 0, "pairgrad bench": 0, "pytest -m": 0}, printed
    for words in ("All is well. cpu agrees with the CPU.", "Local costs", "1 passed", "All three passed."):
        assert words in printed
    assert json.loads((tmp_path / "doctor.json").read_text())["healthy"]
    assert json.loads((tmp_path / "bench.json").read_text())["local_costs"]


@pytest.mark.slow
def test_a_device_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    printed, codes = ran({**SMALL, "DEVICE": "cuda:77"}, tmp_path, capsys)
    assert (codes["pairgrad doctor"], codes["pairgrad bench"]) == (2, 2)
    assert printed.count("--device must be one that torch can use with float32, got 'cuda:77'") >= 2
    assert "All three passed." not in printed

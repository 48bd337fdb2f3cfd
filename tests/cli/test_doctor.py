"""`pairgrad doctor` and `pairgrad bench`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest
import torch

import pairgrad as pg

from .command import invoke


def _without(missing: str) -> Callable[[str], str]:
    """importlib.metadata.version where a distribution is not installed."""
    known = metadata.version

    def version(name: str) -> str:
        if name == missing:
            raise metadata.PackageNotFoundError(name)
        return known(name)

    return version


def _packages(folder: Path) -> tuple[int, dict[str, dict[str, str]]]:
    """The exit code, and what is said of each package and extra."""
    done = invoke("doctor", "--json", str(folder / "doctor.json"))
    return done.exit_code, {found["name"]: found for found in json.loads((folder / "doctor.json").read_text())["packages"]}


class TestDoctor:
    def test_it_says_what_there_is_and_that_it_is_right(self, tmp_path: Path) -> None:
        done = invoke("doctor", "--json", str(tmp_path / "doctor.json"), columns=80)
        assert done.exit_code == 0, done.output
        assert max(map(len, done.stdout.replace(str(tmp_path), "").splitlines())) <= 80
        for heading in ("System", "Packages", "Devices and dtypes", "Self-check", "All is well."):
            assert heading in done.stdout
        assert torch.__version__ in done.stdout
        found = json.loads((tmp_path / "doctor.json").read_text())
        assert found["healthy"]
        names = ["potential", "derivatives", "learning step", "sampling", "certificate", "auditor"]
        assert [check["name"] for check in found["checks"]] == names
        assert {check["status"] for check in found["checks"]} == {"ok"}
        assert "float64, float32, bfloat16" in found["devices"][0]["words"]

    def test_a_wrong_slope_is_noticed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        right = pg.Potential.slope
        monkeypatch.setattr(
            pg.Potential, "slope", lambda self, x: right(self, x) * (1 + 1e-12) if self.realization == "paired" else right(self, x)
        )
        done = invoke("doctor")
        assert done.exit_code == 1
        assert re.search(r"potential +FAILED", done.stdout)
        assert re.search(r"derivatives +FAILED", done.stdout)
        assert "Not well: potential, derivatives. Please report" in done.stdout

    def test_a_missing_extra_is_no_failure(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(metadata, "version", _without("jax"))
        code, found = _packages(tmp_path)
        assert code == 0
        assert found["[jax]"]["status"] == "missing"
        assert "lacks jax: pip install -U 'pairgrad[jax]'" in found["[jax]"]["words"]

    def test_a_missing_requirement_is_one(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(metadata, "version", _without("numpy"))
        code, found = _packages(tmp_path)
        assert code == 1
        assert (found["numpy"]["status"], found["numpy"]["words"]) == ("FAILED", "not installed, required")

    def test_packages_that_are_too_old(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """The least versions are those that the distribution declares, such as torch 2.11."""
        known, old = metadata.version, {"jinja2": "0.1", "torch": "2.5.9"}
        monkeypatch.setattr(metadata, "version", lambda name: old.get(name) or known(name))
        _, found = _packages(tmp_path)
        assert found["[html]"]["status"] == found["torch"]["status"] == "too old"
        assert "lacks jinja2 0.1" in found["[html]"]["words"]

    def test_the_paper_s_experiments_are_named(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        assert "pairgrad train" in _packages(tmp_path)[1]["pairgrad-paper"]["words"]
        monkeypatch.setattr(metadata, "version", _without("pairgrad-paper"))
        code, found = _packages(tmp_path)
        assert code == 0
        assert found["pairgrad-paper"]["status"] == "missing"
        assert "pip install pairgrad-paper" in found["pairgrad-paper"]["words"]

    def test_every_extra_for_users_is_listed(self, tmp_path: Path) -> None:
        """An extra that is added is listed, or said here to be for developers."""
        declared = set(metadata.metadata("pairgrad").get_all("Provides-Extra") or ())
        developers = {"all", "bench", "bench-peers", "dev", "docs", "test", "looks", "mutation", "coverage"}
        listed = {name.strip("[]") for name in _packages(tmp_path)[1] if name.startswith("[")}
        assert declared - developers == listed

    @pytest.mark.slow
    def test_compile(self) -> None:
        done = invoke("doctor", "--compile")
        assert done.exit_code == 0, done.output
        assert re.search(r"torch.compile +ok", done.stdout)


class TestSelfCheck:
    def test_a_dtype_that_is_off_is_not_called_usable(self, monkeypatch: pytest.MonkeyPatch) -> None:
        right = pg.Potential.value
        monkeypatch.setattr(pg.Potential, "value", lambda self, x: right(self, x) * (1.1 if x.dtype is torch.bfloat16 else 1.0))
        assert re.search(r"cpu +ok +float64, float32, float16 .*; not bfloat16 \(off by 1\.\de-01\)", invoke("doctor", columns=200).stdout)

    def test_a_device_on_which_float32_is_off(self, monkeypatch: pytest.MonkeyPatch) -> None:
        right = pg.Potential.value
        monkeypatch.setattr(pg.Potential, "value", lambda self, x: right(self, x) * (1.1 if x.dtype is torch.float32 else 1.0))
        done = invoke("doctor", columns=200)
        assert done.exit_code == 1
        assert re.search(r"cpu +FAILED", done.stdout)

    @pytest.mark.parametrize("name", ["auditor", "sampling", "learning step"])
    def test_each_check_can_fail(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        consistent = pg.potential
        if name == "auditor":
            monkeypatch.setattr(pg, "potential", lambda dim, name="paired": consistent(dim, "consistent" if name == "original" else name))
        elif name == "sampling":
            sample = pg.VonMisesFisher.sample
            monkeypatch.setattr(pg.VonMisesFisher, "sample", lambda self, shape: sample(self, shape) * 0.9)
        else:
            backward = torch.Tensor.backward
            monkeypatch.setattr(torch.Tensor, "backward", lambda self: backward(self * (1.0 if self.dtype is torch.float64 else 1.001)))
        done = invoke("doctor")
        assert done.exit_code == 1
        assert re.search(rf"{name} +FAILED", done.stdout)


class TestDevice:
    """`--device cpu`: float32 on the device beside float64 on the CPU."""

    def test_a_verdict(self, tmp_path: Path) -> None:
        done = invoke("doctor", "--device", "cpu", "--json", str(tmp_path / "doctor.json"), columns=80)
        assert done.exit_code == 0, done.output
        assert max(map(len, done.stdout.replace(str(tmp_path), "").splitlines())) <= 80
        assert "cpu against the CPU" in done.stdout
        assert done.stdout.count("All is well. cpu agrees with the CPU.") == 1
        found = {check["name"]: check for check in json.loads((tmp_path / "doctor.json").read_text())["device"]}
        skipped = {name for name, check in found.items() if check["status"] == "skipped"}
        assert skipped == {"no waiting", "graph"}, found
        assert {check["status"] for name, check in found.items() if name not in skipped} == {"ok"}
        assert {
            "potential",
            "scores",
            "losses",
            "class bank",
            "second order",
            "densities",
            "samples",
            "half precision",
            "repeatable",
        } <= set(found)

    @pytest.mark.parametrize("device", ["cuda:77", "toaster", "meta"])
    def test_a_device_that_is_not_there(self, device: str) -> None:
        done = invoke("doctor", "--device", device)
        assert done.exit_code == 2
        assert done.stdout == ""
        assert re.match(
            rf"pairgrad doctor: --device must be one that torch can use with float32, got '{device}' \(.+\): torch sees cpu", done.stderr
        )

    @pytest.mark.parametrize(
        ("name", "owner", "attribute", "wrong"),
        [
            ("potential", pg.Potential, "slope", lambda result: result * (1 + 1e-6)),
            ("scores", pg, "vmf_scores", lambda result: result + 1e-5),
            ("losses", pg.PATTLoss, "forward", lambda result: result * (1 + 1e-4)),
            ("class bank", pg.ClassBank, "concentration", lambda result: result * (1 + 1e-4)),
            ("densities", pg.VonMisesFisher, "entropy", lambda result: result * (1 + 1e-4)),
            ("samples", pg.VonMisesFisher, "sample", lambda result: result * 0.9),
            ("half precision", pg, "vmf_cross_entropy", lambda result: result * (1 + 1e-4)),
        ],
    )
    def test_a_device_that_is_wrong(self, name: str, owner, attribute: str, wrong, monkeypatch: pytest.MonkeyPatch) -> None:
        """What it computes in float32 is wrong, and float64, which the CPU is taken for, is right."""
        plain = getattr(owner, attribute)
        right = plain.fget if isinstance(plain, property) else plain

        def narrow(*args, **kwargs):
            result = right(*args, **kwargs)
            return wrong(result) if result.dtype is torch.float32 else result

        monkeypatch.setattr(owner, attribute, property(narrow) if isinstance(plain, property) else narrow)
        done = invoke("doctor", "--device", "cpu", columns=200)
        assert done.exit_code == 1
        below = done.stdout.partition("cpu against the CPU")[2]
        assert re.search(rf"{name} +FAILED", below), below
        assert "Please report it" in below

    def test_a_bank_that_is_not_repeatable(self, monkeypatch: pytest.MonkeyPatch) -> None:
        update = pg.ClassBank.update
        monkeypatch.setattr(pg.ClassBank, "update", lambda self, x, y: update(self, x * (1 + 1e-6 * torch.rand(())), y))
        assert re.search(r"repeatable +FAILED", invoke("doctor", "--device", "cpu", columns=200).stdout)


class TestBench:
    def test_local_costs(self, tmp_path: Path) -> None:
        """A row for each of the paper's, with its published time and memory where pairgrad-paper is installed."""
        file = tmp_path / "bench.json"
        sizes = ("--batch", "4", "--classes", "10", "--dim", "16", "--repeats", "1")
        done = invoke("bench", "--device", "cpu", *sizes, "--json", str(file), columns=80)
        assert done.exit_code == 0, done.output
        costs = {cost["name"]: cost for cost in json.loads(file.read_text())["local_costs"]}
        measured = {name for name, cost in costs.items() if cost["seconds"] is not None and cost["seconds"] > 0}
        recurrences = {"Original recurrence", "Consistent recurrence", "Log-domain Miller", "AR/FR"}
        assert measured == {*recurrences, "Structure-aware AR/FR, eager", "Structure-aware paired, eager"}
        assert costs["Structure-aware AR/FR"]["note"] == "--compile"
        assert re.search(r"ms +MiB +faster +H100, ms +H100, MiB", done.stdout)
        assert re.search(r"Original recurrence +[\d.]+ +1 +266\.40 +504\.89", done.stdout)
        assert "The added columns are of batch 32, 1000 classes, dim 1024." in done.stdout

    def test_odd_dimensions_have_no_recurrence(self, tmp_path: Path) -> None:
        file = tmp_path / "bench.json"
        done = invoke("bench", "--batch", "4", "--classes", "10", "--dim", "15", "--repeats", "1", "--json", str(file))
        assert done.exit_code == 0, done.output
        costs = {cost["name"]: cost["note"] for cost in json.loads(file.read_text())["local_costs"]}
        assert costs["Original recurrence"] == "even dim"
        assert costs["AR/FR"] == ""
        assert invoke("bench", "--batch", "4", "--classes", "10", "--dim", "2", "--repeats", "1").exit_code == 0

    def test_ratios(self, tmp_path: Path) -> None:
        file = tmp_path / "bench.json"
        done = invoke("bench", "--batch", "4", "--classes", "10", "--dim", "16", "--repeats", "2", "--json", str(file), columns=80)
        assert done.exit_code == 0, done.output
        assert max(map(len, done.stdout.replace(str(tmp_path), "").splitlines())) <= 80
        step, potentials = json.loads(file.read_text())["results"]
        assert list(step["seconds"]) == ["two matrix products", "vmf_cross_entropy with backward"]
        assert potentials["base"] == "paired"
        assert set(potentials["seconds"]) == {"paired", "arfr", "original", "log-miller", "scott"}
        ratio = step["seconds"]["vmf_cross_entropy with backward"] / step["seconds"]["two matrix products"]
        assert f" {ratio:.2f}" in done.stdout

    def test_threads_are_put_back(self) -> None:
        before = torch.get_num_threads()
        invoke("bench", "--batch", "2", "--classes", "4", "--dim", "8", "--repeats", "1", "--threads", str(before + 1))
        assert torch.get_num_threads() == before

    @pytest.mark.parametrize(("option", "value"), [("--device", "cuda:77"), ("--device", "toaster"), ("--dtype", "float8")])
    def test_mistakes(self, option: str, value: str) -> None:
        done = invoke("bench", option, value)
        assert done.exit_code == 2
        assert done.stderr.startswith(f"pairgrad bench: {option} must be one")
        assert value in done.stderr

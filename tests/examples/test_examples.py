"""The examples, shortened: they run, learn, stay finite from concentration 0 on, write their files, and say what they miss."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("sklearn")
pytest.importorskip("matplotlib")

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
ROUNDINGS = 64 * torch.finfo(torch.float64).eps  # of a dozen operations on numbers up to 2, none of which amplifies errors


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses look their types up
    spec.loader.exec_module(module)
    return module


def read(path: Path) -> Any:
    """A JSON file, in which NaN and infinity are errors."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{path.name} contains {constant}")

    return json.loads(path.read_text(), parse_constant=refuse)


def is_picture(path: Path) -> bool:
    return path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 10_000


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def vae() -> ModuleType:
    return load("hyperspherical_vae")


@pytest.fixture(scope="module")
def clustering() -> ModuleType:
    return load("text_clustering")


def test_the_vae_learns_and_writes_its_files(vae: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    vae.main(["--latent-dim", "3", "64", "--epochs", "4", "--output", str(tmp_path)])
    facts = read(tmp_path / "hyperspherical-vae.json")
    assert [run["name"] for run in facts["runs"]] == ["sphere p=3", "Gaussian p-1=2", "sphere p=64", "Gaussian p-1=63"]
    for run in facts["runs"]:
        assert len(run["elbo"]) == 5
        # An untrained decoder, with p = 1/2 for every dot, is 260 nats below the average image; four epochs reach that (seeds 0 to 2).
        assert run["elbo"][-1] > run["elbo"][0] + 200, run
        assert run["elbo"][-1] <= run["log_likelihood"] < 0, run
    for run in facts["runs"][::2]:
        assert run["least_concentration"] == run["mean_concentration"][0] == 0  # every run starts at exactly 0 ...
        assert run["mean_concentration"][-1] > 0.1  # ... and leaves it
        assert run["uniform_posteriors"] == 128  # the images of the first step
    assert is_picture(tmp_path / "hyperspherical-vae.png")
    assert is_picture(tmp_path / "hyperspherical-vae-elbo.png")
    printed = capsys.readouterr().out
    assert printed.count("epoch") == 4 * 4
    assert "log p(x)" in printed


@pytest.mark.parametrize("dim", [2, 3, 64])
def test_posteriors_at_concentration_0_are_the_prior(vae: ModuleType, dim: int) -> None:
    torch.manual_seed(0)
    model = vae.HypersphericalVAE(dim, concentration=torch.zeros_like)
    images = vae.load(0).train[:50]
    posterior = model.posterior(images)
    assert torch.equal(vae.kl_divergence(posterior, model.prior()), torch.zeros(50))
    vae.elbo(model, posterior, images).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all(), name
    assert model.decoder[0].weight.grad.any()


@pytest.mark.parametrize("dim", [3, 64])
def test_relu_reaches_0_during_training(vae: ModuleType, dim: int) -> None:
    torch.manual_seed(0)
    model = vae.HypersphericalVAE(dim, concentration=torch.relu)
    course = vae.train(model, vae.load(0), epochs=2, course=vae.Course("relu", dim, 0), rise=0, quiet=True)
    assert course.least_concentration == 0
    assert course.uniform_posteriors > 0
    assert np.isfinite([*course.elbo, course.log_likelihood, course.divergence]).all()
    assert course.elbo[-1] > course.elbo[0]


def test_runs_repeat_by_seed(vae: ModuleType, tmp_path: Path) -> None:
    first, again = (vae.run([64], 1, 3, tmp_path, quiet=True) for _ in range(2))
    assert [run.elbo for run in first] == [run.elbo for run in again]
    assert not torch.equal(vae.load(3).train, vae.load(4).train)


def test_numbers_that_are_not_finite_stop_the_training(vae: ModuleType) -> None:
    digits = vae.load(0)
    model = vae.GaussianVAE(3)

    def spoil(gradient: torch.Tensor) -> torch.Tensor:
        return gradient * torch.nan

    model.decoder[0].weight.register_hook(spoil)
    with pytest.raises(FloatingPointError, match=r"gradient: \d+ of \d+ numbers are not finite"):
        vae.train(model, digits, epochs=1, course=vae.Course("Gaussian", 3, 0), quiet=True)


def test_the_discs_show_the_sphere(vae: ModuleType) -> None:
    generator = torch.Generator().manual_seed(0)
    latent = torch.nn.functional.normalize(torch.randn(1000, 3, generator=generator, dtype=torch.float64), dim=1)
    places, front = vae.on_disc(latent)
    assert 0 < int(front.sum()) < 1000
    assert float(places.norm(dim=1).max()) <= 1
    back = torch.where(front[:, None], vae.from_disc(places, True), vae.from_disc(places, False))
    assert float((back - latent).abs().max()) <= ROUNDINGS
    # Areas are kept: as many of uniform directions are in the inner half of the area as outside, within four standard deviations (1 in 15,000).
    inner = int((places.square().sum(1) < 0.5).sum())
    assert abs(inner - 500) <= 4 * (1000 / 4) ** 0.5


def test_clustering_docstrings(
    clustering: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    few = ("asyncio", "decimal", "ipaddress", "logging", "xml")  # for speed
    for name in set(clustering.PACKAGES) - set(few):
        monkeypatch.delitem(clustering.PACKAGES, name)
    clustering.main(["--components", "2", "8", "--starts", "1", "--output", str(tmp_path)])
    facts = read(tmp_path / "text-clustering-docstrings.json")
    assert facts["texts"] > 300
    assert facts["monotone"] is True
    assert [(trial["tied"], trial["components"]) for trial in facts["bic"]] == [(False, 2), (False, 8), (True, 2), (True, 8)]
    best = min(facts["bic"], key=lambda trial: trial["bic"])
    assert facts["chosen"] == {"tied": best["tied"], "components": best["components"]}
    components = facts["components"]
    assert sum(component["weight"] for component in components) == pytest.approx(1)
    assert all(component["concentration"] > 0 and 0 < component["cosine"] < 1 and len(component["words"]) == 7 for component in components)
    assert all(value > 0.3 for value in facts["nmi"].values()), facts["nmi"]  # clusters drawn by lot have 0.01
    assert is_picture(tmp_path / "text-clustering-docstrings.png")
    printed = capsys.readouterr().out
    assert "normalised mutual information" in printed
    assert "more components may be better still" in printed


def test_docstrings_are_read_from_sources(clustering: ModuleType, tmp_path: Path) -> None:
    long = "The quick brown fox jumps over the lazy dog every day."
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "a.py").write_text(
        f'def f():\n    """{long} A."""\n\nclass C:\n    """Short."""\n    async def g(self):\n        """{long} B."""\n'
    )
    (tmp_path / "two.py").write_text(f'def f():\n    """{long} A."""\n\ndef g():\n    """{long} C."""\n')
    found = list(clustering.documentation(tmp_path, {"one": "one", "two": "two.py", "absent": "absent"}))
    assert found == [("one", f"{long} A."), ("one", f"{long} B."), ("two", f"{long} C.")]  # the copy once, the short one not


@pytest.mark.parametrize(("data", "file"), [("classic3", "text/classic3.mat"), ("newsgroups", "text/newsgroups20_minilm384.npz")])
def test_missing_data_are_explained(
    clustering: ModuleType, data: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for root, reason in ((None, "the variable is not set"), (str(tmp_path), f"the directory {tmp_path} has no such file")):
        if root is None:
            monkeypatch.delenv("PAIRGRAD_DATA", raising=False)
        else:
            monkeypatch.setenv("PAIRGRAD_DATA", root)
        with pytest.raises(SystemExit) as stop:
            clustering.main(["--data", data, "--output", str(tmp_path / "out")])
        assert stop.value.code == 2
        message = capsys.readouterr().err
        for part in (f"--data {data} reads {file}", "environment variable PAIRGRAD_DATA", reason, "--data docstrings needs no file"):
            assert part in message
    assert not (tmp_path / "out").exists()


def groups(seed: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of counts in three groups with words of their own, and their labels."""
    random = np.random.default_rng(seed)
    labels = np.repeat([0, 1, 2], 40)
    rates = np.where(np.arange(columns) % 3 == labels[:, None], 3.0, 0.2)
    return random.poisson(rates).astype(float), labels


def test_classic3_is_read_as_it_is_distributed(clustering: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scipy_io, sparse = pytest.importorskip("scipy.io"), pytest.importorskip("scipy.sparse")
    counts, labels = groups(0, 30)
    terms = np.array([f"word{j}" for j in range(30)], dtype=object)[:, None]
    (tmp_path / "text").mkdir()
    scipy_io.savemat(
        tmp_path / "text" / "classic3.mat", {"A": sparse.csc_matrix(counts), "labels": labels[:, None].astype(np.uint8), "ms": terms}
    )
    monkeypatch.setenv("PAIRGRAD_DATA", str(tmp_path))
    corpus = clustering.classic3()
    assert sparse.issparse(corpus.rows)
    facts = clustering.run("classic3", [3], 2, 0, tmp_path)
    assert set(facts["nmi"].values()) == {1.0}
    for component in facts["components"]:
        residues = {int(word.removeprefix("word")) % 3 for word in component["words"]}
        assert len(residues) == 1, component
        assert component["label"] == corpus.label_names[residues.pop()]


def test_newsgroups_are_read_as_they_are_distributed(clustering: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts, labels = groups(1, 12)
    (tmp_path / "text").mkdir()
    names = np.array(["a", "b", "c"])
    np.savez(tmp_path / "text" / "newsgroups20_minilm384.npz", X=counts.astype(np.float16), y=labels.astype(np.uint8), names=names)
    monkeypatch.setenv("PAIRGRAD_DATA", str(tmp_path))
    rows = clustering.newsgroups().rows
    assert rows.dtype == np.float32
    assert np.abs(np.linalg.norm(rows, axis=1) - 1).max() < 1e-6
    facts = clustering.run("newsgroups", [2, 3], 2, 0, tmp_path)
    assert min(facts["nmi"].values()) > 0.9
    assert all(component["words"] == [] for component in facts["components"])
    assert is_picture(tmp_path / "text-clustering-newsgroups.png")

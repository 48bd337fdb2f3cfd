"""What `pairgrad train` says before anything is trained: how long each recipe takes, and whether all of them would start."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tests.cli.command import invoke

from pairgrad_paper.data import noise
from pairgrad_paper.recipes import RECIPES, changed, recipe_named
from pairgrad_paper.training import Arm, estimate, load_data
from paper.tests.data.cifar_files import write_cifar

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "paper" / "slurm" / "train.sbatch"
SMALL = ("--set", "model.backbone=small32", "--set", "batch_size=16", "--set", "outlier_batch_size=8")
CPU = torch.device("cpu")


def said(*arguments: str) -> str:
    done = invoke("train", *arguments, "--device", "cpu", columns=200)
    assert done.exit_code == 0, done.stderr
    return " ".join(done.stdout.split())


def test_an_estimate_needs_no_data_and_writes_nothing(tmp_path: Path) -> None:
    output = tmp_path / "runs"
    text = said(
        "patt-cifar10-lt-if100", *SMALL, "--data-root", str(tmp_path), "--output", str(output), "--estimate", "1",
        *("--realization", "original", "--realization", "arfr", "--seed", "0", "--seed", "1"),
    )  # fmt: skip
    assert "has no training images of CIFAR-10" in text
    assert "noise stands in for the images of cifar10-lt" in text
    for realization in ("original", "arfr"):  # 12,406 training images in batches of 16, three views of 16 and 8 outliers
        assert f"{realization}: 77,500 updates, 2 runs; measured: 56 images in " in text
    assert re.search(r"4 runs of 100 epochs: \d\S* (min|hours|days) on cpu with \d threads?; without evaluations", text)
    assert re.search(r"No H100 SXM is faster than \d\S* (s|min)", text)
    assert not output.exists()


def test_an_estimate_of_one_of_several_processes(tmp_path: Path) -> None:
    """The operations are those of its part of the batch, and the updates those of the run."""
    recipe = changed(recipe_named("digits-lt"), ["epochs=3"])
    data = load_data(recipe, None)
    whole, half = (estimate(Arm(recipe, "paired", 0), data, CPU, processes) for processes in (1, 2))
    assert (whole.images, half.images) == (256, 128)
    assert half.updates == whole.updates == 3 * (286 // 64)
    assert half.flops == pytest.approx(whole.flops / 2, rel=0.01)
    assert min(half.seconds, half.loading) > 0
    assert half.memory > 2**27
    assert "on each of 2 processes" in said("digits-lt", "--estimate", "2")
    refused = invoke("train", "digits-lt", "--estimate", "3", columns=200)
    assert refused.exit_code == 2
    assert "--estimate must divide batch_size, got 3 for 64" in refused.stderr


def test_operations_are_counted() -> None:
    """Of a ResNet18 for images of 32 pixels: 0.556e9 multiplications an image, twice that many operations, and twice as many again backward."""
    recipe = changed(recipe_named("patt-cifar10-lt-if100"), ["batch_size=2", "outlier_batch_size=2"])
    with noise("cifar10-lt", 100) as benchmark:
        found = estimate(Arm(recipe, "arfr", 0), benchmark, CPU)
    assert found.flops == pytest.approx(6 * 0.556e9 * found.images, rel=0.02)


@pytest.mark.parametrize(("name", "counts"), [("imagenet-lt", (1000, 115_846, 50_000)), ("inat18", (8142, 437_513, 24_426))])
def test_noise_is_as_large_as_what_it_stands_for(name: str, counts: tuple[int, ...]) -> None:
    with noise(name, None) as benchmark:
        assert (len(benchmark.class_counts), len(benchmark.train), len(benchmark.test)) == counts
        assert sum(benchmark.class_counts) == counts[1]
        assert benchmark.train.labels is not None
        assert torch.bincount(benchmark.train.labels).tolist() == list(benchmark.class_counts)
        assert benchmark.train.image(counts[1] - 1).shape == (3, 375, 500)


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with some images of every benchmark, more than a batch of each."""
    root = tmp_path_factory.mktemp("data")
    write_cifar(root, "cifar10", per_class=30)
    write_cifar(root, "cifar100", per_class=110)
    np.save(root / "300K_random_images.npy", np.zeros((300, 32, 32, 3), np.uint8))
    Image.new("RGB", (8, 8)).save(root / "x.png")
    lists = {"ImageNet_LT_train": 300, "ImageNet_LT_val": 2, "ImageNet_LT_test": 2, "iNaturalist18_train": 300, "iNaturalist18_val": 2}
    for name, count in lists.items():
        (root / f"{name}.txt").write_text("".join(f"x.png {k % 2}\n" for k in range(count)))
    (root / "imagenet_extra_1k").mkdir()
    for k in range(70):
        (root / "imagenet_extra_1k" / f"{k}.png").write_bytes((root / "x.png").read_bytes())
    return root


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_would_start(name: str, everything: Path, tmp_path: Path) -> None:
    text = said(name, "--dry-run", "--no-verify", "--data-root", str(everything), "--output", str(tmp_path / "runs"))
    recipe = RECIPES[name]
    assert f"{recipe.epochs} epochs of " in text
    assert f"would train in the new directory {tmp_path}/runs/{name}-paired-seed{recipe.seed}" in text
    assert list(tmp_path.iterdir()) == []


def submitted(folder: Path, task: int, code: int, *arguments: str, tasks: int = 1) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """The script as Slurm would run it, with a `pairgrad train` that ends with this code; and the commands that were run."""
    folder.mkdir()
    programs = {
        "srun": 'while [ "${1#-}" != "$1" ]; do shift; done; SLURM_PROCID=1 SLURM_LOCALID=1 exec "$@"',
        "scontrol": 'case "$1" in show) echo host1; echo host2;; *) echo "scontrol $*" >> commands;; esac',
        "pairgrad": 'echo "pairgrad $* ${RANK:+rank $RANK of $WORLD_SIZE at $MASTER_ADDR}" >> commands; [ "$1" != train ] || exit $CODE',
    }
    for name, text in programs.items():
        (folder / name).write_text(f"#!/bin/bash\n{text}\n")
        (folder / name).chmod(0o755)
    slurm = {"ARRAY_TASK_ID": task, "ARRAY_JOB_ID": 7, "JOB_ID": 9, "JOB_NODELIST": "host[1-2]", "NTASKS": tasks}
    environment = {f"SLURM_{name}": str(value) for name, value in slurm.items()} | {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "CODE": str(code),
    }
    done = subprocess.run(["bash", SCRIPT, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False)
    commands = folder / "commands"
    return done, [" ".join(line.split()) for line in commands.read_text().splitlines()] if commands.exists() else []


def test_a_job_on_slurm_trains_evaluates_and_records(tmp_path: Path) -> None:
    arms = []
    for task in range(9):
        done, (first, *rest) = submitted(tmp_path / str(task), task, 0, "digits-lt", "--set", "epochs=2")
        assert done.returncode == 0, done.stderr
        found = re.fullmatch(r"pairgrad train digits-lt --realization (\S+) --seed (\S+) --output runs --set epochs=2", first)
        assert found is not None, first
        run = f"runs/digits-lt-{found[1]}-seed{found[2]}"
        assert rest == [f"pairgrad evaluate {run}", f"pairgrad collect {run} --records records"]
        arms.append(found.groups())
    assert sorted(arms) == sorted((name, str(seed)) for name in ("original", "consistent", "arfr") for seed in range(3))


def test_a_job_that_is_stopped_goes_back_into_the_queue(tmp_path: Path) -> None:
    done, commands = submitted(tmp_path / "stopped", 4, 130, "digits-lt")
    assert done.returncode == 0
    assert commands[1:] == ["scontrol requeue 7_4"]
    done, commands = submitted(tmp_path / "failed", 4, 3, "digits-lt")
    assert done.returncode == 3
    assert len(commands) == 1
    _, commands = submitted(tmp_path / "several", 0, 3, "digits-lt", tasks=8)
    assert commands[0].endswith("rank 1 of 8 at host1")
    done, _ = submitted(tmp_path / "nothing", 0, 0)
    assert done.returncode != 0
    assert "name a recipe" in done.stderr

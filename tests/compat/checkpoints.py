"""Checkpoints like those that ProCo writes, and files made from their parts."""

from __future__ import annotations

import importlib
import sys
import zipfile
from pathlib import Path

import torch

K, P = 5, 8
STATISTICS = {"Ave": "mean", "Amount": "count", "kappa": "concentration", "logc": "log_normaliser"}

# Attribute names as in ProCo; the rest is ours. The module is written to a directory, imported to save with, and then forgotten.
SOURCE = """
import torch

class EstimatorCV:
    def __init__(self, feature_num, class_num):
        self.class_num, self.feature_num = class_num, feature_num
        self.Ave = torch.randn(class_num, feature_num)
        self.Amount = torch.arange(class_num, dtype=torch.float32)
        self.kappa = torch.rand(class_num) * 100
        self.logc = torch.randn(class_num, dtype=torch.float64) * 100

class ProCoLoss(torch.nn.Module):
    def __init__(self, dim, temperature, classes):
        super().__init__()
        self.temperature, self.num_classes, self.feature_num = temperature, classes, dim
        self.estimator_old = EstimatorCV(dim, classes)
        self.estimator = EstimatorCV(dim, classes)

class Slotted:
    __slots__ = ("estimator", "estimator_old")
"""
MODULE = "proco_of_a_stranger"


class Stranger:
    """ProCo's source while a checkpoint is made. Leaving the block forgets it, and importing it again would make the canary."""

    def __init__(self, directory: Path, canary: Path) -> None:
        self.directory, self.canary = directory / "source", canary

    def __enter__(self):
        self.directory.mkdir()
        self.file = self.directory / f"{MODULE}.py"
        self.file.write_text(SOURCE)
        sys.path.insert(0, str(self.directory))
        importlib.invalidate_caches()
        return importlib.import_module(MODULE)

    def __exit__(self, *_):
        del sys.modules[MODULE]
        self.file.write_text(f"from pathlib import Path\nPath({str(self.canary)!r}).touch()\n" + SOURCE)
        importlib.invalidate_caches()

    def remove(self) -> None:
        sys.path.remove(str(self.directory))
        sys.modules.pop(MODULE, None)


def statistics(criterion) -> dict[str, dict[str, torch.Tensor]]:
    """What the reader should find: copies of the tensors of both estimators, under our names."""
    banks = {"old": criterion.estimator_old, "new": criterion.estimator}
    return {
        bank: {ours: getattr(estimator, theirs).detach().clone() for theirs, ours in STATISTICS.items()}
        for bank, estimator in banks.items()
    }


def assert_equal(state, expected) -> None:
    """Equal bits, equal dtypes, on the CPU."""
    for bank, tensors in expected.items():
        for name, tensor in tensors.items():
            got = getattr(getattr(state, bank), name)
            assert got.device.type == "cpu"
            assert got.dtype == tensor.dtype, (bank, name)
            assert torch.equal(got, tensor), (bank, name, got, tensor)


def records(path: Path) -> dict[str, bytes]:
    """The records of a file of torch.save, without the name of the archive."""
    with zipfile.ZipFile(path) as archive:
        return {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}


def write_records(path: Path, parts: dict[str, bytes], *, compression: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in parts.items():
            archive.writestr(f"archive/{name}", data)
    return path


def replace_once(parts: dict[str, bytes], name: str, old: bytes, new: bytes) -> None:
    assert parts[name].count(old) == 1, parts[name].count(old)
    parts[name] = parts[name].replace(old, new)

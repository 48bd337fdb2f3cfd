"""Files of torch.save, read without running anything in them: `pairgrad.compat.read_tensors`, behind `pairgrad audit --inputs @file.pt`."""

from __future__ import annotations

import collections
import os
import zipfile
from pathlib import Path

import pytest
import torch

from pairgrad.compat import read_tensors

DTYPES = [
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.complex128),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
]


def saved(path: Path, value: object) -> Path:
    torch.save(value, path)
    return path


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_comes_back_bit_for_bit(dtype: torch.dtype, tmp_path: Path) -> None:
    x = torch.randint(0, 5, (2, 3, 4, 5)).to(dtype)
    assert torch.equal(read_tensors(saved(tmp_path / "x.pt", x)), x)
    assert read_tensors(tmp_path / "x.pt").dtype == dtype


def test_views_and_special_shapes(tmp_path: Path) -> None:
    x = torch.randn(6, 4)
    views = (x.T, x[::2, 1:], x[3, 2], x[:0], torch.randn(()), torch.nn.Parameter(x), x.clone().requires_grad_())
    for got, want in zip(read_tensors(saved(tmp_path / "x.pt", views)), views, strict=True):
        assert torch.equal(got, want)
        assert not got.requires_grad


def test_plain_structures_come_back_as_they_are(tmp_path: Path) -> None:
    value = {"x": [torch.ones(2), (3, 2.5, "text", None, True)], 7: collections.OrderedDict(a=1)}
    got = read_tensors(saved(tmp_path / "x.pt", value))
    assert torch.equal(got["x"].pop(0), torch.ones(2))
    assert got == {"x": [(3, 2.5, "text", None, True)], 7: {"a": 1}}


class Evil:
    def __reduce__(self):
        return os.mkdir, ("executed",)


def test_nothing_is_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"it holds an object made by 'posix\.mkdir', and only tensors"):
        read_tensors(saved(tmp_path / "evil.pt", {"x": Evil()}))
    assert not Path("executed").exists()


def test_a_file_cannot_ask_for_more_memory_than_it_has_bytes(tmp_path: Path) -> None:
    """The same records, deflated: 8 MB of zeros in a few kilobytes."""
    plain = saved(tmp_path / "x.pt", torch.zeros(1_000_000))
    with zipfile.ZipFile(plain) as source, zipfile.ZipFile(tmp_path / "small.pt", "w", zipfile.ZIP_DEFLATED) as target:
        for name in source.namelist():
            target.writestr(name, source.read(name))
    assert (tmp_path / "small.pt").stat().st_size < 20_000
    with pytest.raises(ValueError, match="is compressed or larger than the file"):
        read_tensors(tmp_path / "small.pt")


def test_a_repeated_view_is_not_blown_up(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"does not fit into the 1 elements"):
        read_tensors(saved(tmp_path / "x.pt", torch.ones(1).expand(10**9)))


def test_deep_and_many_values_are_refused(tmp_path: Path) -> None:
    deep: list[object] = []
    for _ in range(100):
        deep = [deep]
    for value in (deep, [0] * 100_001):
        with pytest.raises(ValueError, match="more than 100000 values, or containers more than 64 deep"):
            read_tensors(saved(tmp_path / "x.pt", value))


def test_tensors_that_share_memory_cannot_fill_it(tmp_path: Path) -> None:
    """Each comes back in memory of its own: 4 MB in the file, 8 GB in all."""
    shared = torch.zeros(1_000_000)
    with pytest.raises(ValueError, match=r"tensors share memory, and take more than \d+ bytes .* save copies of them"):
        read_tensors(saved(tmp_path / "x.pt", [shared] * 2000))
    rows = torch.randn(300, 100)
    for views in (list(rows), list(rows.T), list(zip(rows, rows + 1, strict=True))):
        got = read_tensors(saved(tmp_path / "x.pt", views))
        assert all(torch.equal(torch.stack(list(each)), torch.stack(list(view))) for each, view in zip(got, views, strict=True))

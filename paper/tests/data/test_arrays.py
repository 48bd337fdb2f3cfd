"""Images in .npy and .npz files."""

import hashlib
import io
import pickle
import zipfile

import numpy as np
import pytest
import torch

from pairgrad_paper.data import DataError, arrays
from pairgrad_paper.data.arrays import TINY_IMAGES, read_npy, read_npz
from pairgrad_paper.data.files import DataRoot
from paper.tests.data.malicious import Malicious


def some(*shape, dtype=np.uint8):
    return np.random.default_rng(3).integers(0, 256, size=shape).astype(dtype)


def test_npy_is_mapped_with_the_channels_first(tmp_path):
    stored = some(6, 4, 5, 3)
    np.save(tmp_path / "mine.npy", stored)
    root = DataRoot(tmp_path)
    images = read_npy(root, tmp_path / "mine.npy")
    assert images.images.shape == (6, 3, 4, 5)
    assert torch.equal(images.batch(torch.tensor([4, 0])), torch.from_numpy(stored[[4, 0]].transpose(0, 3, 1, 2).copy()))
    assert torch.equal(images.image(2), torch.from_numpy(stored[2].transpose(2, 0, 1).copy()))
    assert images.name == "mine.npy"
    assert images.note == "mine.npy (6 images) stands in for 300K_random_images.npy"
    data = (tmp_path / "mine.npy").read_bytes()
    assert [(f.path, f.size, f.md5) for f in root.facts] == [("mine.npy", len(data), hashlib.md5(data).hexdigest())]


def test_writing_to_mapped_images_changes_no_file(tmp_path):
    np.save(tmp_path / "a.npy", some(2, 4, 4, 3))
    before = (tmp_path / "a.npy").read_bytes()
    images = read_npy(DataRoot(tmp_path), tmp_path / "a.npy")
    images.images.zero_()
    assert not images.image(0).any()
    assert (tmp_path / "a.npy").read_bytes() == before


def test_tiny_images_are_cut_at_the_published_number(tmp_path, monkeypatch):
    assert arrays.TINY_IMAGES_COUNT == 300_000
    monkeypatch.setattr(arrays, "TINY_IMAGES_COUNT", 5)
    for count, kept, note in ((7, 5, ""), (5, 5, ""), (4, 4, f"{TINY_IMAGES} has 4 images instead of 5")):
        stored = some(count, 2, 2, 3)
        np.save(tmp_path / TINY_IMAGES, stored)
        images = read_npy(DataRoot(tmp_path), tmp_path / TINY_IMAGES)
        assert (len(images), images.note) == (kept, note)
        assert torch.equal(images.images.permute(0, 2, 3, 1), torch.from_numpy(stored[:kept]))


@pytest.mark.parametrize(
    ("array", "match"),
    [
        (some(2, 4, 4, 3, dtype=np.float32), r"got float32 of shape \(2, 4, 4, 3\)"),
        (some(2, 4, 4, 3, dtype=np.int8), "got int8"),
        (some(2, 3, 4, 4), r"got uint8 of shape \(2, 3, 4, 4\)"),
        (some(2, 4, 4), r"got uint8 of shape \(2, 4, 4\)"),
        (some(0, 4, 4, 3), "a.npy: expected a .npy file with uint8"),
    ],
)
def test_npy_of_another_layout(tmp_path, array, match):
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(DataError, match=match) as caught:
        read_npy(DataRoot(tmp_path), tmp_path / "a.npy")
    assert "a.npy: expected a .npy file with uint8 of shape (N, H, W, 3)" in str(caught.value)
    assert "hendrycks" in str(caught.value)


def test_npy_with_objects_is_not_unpickled(tmp_path):
    np.save(tmp_path / "a.npy", np.array([Malicious(tmp_path / "executed")], dtype=object), allow_pickle=True)
    (tmp_path / "b.npy").write_bytes(pickle.dumps(Malicious(tmp_path / "executed")))
    for name in ("a.npy", "b.npy"):
        with pytest.raises(DataError, match=f"{name}: expected a .npy file"):
            read_npy(DataRoot(tmp_path), tmp_path / name)
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("kept", [0, 5, 60, 150])
def test_npy_cut_off(tmp_path, kept):
    np.save(tmp_path / "a.npy", some(2, 4, 4, 3))
    (tmp_path / "a.npy").write_bytes((tmp_path / "a.npy").read_bytes()[:kept])
    with pytest.raises(DataError, match=r"a\.npy: expected a \.npy file .* cannot be mapped"):
        read_npy(DataRoot(tmp_path), tmp_path / "a.npy")


def test_npy_with_a_damaged_header(tmp_path):
    np.save(tmp_path / "a.npy", some(2, 4, 4, 3))
    data = (tmp_path / "a.npy").read_bytes()
    for before, after in ((b"'descr'", b"'descR'"), (b")", b"("), (b"}", b" "), (b"(2", b"(9")):
        (tmp_path / "a.npy").write_bytes(data.replace(before, after, 1))
        with pytest.raises(DataError, match=r"a\.npy: expected a \.npy file .* cannot be mapped"):
            read_npy(DataRoot(tmp_path), tmp_path / "a.npy")


def test_missing_npy(tmp_path):
    with pytest.raises(DataError, match=r"none\.npy cannot be read \(No such file"):
        read_npy(DataRoot(tmp_path), tmp_path / "none.npy")


def test_npz_in_colour_with_labels(tmp_path):
    stored = some(4, 2, 3, 3)
    np.savez(tmp_path / "a.npz", X=stored, y=np.array([3, 1, 2, 0], dtype=np.uint8), names=np.array(list("abcd")))
    root = DataRoot(tmp_path)
    images = read_npz(root, tmp_path / "a.npz")
    assert torch.equal(images.images, torch.from_numpy(stored.transpose(0, 3, 1, 2).copy()))
    assert images.labels.tolist() == [3, 1, 2, 0]
    assert images.name == "a"
    assert root.facts[0].path == "a.npz"


def test_npz_in_grey_without_labels(tmp_path):
    stored = some(4, 2, 5)
    np.savez_compressed(tmp_path / "a.npz", X=stored)
    images = read_npz(DataRoot(tmp_path), tmp_path / "a.npz")
    assert torch.equal(images.images, torch.from_numpy(stored)[:, None])
    assert images.labels is None


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ({"x": some(2, 4, 4, 3), "y": np.arange(2)}, "expected an array X with the images, found x, y"),
        ({}, "expected an array X with the images, found no arrays"),
        ({"X": some(2, 4, 4, 3, dtype=np.float16)}, r"expected X as uint8 .*, got float16 of shape \(2, 4, 4, 3\)"),
        ({"X": some(2, 4, 4, 4)}, r"got uint8 of shape \(2, 4, 4, 4\)"),
        ({"X": some(2, 48)}, r"got uint8 of shape \(2, 48\)"),
        ({"X": some(0, 4, 4, 3)}, r"got uint8 of shape \(0, 4, 4, 3\)"),
        ({"X": some(2, 4, 4, 3), "y": np.arange(3)}, r"expected y as integers of shape \(2,\), got int64 of shape \(3,\)"),
        ({"X": some(2, 4, 4, 3), "y": np.array([0.0, 1.0])}, "expected y as integers .* got float64"),
    ],
)
def test_npz_of_another_layout(tmp_path, content, match):
    np.savez(tmp_path / "a.npz", **content)
    with pytest.raises(DataError, match=match) as caught:
        read_npz(DataRoot(tmp_path), tmp_path / "a.npz")
    assert str(tmp_path / "a.npz") in str(caught.value)


def test_npz_with_objects_is_not_unpickled(tmp_path):
    np.savez(tmp_path / "a.npz", X=np.array([Malicious(tmp_path / "executed")], dtype=object))
    (tmp_path / "b.npz").write_bytes(pickle.dumps(Malicious(tmp_path / "executed")))
    for name in ("a.npz", "b.npz"):
        with pytest.raises(DataError, match=f"{name}: expected a .npz file with X, got one that is damaged or holds Python objects"):
            read_npz(DataRoot(tmp_path), tmp_path / name)
    assert not (tmp_path / "executed").exists()


def test_damaged_npz(tmp_path):
    buffer = io.BytesIO()
    np.savez_compressed(buffer, X=some(8, 8, 8, 3))
    data = buffer.getvalue()
    middle = bytearray(data)
    middle[len(data) // 2] ^= 0xFF
    single = io.BytesIO()
    np.save(single, some(2, 4, 4, 3))
    with zipfile.ZipFile(tmp_path / "text.npz", "w") as archive:
        archive.writestr("X.npy", "no array")
    for name, content in {"empty": b"", "cut": data[:-30], "changed": bytes(middle), "npy": single.getvalue()}.items():
        (tmp_path / f"{name}.npz").write_bytes(content)
    for name in ("empty", "cut", "changed", "npy", "text"):
        with pytest.raises(DataError, match=f"{name}.npz: expected a"):
            read_npz(DataRoot(tmp_path), tmp_path / f"{name}.npz")


def test_npz_that_asks_for_much(tmp_path):
    """75 MB of zeros in 75 kB, in either compression, and a header that promises gigabytes."""
    header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (%d, 5, 5, 3)}\n"
    whole = header % 1_000_000
    array = b"\x93NUMPY\x01\x00" + len(whole).to_bytes(2, "little") + whole + bytes(75_000_000)
    giant = header % 10**9
    contents = {"deflated": (array, zipfile.ZIP_DEFLATED), "bzip2": (array, zipfile.ZIP_BZIP2)}
    contents["giant"] = b"\x93NUMPY\x01\x00" + len(giant).to_bytes(2, "little") + giant + bytes(75), zipfile.ZIP_STORED
    messages = {"deflated": "once it is inflated", "bzip2": "another method than deflate", "giant": "promises an array"}
    for name, (content, method) in contents.items():
        path = tmp_path / f"{name}.npz"
        with zipfile.ZipFile(path, "w", method) as archive:
            archive.writestr("X.npy", content)
        with pytest.raises(DataError, match=rf"{name}\.npz: expected a .npz file .* {messages[name]}"):
            read_npz(DataRoot(tmp_path), path)


def test_npy_with_a_shape_beyond_every_integer(tmp_path):
    np.save(tmp_path / "a.npy", some(2, 4, 4, 3))
    data = (tmp_path / "a.npy").read_bytes()
    (tmp_path / "a.npy").write_bytes(data.replace(b"(2," + b" " * 0, b"(2" + b"0" * 30 + b",").replace(b" " * 30 + b"\n", b"\n"))
    with pytest.raises(DataError, match=r"a\.npy: expected a \.npy file .* promises an array"):
        read_npy(DataRoot(tmp_path), tmp_path / "a.npy")

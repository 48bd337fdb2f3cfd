"""Lists of pictures and folders of them; what Pillow decodes and what it refuses."""

import hashlib
import os
import sys

import numpy as np
import pytest
import torch

from pairgrad_paper.data import DataError
from pairgrad_paper.data.files import DataRoot
from pairgrad_paper.data.manifests import read_folder, read_manifest, read_scood
from pairgrad_paper.data.pictures import decode

Image = pytest.importorskip("PIL.Image")


def picture(path, value=9, size=(4, 3)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((*size, 3), value, np.uint8)).save(path)


def manifest(tmp_path, text, **options):
    (tmp_path / "list.txt").write_bytes(text if isinstance(text, bytes) else text.encode())
    options = {"name": "some", "origin": "get it there", **options}
    return read_manifest(DataRoot(tmp_path), tmp_path / "list.txt", [tmp_path / "absent", tmp_path / "pictures"], **options)


def scood(tmp_path, text):
    (tmp_path / "list.txt").write_text(text)
    return read_scood(DataRoot(tmp_path), tmp_path / "list.txt", tmp_path / "pictures", name="some", origin="get it there")


@pytest.fixture
def pictures(tmp_path):
    for k, name in enumerate(("a/x.png", "a/y y.png", "b/z.png")):
        picture(tmp_path / "pictures" / name, value=k)
    return tmp_path


def test_manifest(pictures):
    images = manifest(pictures, "b/z.png 3\r\na/y y.png 0\na/x.png\t12\n\n")
    assert images.paths == ("b/z.png", "a/y y.png", "a/x.png")
    assert images.labels.tolist() == [3, 0, 12]
    assert images.labels.dtype == torch.int64
    assert images.root == pictures / "pictures"
    assert images.image(0).unique().tolist() == [2]
    assert images.image(0).shape == (3, 4, 3)


def test_manifest_without_labels(pictures):
    images = manifest(pictures, "b/z.png\na/y y.png\na/x.png 4\n", labelled=False)
    assert images.paths == ("b/z.png", "a/y y.png", "a/x.png")
    assert images.labels is None


@pytest.mark.parametrize(
    ("line", "match"),
    [
        ("a/x.png", "expected 'relpath label'"),
        ("", "expected 'relpath label'"),
        ("7", "expected 'relpath label'"),
        ("a/x.png cat", "expected an integer from 0 to 999999999 as the label, got 'cat'"),
        ("a/x.png 1.5", "got '1.5'"),
        ("a/x.png -1", "got '-1'"),
        ("a/x.png ٣", "got '٣'"),
        ("a/x.png 99999999999999999999", "got '99999999999999999999'"),
        ("../secret.png 1", "expected a path inside the folder of pictures, got '../secret.png'"),
        ("a/../../secret.png 1", "expected a path inside"),
        ("/etc/x.png 1", "expected a path inside"),
        ("a/x\0.png 1", "expected a path inside"),
        ("a/none.png 1", r"pictures/a/none\.png is missing"),
        ("none/x.png 1", r"pictures/none/x\.png is missing"),
    ],
)
def test_wrong_lines_are_counted(pictures, line, match):
    with pytest.raises(DataError, match=match) as caught:
        manifest(pictures, f"a/x.png 0\n{line}\nb/z.png 1\n")
    assert f"{pictures / 'list.txt'}, line 2: " in str(caught.value)
    assert "get it there" in str(caught.value)


def test_the_first_picture_decides_on_the_folder(pictures):
    for name in ("q.png", "q" * 300 + ".png"):  # the second is longer than a name of a file can be
        with pytest.raises(DataError, match=f"line 1: the picture {name} is missing, looked for under .*absent, .*pictures"):
            manifest(pictures, f"{name} 0\na/x.png 1\n")


def test_manifest_that_is_no_text(pictures):
    with pytest.raises(DataError, match=r"list\.txt: expected text in UTF-8, got byte 0xff at position 8"):
        manifest(pictures, b"a/x.png \xff\n")
    with pytest.raises(DataError, match=r"line 1: expected 'relpath label'"):
        manifest(pictures, "")
    with pytest.raises(DataError, match=r"line 1: expected a path inside"):
        manifest(pictures, "\n", labelled=False)


def test_missing_manifest(tmp_path):
    with pytest.raises(DataError, match=r"none\.txt cannot be read .*: get it there"):
        read_manifest(DataRoot(tmp_path), tmp_path / "none.txt", [tmp_path], name="x", origin="get it there")


def test_scood_lists_in_both_notations(pictures):
    images = scood(
        pictures, "a/x.png {\"sc_label\": -1, \"label\": null}\na/y y.png {'sc_label': 3, 'label': None}\nb/z.png {'sc_label':0}\n"
    )
    assert images.paths == ("a/x.png", "a/y y.png", "b/z.png")
    assert images.labels.tolist() == [-1, 3, 0]


@pytest.mark.parametrize(
    ("line", "match"),
    [
        ("a/x.png", r"expected 'relpath \{dict\}'"),
        (" {'sc_label': 1}", r"expected 'relpath \{dict\}'"),
        ("a/x.png {'label': 1}", "expected a dict with 'sc_label'"),
        ("a/x.png {'sc_label': 1", "expected a dict with 'sc_label'"),
        ("a/x.png {'sc_label'}", "expected a dict with 'sc_label'"),
        ("a/x.png {'sc_label': '1'}", "expected an integer from -1 to 999999999 as sc_label, got '1'"),
        ("a/x.png {'sc_label': 1.0}", r"as sc_label, got 1\.0"),
        ("a/x.png {'sc_label': True}", "as sc_label, got True"),
        ("a/x.png {'sc_label': -2}", "as sc_label, got -2"),
        ("a/x.png {'sc_label': 99999999999999999999}", "as sc_label, got 9999"),
        ("a/x.png {'sc_label': __import__('os').mkdir('executed')}", "expected a dict with 'sc_label'"),
        ("a/x.png " + "{'a': " * 5000, "expected a dict with 'sc_label'"),
        ("a/none.png {'sc_label': 1}", r"none\.png is missing"),
    ],
)
def test_wrong_lines_of_scood(pictures, line, match, monkeypatch):
    monkeypatch.chdir(pictures)
    with pytest.raises(DataError, match=match) as caught:
        scood(pictures, f"a/x.png {{'sc_label': 0}}\n{line}\nb/z.png {{'sc_label': 0}}\n")
    assert f"{pictures / 'list.txt'}, line 2: " in str(caught.value)
    assert len(str(caught.value)) < 1000
    assert not (pictures / "executed").exists()


def test_folder_is_read_recursively_and_sorted(tmp_path):
    for name in ("b/2.PNG", "b/10.png", "a/deep/x.jpg", "top.png", ".hidden/x.png", "b/.x.png"):
        picture(tmp_path / "f" / name)
    (tmp_path / "f" / "b" / "readme.txt").write_text("no picture")
    root = DataRoot(tmp_path)
    images = read_folder(root, tmp_path / "f", name="f")
    assert images.paths == ("a/deep/x.jpg", "b/10.png", "b/2.PNG", "top.png")
    assert images.labels is None
    assert images.note == "2 files in f that are not pictures are left aside"
    names = b"a/deep/x.jpg\nb/10.png\nb/2.PNG\ntop.png\n"
    assert [(f.path, f.size, f.md5) for f in root.facts] == [("f/", len(names), hashlib.md5(names).hexdigest())]


def test_labels_from_sub_folders(tmp_path):
    for name in ("dog/1.png", "cat/x/2.png", "dog/0.png"):
        picture(tmp_path / name)
    images = read_folder(DataRoot(tmp_path), tmp_path, name="f", labelled=True)
    assert images.paths == ("cat/x/2.png", "dog/0.png", "dog/1.png")
    assert images.labels.tolist() == [0, 1, 1]
    assert images.note == ""
    picture(tmp_path / "loose.png")
    with pytest.raises(DataError, match=r"expected every picture in a sub-folder, whose name is its class, found loose\.png outside"):
        read_folder(DataRoot(tmp_path), tmp_path, name="f", labelled=True)


def test_empty_folder(tmp_path):
    (tmp_path / "f" / "sub").mkdir(parents=True)
    (tmp_path / "f" / "sub" / "notes.txt").write_text("")
    with pytest.raises(DataError, match=r"f: expected a folder with pictures \(\.bmp, .*\), found 1 other files"):
        read_folder(DataRoot(tmp_path), tmp_path / "f", name="f")


@pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege there")
def test_links(tmp_path):
    """A folder elsewhere may be linked; a link back to what was read would count pictures twice."""
    picture(tmp_path / "elsewhere" / "x.png")
    picture(tmp_path / "f" / "y.png")
    os.symlink(tmp_path / "elsewhere", tmp_path / "f" / "linked")
    assert read_folder(DataRoot(tmp_path), tmp_path / "f", name="f").paths == ("linked/x.png", "y.png")
    os.symlink(tmp_path / "f", tmp_path / "f" / "again")
    with pytest.raises(DataError, match=r"again: a link leads to a folder that was read already"):
        read_folder(DataRoot(tmp_path), tmp_path / "f", name="f")


def test_unreadable_sub_folder_is_not_left_out(tmp_path, monkeypatch):
    picture(tmp_path / "f" / "x.png")
    picture(tmp_path / "f" / "locked" / "y.png")
    plain = os.scandir

    def locked(path):
        if str(path).endswith("locked"):
            raise PermissionError(13, "Permission denied", str(path))
        return plain(path)

    monkeypatch.setattr(os, "scandir", locked)
    with pytest.raises(DataError, match=r"locked cannot be read \(Permission denied\)"):
        read_folder(DataRoot(tmp_path), tmp_path / "f", name="f")


def saved(tmp_path, name, image, **options):
    image.save(tmp_path / name, **options)
    return decode(tmp_path / name)


def test_decoding(tmp_path):
    colours = np.arange(4 * 5 * 3, dtype=np.uint8).reshape(4, 5, 3)
    expected = torch.from_numpy(colours.transpose(2, 0, 1).copy())
    decoded = saved(tmp_path, "rgb.png", Image.fromarray(colours))
    assert torch.equal(decoded, expected)
    assert decoded.is_contiguous()
    assert torch.equal(saved(tmp_path, "rgba.png", Image.fromarray(np.dstack([colours, colours[..., :1]]))), expected)
    grey = saved(tmp_path, "grey.png", Image.fromarray(colours[..., 0]))
    assert torch.equal(grey, expected[:1].expand(3, -1, -1))


def test_palette_with_transparency(tmp_path):
    """Pillow warns when such a picture is made opaque in one step; warnings are errors here."""
    image = Image.new("P", (2, 2), 1)
    image.putpalette([0, 0, 0, 10, 20, 30])
    decoded = saved(tmp_path, "p.png", image, transparency=bytes([0, 128]))
    assert decoded[:, 0, 0].tolist() == [10, 20, 30]


def test_sixteen_bits_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"deep\.png: expected a picture with eight bits per channel, found Pillow's mode 'I;16'"):
        saved(tmp_path, "deep.png", Image.fromarray(np.full((2, 2), 40_000, np.uint16)))


@pytest.mark.parametrize("damage", ["text", "empty", "cut", "missing"])
def test_what_cannot_be_decoded_is_named(tmp_path, damage):
    path = tmp_path / "f" / "bad.png"
    picture(path, size=(40, 40))
    data = path.read_bytes()
    (tmp_path / "f" / "bad.png").write_bytes({"text": b"no picture", "empty": b"", "cut": data[: len(data) // 2], "missing": data}[damage])
    images = read_folder(DataRoot(tmp_path), tmp_path / "f", name="f")
    if damage == "missing":
        path.unlink()
    with pytest.raises(DataError, match=r"bad\.png: expected a picture that Pillow can decode, got") as caught:
        images.image(0)
    assert str(path) in str(caught.value)


def test_oversized_pictures_are_refused(tmp_path, monkeypatch):
    picture(tmp_path / "big.png", size=(50, 50))
    for limit in (2000, 1000):  # a warning (an error in these tests) up to twice the limit, an error above
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
        with pytest.raises(DataError, match=r"big\.png: expected a picture that Pillow can decode, got DecompressionBomb"):
            decode(tmp_path / "big.png")


@pytest.mark.parametrize(
    "literal",
    ["{'sc_label': 1, " + ", ".join(f"{(2**61 - 1) * each}: 0" for each in range(1, 20_000)) + "}", "{'sc_label': 0x" + "f" * 4000 + "}"],
    ids=["equal hashes", "long integer"],
)
def test_a_dict_that_asks_for_much_is_refused_by_its_line(tmp_path, literal):
    (tmp_path / "list.txt").write_text(f"a.png {literal}\n")
    with pytest.raises(DataError, match=r"list\.txt, line 1: expected"):
        read_scood(DataRoot(tmp_path), tmp_path / "list.txt", tmp_path, name="x", origin="y")

"""CIFAR's pickles: read as data, checked against the published md5, refused when anything is wrong."""

import hashlib
import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch

from pairgrad_paper.data import DataError
from pairgrad_paper.data.cifar import CIFAR10, CIFAR100, departures, read_class_names, read_test, read_train
from pairgrad_paper.data.files import DataRoot
from paper.tests.data.cifar_files import pixels, write, write_cifar
from paper.tests.data.malicious import Malicious

SITE = "https://www.cs.toronto.edu/~kriz/cifar.html"


def test_training_batches_in_order(tmp_path):
    root = DataRoot(write_cifar(tmp_path, per_class=2))
    train = read_train(root, CIFAR10, verify=False)
    assert train.images.shape == (100, 3, 32, 32)
    assert train.note == ""
    assert train.labels.tolist() == [i % 10 for i in range(20)] * 5
    for batch in range(5):  # the file holds red, green and blue in turn, each row by row
        expected = torch.from_numpy(pixels(20, batch)).view(20, 3, 32, 32)
        assert torch.equal(train.images[20 * batch : 20 * (batch + 1)], expected)
    assert torch.equal(read_test(root, CIFAR10, verify=False).images, torch.from_numpy(pixels(20, 5)).view(20, 3, 32, 32))
    assert read_class_names(root, CIFAR10, verify=False)[3] == "class 3"
    data = (tmp_path / "cifar-10-batches-py" / "data_batch_1").read_bytes()
    fact = root.facts[0]
    assert (fact.path, fact.size, fact.md5) == ("cifar-10-batches-py/data_batch_1", len(data), hashlib.md5(data).hexdigest())
    assert len(root.facts) == 7


def test_cifar100_takes_the_fine_labels(tmp_path):
    labels = list(range(100))
    write(tmp_path / "cifar-100-python" / "test", {"data": pixels(100), "fine_labels": labels, "coarse_labels": [0] * 100})
    assert read_test(DataRoot(tmp_path), CIFAR100, verify=False).labels.tolist() == labels


def test_missing_batches_are_named(tmp_path):
    write_cifar(tmp_path, per_class=1)
    for number in (3, 5):
        (tmp_path / "cifar-10-batches-py" / f"data_batch_{number}").unlink()
    train = read_train(DataRoot(tmp_path), CIFAR10, verify=False)
    assert len(train) == 30
    assert train.note == "CIFAR-10 is trained on data_batch_1, data_batch_2, data_batch_4 only; data_batch_3, data_batch_5 not found"


def python2_pickle(count):
    """What Python 2 wrote: byte strings instead of text and bytes."""
    data = bytes(i % 256 for i in range(3072 * count))
    return data, (
        b"\x80\x02}q\x01(U\x04dataq\x02cnumpy.core.multiarray\n_reconstruct\nq\x03cnumpy\nndarray\nq\x04K\x00\x85U\x01b\x87Rq\x05"
        b"(K\x01" + b"K" + bytes([count]) + b"M\x00\x0c\x86"
        b"cnumpy\ndtype\nq\x06U\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89"
        b"T" + len(data).to_bytes(4, "little") + data + b"tbU\x06labelsq\x07]q\x08(" + b"K\x03" * count + b"eu."
    )  # fmt: skip


def test_files_of_python_2(tmp_path):
    data, content = python2_pickle(2)
    (tmp_path / "cifar-10-batches-py").mkdir()
    (tmp_path / "cifar-10-batches-py" / "test_batch").write_bytes(content)
    test = read_test(DataRoot(tmp_path), CIFAR10, verify=False)
    assert test.images.flatten().tolist() == list(data)
    assert test.labels.tolist() == [3, 3]


def test_fortran_order_is_kept_apart(tmp_path):
    values = pixels(3)
    write(tmp_path / "cifar-10-batches-py" / "test_batch", {"data": np.asfortranarray(values), "labels": [0, 1, 2]})
    assert torch.equal(read_test(DataRoot(tmp_path), CIFAR10, verify=False).images.view(3, -1), torch.from_numpy(values))


def test_an_unpublished_file_is_refused(tmp_path):
    path = write_cifar(tmp_path, per_class=1) / "cifar-10-batches-py" / "test_batch"
    found = hashlib.md5(path.read_bytes()).hexdigest()
    with pytest.raises(DataError) as caught:
        read_test(DataRoot(tmp_path), CIFAR10)
    for part in (str(path), CIFAR10.test["test_batch"], found, f"size {path.stat().st_size} bytes", SITE, "verify=False"):
        assert part in str(caught.value)
    root = DataRoot(tmp_path)
    read_test(root, CIFAR10, verify=False)
    assert departures(root, CIFAR10) == (
        f"cifar-10-batches-py/test_batch is not the published file: md5 {found}, published {CIFAR10.test['test_batch']}",
    )
    assert departures(root, CIFAR100) == ()


def test_one_changed_byte(tmp_path):
    path = write_cifar(tmp_path, per_class=1) / "cifar-10-batches-py" / "test_batch"
    data = bytearray(path.read_bytes())
    published = replace(CIFAR10, test={"test_batch": hashlib.md5(data).hexdigest()})
    before = read_test(DataRoot(tmp_path), published).images
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(DataError, match=f"test_batch is not the published file: expected md5 {published.test['test_batch']}, found "):
        read_test(DataRoot(tmp_path), published)
    root = DataRoot(tmp_path)
    after = read_test(root, published, verify=False).images
    assert (before != after).sum() == 1
    assert len(departures(root, published)) == 1


@pytest.mark.parametrize("where", ["data", "labels", "other", "whole"])
def test_nothing_in_a_file_is_executed(tmp_path, where):
    evil = Malicious(tmp_path / "executed")
    good = {"data": pixels(1), "labels": [0]}
    content = evil if where == "whole" else {**good, where: evil}
    write(tmp_path / "cifar-10-batches-py" / "test_batch", content)
    if where == "other":
        assert len(read_test(DataRoot(tmp_path), CIFAR10, verify=False)) == 1
    else:
        with pytest.raises(DataError, match=r"an object made by 'posix.mkdir'|an object made by 'nt.mkdir'"):
            read_test(DataRoot(tmp_path), CIFAR10, verify=False)
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("kept", [0, 1, 100, 5000, -1])
def test_cut_off_files(tmp_path, kept):
    path = write_cifar(tmp_path, per_class=1) / "cifar-10-batches-py" / "test_batch"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(DataError, match=r"test_batch: expected a pickle of a dict, found \d+ bytes that are a damaged or cut-off pickle"):
        read_test(DataRoot(tmp_path), CIFAR10, verify=False)


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ([1, 2], "expected a pickle of a dict, found a value of type list"),
        ({"labels": [0]}, r"expected a uint8 array \(N, 3072\) under 'data', found None"),
        ({"data": pixels(1).astype(np.int8), "labels": [0]}, r"dtype 'i1' and shape \(1, 3072\)"),
        ({"data": pixels(1).astype(np.float64), "labels": [0]}, r"dtype 'f8'"),
        ({"data": pixels(1)[:, :3000], "labels": [0]}, r"shape \(1, 3000\) with 3000 bytes"),
        ({"data": pixels(1)[0], "labels": [0]}, "found an object made by"),
        ({"data": np.zeros((0, 3072), np.uint8), "labels": []}, r"shape \(0, 3072\)"),
        ({"data": "pixels", "labels": [0]}, "found a value of type str"),
        ({"data": pixels(2), "labels": [0]}, "expected a list of 2 integers from 0 to 9 under 'labels', found a list of 1"),
        ({"data": pixels(2)}, "expected a list of 2 integers from 0 to 9 under 'labels', found None"),
        ({"data": pixels(2), "labels": [0, 10]}, "found 10 at position 1"),
        ({"data": pixels(2), "labels": [-1, 0]}, "found -1 at position 0"),
        ({"data": pixels(2), "labels": [0, True]}, "found True at position 1"),
        ({"data": pixels(2), "labels": [0, "1"]}, "found '1' at position 1"),
        ({"data": pixels(2), "labels": [0, 1.0]}, "found a value of type float at position 1"),
        ({"data": pixels(2), "labels": [0, 10**5000]}, "found a value of type int at position 1"),
    ],
)
def test_wrong_structure(tmp_path, content, match):
    path = write(tmp_path / "cifar-10-batches-py" / "test_batch", content)
    with pytest.raises(DataError, match=match) as caught:
        read_test(DataRoot(tmp_path), CIFAR10, verify=False)
    assert str(path) in str(caught.value)
    assert SITE in str(caught.value)


def test_an_array_with_too_few_bytes(tmp_path):
    """A header may claim any shape; what counts is that the bytes are there."""
    _, content = python2_pickle(2)
    (tmp_path / "cifar-10-batches-py").mkdir()
    (tmp_path / "cifar-10-batches-py" / "test_batch").write_bytes(content.replace(b"K\x02M\x00\x0c", b"K\x03M\x00\x0c"))
    with pytest.raises(DataError, match=r"shape \(3, 3072\) with 6144 bytes"):
        read_test(DataRoot(tmp_path), CIFAR10, verify=False)


def test_an_array_without_images(tmp_path):
    (tmp_path / "cifar-10-batches-py").mkdir()
    (tmp_path / "cifar-10-batches-py" / "test_batch").write_bytes(python2_pickle(0)[1])
    with pytest.raises(DataError, match=r"shape \(0, 3072\) with 0 bytes"):
        read_test(DataRoot(tmp_path), CIFAR10, verify=False)


def test_an_array_from_another_function(tmp_path):
    _, content = python2_pickle(1)
    (tmp_path / "cifar-10-batches-py").mkdir()
    (tmp_path / "cifar-10-batches-py" / "test_batch").write_bytes(
        content.replace(b"cnumpy.core.multiarray\n_reconstruct\n", b"cos\nsystem\n")
    )
    with pytest.raises(DataError, match=r"an object made by 'os.system'"):
        read_test(DataRoot(tmp_path), CIFAR10, verify=False)


@pytest.mark.parametrize("names", [None, ["a"] * 9, [*"abcdefghi", 3], "abcdefghij"])
def test_wrong_names(tmp_path, names):
    write(tmp_path / "cifar-10-batches-py" / "batches.meta", {"label_names": names})
    with pytest.raises(DataError, match=r"batches.meta: expected a list of 10 names under 'label_names', found"):
        read_class_names(DataRoot(tmp_path), CIFAR10, verify=False)


def test_missing_files(tmp_path):
    root = DataRoot(tmp_path)
    with pytest.raises(
        DataError,
        match=r"no training images of CIFAR-10: expected cifar-10-batches-py/data_batch_1 to data_batch_5; unpack cifar-10-python.tar.gz",
    ):
        read_train(root, CIFAR10)
    with pytest.raises(
        DataError, match=r"cifar-100-python/test cannot be read \(No such file or directory\): unpack cifar-100-python.tar.gz"
    ) as caught:
        read_test(root, CIFAR100)
    assert SITE in str(caught.value)


def test_the_fakes_are_written_as_old_pickles(tmp_path):
    path = write_cifar(tmp_path, per_class=1) / "cifar-10-batches-py" / "test_batch"
    assert path.read_bytes()[:2] == b"\x80\x02"
    assert pickle.loads(path.read_bytes())["labels"] == list(range(10))


def test_files_near_their_place(tmp_path):
    """One level too deep or too high, or not unpacked: the message says which."""
    folder = tmp_path / "a" / CIFAR10.folder
    folder.mkdir(parents=True)
    (folder / "data_batch_1").write_bytes(b"")
    with pytest.raises(DataError, match=rf"they are in {folder}: give {tmp_path / 'a'} as the root$"):
        read_train(DataRoot(tmp_path), CIFAR10)
    with pytest.raises(DataError, match=rf"this is cifar-10-batches-py itself: give the folder that holds it, {tmp_path / 'a'}$"):
        read_train(DataRoot(folder), CIFAR10)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "cifar-100-python.tar.gz").write_bytes(b"")
    with pytest.raises(
        DataError, match=r"expected cifar-100-python/train; the archive is there and has not been unpacked: tar xzf .*gz -C "
    ):
        read_train(DataRoot(tmp_path / "b"), CIFAR100)


def test_a_pickle_that_asks_for_much_is_refused_by_its_name(tmp_path):
    write_cifar(tmp_path, "cifar10")
    path = tmp_path / "cifar-10-batches-py" / "test_batch"
    path.write_bytes(b"\x80\x02N" + b"\x85" * 600_000 + b".")
    with pytest.raises(DataError, match=r"test_batch: expected a pickle of a dict, .* more than 500000 operations"):
        read_test(DataRoot(tmp_path), CIFAR10, verify=False)

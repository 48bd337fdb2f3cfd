"""The original files, where PAIRGRAD_DATA holds them. Each part that is absent is skipped."""

import shutil

import pytest
import torch

from pairgrad_paper.data import DataError, load_benchmark
from pairgrad_paper.data.cifar import CIFAR10, CIFAR100, has_test, read_class_names, read_test, read_train
from pairgrad_paper.data.files import DataRoot


def found(place, reason):
    if not place.exists():
        pytest.skip(f"PAIRGRAD_DATA has no {reason}")
    return place


def test_cifar10_batches(real_data):
    found(real_data / CIFAR10.folder / "data_batch_1", "CIFAR-10")
    root = DataRoot(real_data)
    train = read_train(root, CIFAR10)
    assert len(train) == 10_000 * sum((real_data / CIFAR10.folder / name).exists() for name in CIFAR10.train)
    assert train.labels[:5].tolist() == [6, 9, 9, 4, 1]  # frog, truck, truck, deer, automobile
    assert train.image(0)[:, 0, 0].tolist() == [59, 62, 63]  # the upper left pixel of the frog
    assert read_class_names(root, CIFAR10)[6] == "frog"


@pytest.mark.parametrize("which", [CIFAR10, CIFAR100], ids=lambda w: w.title)
def test_cifar_test_images(real_data, which):
    root = DataRoot(real_data)
    if not has_test(root, which):
        pytest.skip(f"PAIRGRAD_DATA has no {which.title}")
    test = read_test(root, which)
    assert test.images.shape == (10_000, 3, 32, 32)
    assert torch.bincount(test.labels).tolist() == [10_000 // which.num_classes] * which.num_classes
    names = read_class_names(root, which)
    assert names[int(test.labels[0])] == {"CIFAR-10": "cat", "CIFAR-100": "mountain"}[which.title]


def test_one_changed_byte_of_the_real_file(real_data, tmp_path):
    source = found(real_data / CIFAR10.folder / "test_batch", "CIFAR-10")
    target = tmp_path / CIFAR10.folder / "test_batch"
    target.parent.mkdir()
    shutil.copyfile(source, target)
    target.chmod(0o644)
    with target.open("r+b") as file:
        file.seek(15_000_000)
        byte = file.read(1)[0]
        file.seek(15_000_000)
        file.write(bytes([byte ^ 1]))
    with pytest.raises(DataError, match="expected md5 40351d587109b95175f43aff81a1287e, found"):
        read_test(DataRoot(tmp_path), CIFAR10)
    with target.open("r+b") as file:
        file.truncate(20_000_000)
    with pytest.raises(DataError, match="size 20000000 bytes"):
        read_test(DataRoot(tmp_path), CIFAR10)
    with pytest.raises(DataError, match="20000000 bytes that are a damaged or cut-off pickle"):
        read_test(DataRoot(tmp_path), CIFAR10, verify=False)


def test_the_whole_folder(real_data):
    found(real_data / CIFAR10.folder / "data_batch_1", "CIFAR-10")
    benchmark = load_benchmark("cifar10-lt", real_data)
    assert benchmark.class_counts[0] // benchmark.class_counts[-1] >= 100
    assert torch.bincount(benchmark.train.labels).tolist() == list(benchmark.class_counts)
    for images in (benchmark.test, *(source.images for source in benchmark.ood)):
        assert images.image(len(images) - 1).shape == (3, 32, 32)
    if benchmark.outliers is not None:
        batch = benchmark.outliers.batch(torch.tensor([0, len(benchmark.outliers) - 1]))
        assert batch.shape == (2, 3, 32, 32)
        assert batch.float().std() > 10

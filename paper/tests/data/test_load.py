"""Benchmarks by name: where files are found, what is noted, what is refused."""

import numpy as np
import pytest
import torch
from PIL import Image

from pairgrad_paper.data import BENCHMARKS, DataError, FileImages, load_benchmark
from paper.tests.data.cifar_files import pixels, write_cifar

SCOOD_SOURCES = ("cifar", "lsun", "places365", "svhn", "texture", "tin")


def load(root, name="cifar10-lt", **options):
    return load_benchmark(name, root, **{"imbalance": 2, "verify": False, **options})


def picture(path, value=1):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((4, 4, 3), value, np.uint8)).save(path)


def npz(path, *shape, **more):
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, X=np.zeros(shape, np.uint8), **more)


def write_scood(root, identity="cifar10", sources=SCOOD_SOURCES):
    for source in sources:
        file = {"cifar10": "cifar100", "cifar100": "cifar10"}[identity] if source == "cifar" else source
        path = root / "data" / "imglist" / f"benchmark_{identity}" / f"test_{file}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{source}/0.png {{'sc_label': -1}}\n{source}/1.png {{'sc_label': 4}}\n")
        for k in range(2):
            picture(root / "data" / "images" / source / f"{k}.png", value=k)


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_cifar(tmp_path, name):
    benchmark = load(write_cifar(tmp_path, name), f"{name}-lt")
    classes = {"cifar10": 10, "cifar100": 100}[name]
    per_class = 20 if name == "cifar10" else 4  # four in each of five batches, or of one
    assert benchmark.name == f"{name}-lt"
    assert benchmark.class_counts[0] == per_class
    assert benchmark.class_counts[-1] == per_class // 2
    assert torch.bincount(benchmark.train.labels).tolist() == list(benchmark.class_counts)
    assert len(benchmark.test) == 4 * classes
    assert benchmark.class_names[9] == "class 9"
    first = torch.from_numpy(pixels(4 * classes)).view(-1, 3, 32, 32)[0]
    assert torch.equal(benchmark.train.image(0), first)  # label 0, first batch, first image
    published = 5000 if name == "cifar10" else 500
    assert f"the first class keeps {per_class} images, the smallest class count found, instead of {published}" in benchmark.notes
    assert "there are no outliers" in benchmark.notes
    for source in SCOOD_SOURCES:
        assert f"the SC-OOD source {source} is missing" in benchmark.notes
    assert sum("is not the published file" in note for note in benchmark.notes) == {"cifar10": 7, "cifar100": 3}[name]
    assert len(benchmark.files) == {"cifar10": 7, "cifar100": 3}[name]
    assert benchmark.outliers is None
    assert benchmark.ood == ()


def test_rule_and_imbalance_reach_the_data(tmp_path):
    write_cifar(tmp_path)
    first, shuffled = load(tmp_path), load(tmp_path, rule="shuffled")
    assert first.class_counts == shuffled.class_counts
    assert not torch.equal(first.train.images, shuffled.train.images)
    assert load(tmp_path, imbalance=1).class_counts == (20,) * 10
    with pytest.raises(DataError, match="imbalance 100 leaves class 6 without images"):
        load(tmp_path, imbalance="default")  # 100: 20 * 0.01**(k/9) < 1 from k = 6 on
    everything = load(tmp_path, imbalance=None)
    assert everything.class_counts == (20,) * 10
    assert torch.equal(everything.train.images[:40], torch.from_numpy(pixels(40)).view(-1, 3, 32, 32))  # in the order of the files
    assert "the first class keeps 20 images instead of 5000" in everything.notes


def test_class_counts_that_differ(tmp_path):
    """The smallest class decides, and a class without any image is named."""
    from paper.tests.data.cifar_files import write

    write_cifar(tmp_path, parts=("test", "meta"))
    folder = tmp_path / "cifar-10-batches-py"
    labels = [k for k in range(10) for _ in range(3 if k == 7 else 6)]
    write(folder / "data_batch_2", {"data": pixels(len(labels)), "labels": labels})
    benchmark = load(tmp_path, imbalance=1)
    assert benchmark.class_counts == (3,) * 10
    assert load(tmp_path, imbalance=None).class_counts == (6, 6, 6, 6, 6, 6, 6, 3, 6, 6)
    assert benchmark.notes[0].startswith("CIFAR-10 is trained on data_batch_2 only; data_batch_1, data_batch_3")
    write(folder / "data_batch_2", {"data": pixels(9), "labels": list(range(9))})
    for imbalance in (1, None):
        with pytest.raises(DataError, match="CIFAR-10 train: expected images of each of the 10 classes, found none of class 9"):
            load(tmp_path, imbalance=imbalance)


def test_verification_is_on_by_default(tmp_path):
    write_cifar(tmp_path)
    with pytest.raises(DataError, match="data_batch_1 is not the published file: expected md5 c99cafc152244af753f735de768cd75f"):
        load_benchmark("cifar10-lt", tmp_path)


def test_sources_under_ood(tmp_path):
    write_cifar(tmp_path)
    write_cifar(tmp_path, "cifar100", parts=("test",))
    npz(tmp_path / "ood" / "digits.npz", 3, 8, 8, y=np.arange(3))
    npz(tmp_path / "ood" / "svhn_2.npz", 2, 32, 32, 3)
    picture(tmp_path / "ood" / "flowers" / "x.png")
    (tmp_path / "ood" / "readme.txt").write_text("left aside")
    (tmp_path / "ood" / ".cache").mkdir()
    benchmark = load(tmp_path)
    assert [(s.name, len(s.images)) for s in benchmark.ood] == [("cifar100", 400), ("digits", 3), ("flowers", 1), ("svhn_2", 2)]
    assert all(source.semantic_id is None for source in benchmark.ood)
    assert all(source.images.image(0).shape[0] == 3 for source in benchmark.ood)
    assert "the source digits: grey, repeated in three channels" in benchmark.notes
    assert "the source svhn_2 (2 images) is not SC-OOD's: all of its images count as out of distribution" in benchmark.notes
    assert "  ood        2 images, svhn_2" in benchmark.summary().splitlines()
    chosen = load(tmp_path, ood=["svhn_2", "cifar100"])
    assert [source.name for source in chosen.ood] == ["svhn_2", "cifar100"]
    assert "ood/digits.npz" not in {fact.path for fact in chosen.files}
    with pytest.raises(
        DataError, match="has no out-of-distribution source 'lsun': expected one of those found, cifar100, digits, flowers, svhn_2"
    ):
        load(tmp_path, ood=["lsun"])


def test_a_broken_source_is_an_error_until_it_is_left_out(tmp_path):
    write_cifar(tmp_path)
    npz(tmp_path / "ood" / "good.npz", 2, 32, 32, 3)
    (tmp_path / "ood" / "empty").mkdir()
    with pytest.raises(DataError, match="empty: expected a folder with pictures"):
        load(tmp_path)
    assert len(load(tmp_path, ood=["good"]).ood) == 1


def test_two_sources_of_one_name(tmp_path):
    write_cifar(tmp_path)
    npz(tmp_path / "ood" / "same.npz", 2, 32, 32, 3)
    picture(tmp_path / "ood" / "same" / "x.png")
    with pytest.raises(DataError, match=r"same\.npz: another out-of-distribution source is called 'same' too"):
        load(tmp_path)


@pytest.mark.parametrize("identity", ["cifar10", "cifar100"])
def test_scood(tmp_path, identity):
    other = {"cifar10": "cifar100", "cifar100": "cifar10"}[identity]
    write_cifar(tmp_path, identity)
    write_cifar(tmp_path, other, parts=("test",))
    write_scood(tmp_path, identity)
    benchmark = load(tmp_path, f"{identity}-lt")
    # The whole other CIFAR has the same images as the source cifar and is left to those who ask for it.
    assert tuple(source.name for source in benchmark.ood) == SCOOD_SOURCES
    assert not any("SC-OOD" in note for note in benchmark.notes)
    for source in benchmark.ood:
        assert source.semantic_id.tolist() == [False, True]
        assert source.images.labels.tolist() == [-1, 4]
        assert source.images.image(1).unique().tolist() == [1]
    assert "  ood        2 images, lsun, 1 of them semantically in-distribution" in benchmark.summary().splitlines()
    assert [source.name for source in load(tmp_path, f"{identity}-lt", ood=[other, "tin"]).ood] == [other, "tin"]


def test_scood_in_part(tmp_path):
    write_cifar(tmp_path)
    write_scood(tmp_path, sources=("svhn", "tin", "cifar"))
    benchmark = load(tmp_path, ood=["svhn"])
    assert [note for note in benchmark.notes if "SC-OOD" in note] == [
        "the SC-OOD source cifar is left out",
        "the SC-OOD source lsun is missing",
        "the SC-OOD source places365 is missing",
        "the SC-OOD source texture is missing",
        "the SC-OOD source tin is left out",
    ]
    (tmp_path / "data" / "images" / "tin" / "1.png").unlink()
    with pytest.raises(DataError, match=r"test_tin\.txt, line 2: the picture .*tin/1\.png is missing; SC-OOD .* name the others in ood"):
        load(tmp_path)


def test_scood_without_its_data_folder(tmp_path):
    write_cifar(tmp_path)
    write_scood(tmp_path, sources=("lsun",))
    for part in ("imglist", "images"):
        (tmp_path / "data" / part).rename(tmp_path / part)
    assert [source.name for source in load(tmp_path).ood] == ["lsun"]


@pytest.mark.parametrize("place", ["Tiny_Images_Dataset/300K_random_images.npy", "300K_random_images.npy"])
def test_tiny_images(tmp_path, place):
    """It goes before other outliers, and a file that has fewer images than the published one is noted."""
    write_cifar(tmp_path)
    for name in (place, "ood/outliers_other.npy"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        np.save(tmp_path / name, np.zeros((4, 32, 32, 3), np.uint8))
    benchmark = load(tmp_path)
    assert benchmark.outliers.name == place
    assert len(benchmark.outliers) == 4
    assert f"outliers: {place} has 4 images instead of 300000" in benchmark.notes


def test_other_outliers(tmp_path):
    write_cifar(tmp_path)
    npz(tmp_path / "ood" / "tinyimagenet_val.npz", 2, 32, 32, 3)
    np.save(tmp_path / "ood" / "outliers_tinyimagenet.npy", np.zeros((4, 32, 32, 3), np.uint8))
    benchmark = load(tmp_path)
    assert benchmark.outliers.images.shape == (4, 3, 32, 32)
    assert benchmark.notes[-2:] == (
        "outliers: ood/outliers_tinyimagenet.npy (4 images) stands in for 300K_random_images.npy",
        "outliers and the source tinyimagenet_val both come from Tiny ImageNet: no result should rest on the two together",
    )
    np.save(tmp_path / "ood" / "outliers_b.npy", np.zeros((5, 32, 32, 3), np.uint8))
    with pytest.raises(DataError, match=r"several files of outliers: say which with outliers='ood/outliers_b\.npy'"):
        load(tmp_path)
    assert len(load(tmp_path, outliers="ood/outliers_b.npy").outliers) == 5
    npz(tmp_path / "grey.npz", 6, 32, 32)
    assert load(tmp_path, outliers="grey.npz").outliers.images.shape == (6, 3, 32, 32)
    picture(tmp_path / "folder" / "x.png")
    assert len(load(tmp_path, outliers="folder").outliers) == 1


def test_wrong_outliers(tmp_path):
    write_cifar(tmp_path)
    (tmp_path / "list.txt").write_text("x")
    with pytest.raises(DataError, match=r"none\.npy is missing: expected a \.npy, a \.npz or a folder"):
        load(tmp_path, outliers="none.npy")
    with pytest.raises(DataError, match=r"list\.txt: expected a \.npy, a \.npz or a folder of pictures, got a file that ends in '\.txt'"):
        load(tmp_path, outliers="list.txt")


def test_roots(tmp_path, monkeypatch):
    monkeypatch.delenv("PAIRGRAD_DATA", raising=False)
    with pytest.raises(
        DataError, match=r"no folder with data is named: give root \(--data-root .*\), or set the environment variable PAIRGRAD_DATA"
    ):
        load_benchmark("cifar10-lt")
    with pytest.raises(DataError, match=r"root must be the folder that holds the data, got '.*none': nothing there"):
        load_benchmark("cifar10-lt", tmp_path / "none")
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"root must be the folder that holds the data, got '.*file': a file"):
        load_benchmark("cifar10-lt", str(tmp_path / "file"))
    monkeypatch.setenv("PAIRGRAD_DATA", str(tmp_path / "none"))
    with pytest.raises(DataError, match="the environment variable PAIRGRAD_DATA must be the folder that holds the data"):
        load_benchmark("cifar10-lt")
    monkeypatch.setenv("PAIRGRAD_DATA", str(write_cifar(tmp_path)))
    assert load(None).name == "cifar10-lt"
    monkeypatch.chdir(tmp_path.parent)
    monkeypatch.delenv("PAIRGRAD_DATA")
    assert load(tmp_path.name).files[0].path == "cifar-10-batches-py/data_batch_1"


def test_a_relative_root_survives_a_change_of_folder(tmp_path, monkeypatch):
    write_cifar(tmp_path)
    picture(tmp_path / "ood" / "flowers" / "x.png")
    monkeypatch.chdir(tmp_path.parent)
    (source,) = load(tmp_path.name).ood
    monkeypatch.chdir("/")
    assert source.images.image(0).shape == (3, 4, 4)


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        (
            {"name": "cifar10"},
            ValueError,
            "name must be one of 'digits-lt', 'cifar10-lt', 'cifar100-lt', 'imagenet-lt', 'inat18', got 'cifar10'",
        ),
        ({"name": "cifar10-lt", "rule": "last"}, ValueError, "rule must be one of 'first', 'shuffled'"),
        (
            {"name": "cifar10-lt", "ood": "svhn"},
            TypeError,
            r"ood must be a sequence of names or None, got the string 'svhn': use \['svhn'\]",
        ),
        ({"name": "inat18", "imbalance": 100}, ValueError, "imbalance must be None for inat18, which is long-tailed as published, got 100"),
    ],
)
def test_wrong_arguments(tmp_path, arguments, error, match):
    assert len(BENCHMARKS) == 5
    with pytest.raises(error, match=match):
        load_benchmark(root=tmp_path, **arguments)


def write_lists(root, folder="", **lists):
    (root / folder).mkdir(parents=True, exist_ok=True)
    for name, lines in lists.items():
        (root / folder / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines))
        for line in lines:
            picture(root / line.rsplit(" ", 1)[0])


@pytest.fixture
def imagenet(tmp_path):
    train = ["train/n1/a.png 0", "train/n1/b.png 0", "train/n2/c.png 1", "train/n3/d.png 2"]
    write_lists(
        tmp_path,
        "ImageNet_LT",
        ImageNet_LT_train=train,
        ImageNet_LT_val=["train/n1/e.png 0", "train/n3/f.png 2"],
        ImageNet_LT_test=["val/g.png 1"],
    )
    return tmp_path


def test_imagenet(imagenet):
    for k in range(2):
        picture(imagenet / "imagenet10k" / "n9" / f"{k}.png")
        picture(imagenet / "imagenet10k" / "n8" / f"{k}.png")
    (imagenet / "imagenet_extra_1k_wnid_list_picture.txt").write_text("n9/0.png 0\nn9/1.png 0\n")
    (imagenet / "imagenet_ood_test_1k_wnid_list_picture.txt").write_text("n8/1.png\n")
    npz(imagenet / "ood" / "other.npz", 2, 32, 32, 3)
    benchmark = load_benchmark("imagenet-lt", imagenet)
    assert benchmark.class_counts == (2, 1, 1)
    assert benchmark.class_names == ("n1", "n2", "n3")
    assert benchmark.train.labels.tolist() == [0, 0, 1, 2]
    assert isinstance(benchmark.train, FileImages)
    assert benchmark.test.paths == ("val/g.png",)
    assert len(benchmark.validation) == 2
    assert benchmark.outliers.paths == ("n9/0.png", "n9/1.png")
    assert [(source.name, len(source.images)) for source in benchmark.ood] == [("imagenet_ood_test_1k", 1), ("other", 2)]
    assert benchmark.ood[0].images.image(0).shape == (3, 4, 4)
    assert benchmark.notes == (
        "ImageNet-LT has 3 classes here, 1000 as published",
        "ImageNet_LT_train.txt has 4 pictures, 115846 as published",
        "ImageNet_LT_test.txt has 1 pictures, 50000 as published",
        "ImageNet_LT_val.txt has 2 pictures, 20000 as published",
    )
    assert len(benchmark.files) == 6
    assert "  validation 2 images" in benchmark.summary().splitlines()


def test_imagenet_outliers_in_folders(imagenet):
    """As PASCL unpacks them. Small images of another kind are not taken for outliers unasked."""
    np.save(imagenet / "300K_random_images.npy", np.zeros((4, 32, 32, 3), np.uint8))
    assert load_benchmark("imagenet-lt", imagenet).outliers is None
    assert load_benchmark("imagenet-lt", imagenet).notes[-1] == "there are no outliers"
    assert len(load_benchmark("imagenet-lt", imagenet, outliers="300K_random_images.npy").outliers) == 4
    picture(imagenet / "imagenet_extra_1k" / "n9" / "x.png")
    picture(imagenet / "imagenet_ood_test_1k" / "n8" / "y.png")
    benchmark = load_benchmark("imagenet-lt", imagenet)
    assert benchmark.outliers.paths == ("n9/x.png",)
    assert benchmark.ood[0].images.paths == ("n8/y.png",)


def test_imagenet_without_a_test_list(imagenet):
    (imagenet / "ImageNet_LT" / "ImageNet_LT_test.txt").unlink()
    benchmark = load_benchmark("imagenet-lt", imagenet)
    assert len(benchmark.test) == 2
    assert benchmark.validation is None
    assert benchmark.notes[0] == "ImageNet_LT_test.txt is missing: ImageNet_LT_val.txt is the test part"
    (imagenet / "ImageNet_LT" / "ImageNet_LT_val.txt").unlink()
    with pytest.raises(DataError, match=r"no test list of ImageNet-LT: expected ImageNet_LT_test\.txt .*liuziwei7"):
        load_benchmark("imagenet-lt", imagenet)


def test_imagenet_labels_must_fit(imagenet):
    write_lists(imagenet, "ImageNet_LT", ImageNet_LT_val=["train/n1/e.png 3"])
    with pytest.raises(DataError, match="ImageNet-LT validation has label 3, but the training list has only the labels 0 to 2"):
        load_benchmark("imagenet-lt", imagenet)
    write_lists(imagenet, "ImageNet_LT", ImageNet_LT_train=["train/n1/a.png 0", "train/n2/c.png 999999999"])
    with pytest.raises(DataError, match="expected pictures of every class from 0 to 999999999, found none of class 1"):
        load_benchmark("imagenet-lt", imagenet)


def test_missing_lists(tmp_path):
    with pytest.raises(
        DataError, match=r"no training list of ImageNet-LT: expected ImageNet_LT_train\.txt or ImageNet_LT/ImageNet_LT_train\.txt"
    ):
        load_benchmark("imagenet-lt", tmp_path)
    with pytest.raises(DataError, match=r"no training list of iNaturalist 2018: expected iNaturalist18_train\.txt .*inat_comp"):
        load_benchmark("inat18", tmp_path)


def test_inaturalist(tmp_path):
    lists = {
        "iNaturalist18_train": ["train_val2018/a/x.png 1", "train_val2018/a/y.png 0"],
        "iNaturalist18_val": ["train_val2018/a/z.png 1"],
    }
    write_lists(tmp_path, **lists)
    benchmark = load_benchmark("inat18", tmp_path)
    assert benchmark.class_counts == (1, 1)
    assert benchmark.class_names == ("0", "1")  # both classes lie in one folder
    assert benchmark.validation is None
    assert benchmark.test.labels.tolist() == [1]
    assert "iNaturalist18_val.txt has 1 pictures, 24426 as published" in benchmark.notes

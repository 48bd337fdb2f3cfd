"""Reading ProCo's checkpoints: what is found in good ones, and what is said about bad ones."""

from __future__ import annotations

import argparse
import collections
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from pairgrad.compat import read_proco_checkpoint

from .checkpoints import MODULE, SOURCE, K, P, assert_equal, records, replace_once, statistics, write_records


def refused(path, *fragments, **options):
    """The reader refuses with one ValueError that names the file and says all of `fragments`; nothing else shows through."""
    with pytest.raises(ValueError, match=re.escape(str(path))) as caught:
        read_proco_checkpoint(path, **options)
    assert type(caught.value) is ValueError
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    message = str(caught.value).replace(str(path), "")  # the name of the test is in the path
    for fragment in fragments:
        assert fragment in message, message


@pytest.mark.parametrize("protocol", [1, 2, 3, 4, 5])
def test_reads_both_estimators_and_the_temperature(save, protocol):
    path, truth = save(pickle_protocol=protocol)
    state = read_proco_checkpoint(path)
    assert state.temperature == 0.07
    assert_equal(state, truth)
    assert MODULE not in sys.modules


def test_torch_itself_needs_the_source(save, canary):
    """What the reader is for: torch refuses, or imports the module (and so makes the canary)."""
    path, _ = save()
    with pytest.raises(Exception, match="Weights only load failed"):
        torch.load(path)
    torch.load(path, weights_only=False)
    canary.unlink()


def test_reads_a_file_saved_by_another_process(tmp_path):
    """The classes are in __main__ of a process that has ended, as when ProCo's script defines them itself."""
    script = tmp_path / "script.py"
    path = tmp_path / "main.pt"
    script.write_text(
        SOURCE + f"\nc = ProCoLoss({P}, 0.5, {K}); torch.save({{'criterion_scl': c}}, {str(path)!r})\n"
        f"torch.save([c.estimator_old.Ave, c.estimator.kappa], {str(tmp_path / 'truth.pt')!r})\n"
    )
    subprocess.run([sys.executable, str(script)], check=True, timeout=1000)
    state = read_proco_checkpoint(path)
    mean, concentration = torch.load(tmp_path / "truth.pt")
    assert state.temperature == 0.5
    assert torch.equal(state.old.mean, mean)
    assert torch.equal(state.new.concentration, concentration)


@pytest.mark.parametrize("location", ["cuda:0", "cuda:7", "mps", "xla:0"])
def test_tensors_of_other_devices_come_back_on_the_cpu(save, location):
    path, truth = save()
    parts = records(path)
    replace_once(parts, "data.pkl", b"X\x03\x00\x00\x00cpu", b"X" + len(location).to_bytes(4, "little") + location.encode())
    assert_equal(read_proco_checkpoint(write_records(path, parts)), truth)


@pytest.mark.parametrize("order", ["little", "big", None])
def test_byte_order(save, order):
    """Without the record, as torch before 2.1 wrote, the bytes are little-endian."""
    path, truth = save(lambda criterion, _: {"criterion_scl": criterion})
    parts = records(path)
    assert parts.pop("byteorder") == sys.byteorder.encode()
    if order:
        parts["byteorder"] = order.encode()
    for name in parts:
        if name.startswith("data/"):
            size = len(parts[name]) // K if len(parts[name]) != 4 * K * P else 4
            kind = np.dtype(f"=u{size}")
            parts[name] = np.frombuffer(parts[name], kind).astype(kind.newbyteorder(">" if order == "big" else "<")).tobytes()
    assert_equal(read_proco_checkpoint(write_records(path, parts)), truth)


def test_the_banks_do_not_share_memory(save):
    """In the file they may: ProCo hands the new bank's tensors to the old one by reference."""

    def shared(criterion, _):
        criterion.estimator_old.Ave = criterion.estimator.Ave
        return {"criterion_scl": criterion}

    path, _ = save(shared)
    state = read_proco_checkpoint(path)
    assert torch.equal(state.old.mean, state.new.mean)
    state.new.mean.zero_()
    assert state.old.mean.abs().min() > 0


def test_views_are_read_through_their_strides(save):
    """A transposed mean, and a concentration that is every third element of a longer tensor, from the second on."""
    kept = {}

    def views(criterion, _):
        criterion.estimator.Ave = torch.randn(P, K).T
        criterion.estimator.kappa = torch.arange(100.0)[1 : 1 + 3 * K : 3]
        kept.update(statistics(criterion))
        return {"criterion_scl": criterion}

    path, _ = save(views)
    state = read_proco_checkpoint(path)
    assert_equal(state, kept)
    assert state.new.mean.is_contiguous()


def wrapped_in_data_parallel(criterion, _):
    return {"criterion_scl": torch.nn.DataParallel(criterion)}


def wrapped_twice(criterion, _):
    outer = torch.nn.Module()
    outer._orig_mod = torch.nn.DataParallel(criterion)
    return {"criterion_scl": outer}


def among_strangers(criterion, module):
    """Everything that training scripts put next to the criterion."""
    optimizer = torch.optim.SGD(torch.nn.Linear(3, 2).parameters(), lr=0.1, momentum=0.9)
    return {
        "args": argparse.Namespace(lr=0.1, dirs={Path("a")}),
        "best": np.float32(3.5),
        "history": np.arange(4.0),
        "optimizer": optimizer.state_dict(),
        ("a", "tuple"): frozenset({1, 2}),
        "counts": collections.Counter("abc"),
        "nested": collections.defaultdict(list, {"x": [1, 2.5, None, True, b"bytes", 2**80, 1j, slice(3)]}),
        "function": print,
        "class": module.ProCoLoss,
        "sparse": torch.eye(3).to_sparse(),
        "half": torch.ones(2, dtype=torch.bfloat16),
        "criterion_scl": criterion,
    }


def ordered(criterion, _):
    return collections.OrderedDict(criterion_scl=criterion)


def slotted(criterion, module):
    holder = module.Slotted()
    holder.estimator, holder.estimator_old = criterion.estimator, criterion.estimator_old
    return {"criterion_scl": holder}


def parameters(criterion, _):
    """The mean as a parameter of a module."""
    bank = torch.nn.Module()
    for name, value in vars(criterion.estimator).items():
        setattr(bank, name, torch.nn.Parameter(value) if name == "Ave" else value)
    bank.register_buffer("kappa", vars(bank).pop("kappa"))
    criterion.estimator = bank
    return {"criterion_scl": criterion}


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("change", [wrapped_in_data_parallel, wrapped_twice, among_strangers, ordered, slotted, parameters])
def test_reads_through_what_surrounds_the_state(save, change, protocol):
    path, truth = save(change, pickle_protocol=protocol)
    state = read_proco_checkpoint(path)
    assert_equal(state, truth)
    assert state.temperature == (None if change is slotted else 0.07)


def test_another_key(save):
    path, truth = save(lambda criterion, _: {"criterion_scl": 3, "loss": criterion})
    assert_equal(read_proco_checkpoint(path, key="loss"), truth)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1, 1.0),
        (None, None),
        (np.float64(0.07), 0.07),
        (np.float32(0.07), float(np.float32(0.07))),
        (np.int64(2), 2.0),
        (np.dtype(">f8").type(0.25), 0.25),
        (torch.tensor(0.25), 0.25),
        (torch.nn.Parameter(torch.tensor([0.25])), 0.25),
    ],
    ids=repr,
)
@pytest.mark.parametrize("protocol", [2, 4])
def test_temperature(save, value, expected, protocol):
    path, _ = save(lambda criterion, _: vars(criterion).update(temperature=value), pickle_protocol=protocol)
    state = read_proco_checkpoint(path)
    assert state.temperature == expected
    assert type(state.temperature) is (float if expected is not None else type(None))


@pytest.mark.parametrize(
    "value", [0.0, -1.0, np.inf, np.nan, "0.07", True, [0.1], 10**400, np.float64(-1), np.bool_(True), torch.ones(2), torch.int8], ids=repr
)
def test_temperature_that_is_none(save, value):
    path, _ = save(lambda criterion, _: vars(criterion).update(temperature=value))
    expected = "temperature: expected a dense tensor" if isinstance(value, np.bool_) else "temperature is "
    refused(path, expected)


def put(bank, **values):
    """A change of attributes of one estimator; None deletes."""

    def change(criterion, _):
        for name, value in values.items():
            if value is None:
                delattr(getattr(criterion, bank), name)
            else:
                setattr(getattr(criterion, bank), name, value)

    return change


@pytest.mark.parametrize("bank", ["estimator", "estimator_old"])
@pytest.mark.parametrize("name", ["Ave", "Amount", "kappa", "logc"])
def test_a_statistic_that_is_missing(save, bank, name):
    path, _ = save(put(bank, **{name: None}))
    refused(path, f"{bank}.{name} is missing", "'class_num'")


@pytest.mark.parametrize("bank", ["estimator", "estimator_old"])
@pytest.mark.parametrize(
    ("name", "value", "fragment"),
    [
        ("Ave", torch.ones(K), f"has shape ({K},), expected (classes, dimensions)"),
        ("Ave", torch.ones(K, 1), "at least two dimensions"),
        ("Ave", torch.ones(K, P, 1), "at most 2 dimensions"),
        ("Ave", torch.ones(0, P), "a tensor with elements"),
        ("Ave", torch.ones(K + 1, P), f"class_num is {K}, but"),
        ("Ave", torch.ones(K, P + 1), f"feature_num is {P}, but"),
        ("Ave", torch.ones(K, P, dtype=torch.int64), "floating-point"),
        ("Ave", torch.ones(K, P).index_fill(0, torch.tensor([3]), torch.nan), "not finite for class 3"),
        ("Ave", torch.ones(K, P).to_sparse(), "expected a dense tensor, got an object made by 'torch._utils._rebuild_sparse_tensor'"),
        ("Ave", torch.ones(K, P, dtype=torch.complex64), "'ComplexFloatStorage'"),
        ("Ave", torch.ones(K, P, dtype=torch.complex64).conj().imag, "expected a dense tensor"),
        ("Ave", torch.ones(1, 1).expand(K, P), "does not fit"),
        ("Ave", np.ones((K, P)), "_reconstruct"),
        ("Ave", [[1.0] * P] * K, "a value of type list"),
        ("Ave", torch.float16, "the name 'torch.float16'"),
        ("Amount", torch.ones(K + 1), f"has shape ({K + 1},), expected ({K},)"),
        ("Amount", torch.ones(K, 1), f"expected ({K},)"),
        ("Amount", torch.tensor(1.0), f"expected ({K},)"),
        ("Amount", torch.tensor([0.0, 1, -1, 0, 0]), "is -1 for class 2, expected a whole number >= 0: use an earlier checkpoint"),
        ("Amount", torch.tensor([0.0, 1, 2.5, 0, 0]), "is 2.5 for class 2, expected a whole number >= 0: use an earlier checkpoint"),
        ("Ave", torch.ones(K, P).index_fill(0, torch.tensor([3]), 1e30), "is longer than 1e+18 for class 3"),
        ("Ave", torch.ones(K, P).double().index_fill(0, torch.tensor([3]), 1e300), "is longer than 1e+150 for class 3"),
        ("Amount", torch.tensor(torch.inf), "not finite"),
        ("Amount", torch.tensor([0.0, torch.nan, -1, 0, 0]), "not finite for class 1"),
        ("kappa", torch.tensor([0.0, 1, 1, torch.inf, 0]), "not finite for class 3"),
        (
            "kappa",
            torch.tensor([0.0, 1, 1, 1, -1e-9]),
            "is -1e-09 for class 4, expected a number from 0 to 1e+18: use an earlier checkpoint",
        ),
        ("kappa", torch.tensor([0.0, 1, 1, 1e30, 0]), "is 1e+30 for class 3, expected a number from 0 to 1e+18: use an earlier checkpoint"),
        ("kappa", torch.ones(K, dtype=torch.int32), "floating-point"),
        ("kappa", torch.ones(K, dtype=torch.bfloat16), "'BFloat16Storage'"),
        ("logc", torch.tensor([-torch.inf, 1, 1, 1, 0]), "not finite for class 0"),
        ("logc", torch.ones(K - 1), f"expected ({K},)"),
    ],
    ids=lambda v: None if isinstance(v, str) else "value",
)
def test_a_statistic_that_is_wrong(save, bank, name, value, fragment):
    path, _ = save(put(bank, **{name: value}))
    refused(path, bank + ("." if "_num" in fragment else f".{name}"), fragment)


def test_what_is_odd_but_right_is_read(save):
    """Whole-number counts, negative log-normalisers, half precision, no class_num at all."""
    path, _ = save(put("estimator", Amount=torch.arange(K), Ave=torch.ones(K, P, dtype=torch.float16), class_num=None, feature_num=None))
    state = read_proco_checkpoint(path)
    assert state.new.count.tolist() == list(range(K))
    assert state.new.mean.dtype == torch.float16
    assert (state.new.log_normaliser < 0).any()


def test_estimators_that_disagree(save):
    wide = {"Ave": torch.ones(K, P + 1), "feature_num": P + 1}
    path, _ = save(put("estimator", **wide))
    refused(path, f"estimator_old.Ave has shape {(K, P)}", f"estimator.Ave {(K, P + 1)}")


@pytest.mark.parametrize("missing", ["estimator", "estimator_old"])
def test_an_estimator_that_is_missing(save, missing):
    path, _ = save(lambda criterion, _: delattr(criterion, missing))
    refused(path, f"without the attribute {missing!r}", f"{MODULE}.ProCoLoss", "'num_classes'", "'state_dict'", "key must be")


def test_a_key_that_is_missing(save):
    path, _ = save()
    refused(path, "no entry 'criterion'", "'epoch', 'arch', 'state_dict', 'criterion_scl'", key="criterion")


@pytest.mark.parametrize("value", [3, None, "text", {}, [1], torch.ones(3), torch.nn.Linear(2, 2), print], ids=repr)
def test_a_key_that_holds_something_else(save, value):
    path, _ = save(lambda *_: {"criterion_scl": value})
    refused(path, "key must be the entry that holds the criterion object", "'estimator'")


@pytest.mark.parametrize("root", [3, "text", [1, 2], torch.ones(2), {}, {1: 2}], ids=repr)
def test_a_file_that_holds_no_dict(save, root):
    path, _ = save()
    torch.save(root, path)
    refused(path, "no entry 'criterion_scl'", "no names at all")


def test_long_lists_of_names_are_cut(save):
    path, _ = save(lambda *_: {f"key{i:02}" + "x" * 1000: i for i in range(50)})
    with pytest.raises(ValueError, match="and 30 more") as caught:
        read_proco_checkpoint(path)
    assert len(str(caught.value)) < 2500


def test_a_file_that_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"path must be .* got '.*nowhere\.pt'"):
        read_proco_checkpoint(tmp_path / "nowhere.pt")


def test_arguments_of_the_wrong_kind(tmp_path, save):
    with pytest.raises(ValueError, match="got the directory"):
        read_proco_checkpoint(tmp_path)
    with pytest.raises(TypeError, match=r"path must be .* got 3 \(int\)"):
        read_proco_checkpoint(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"key must be .* got 3 \(int\)"):
        read_proco_checkpoint(save()[0], key=3)  # type: ignore[arg-type]


def test_a_path_as_text(save):
    path, truth = save()
    assert_equal(read_proco_checkpoint(str(path)), truth)


def test_the_format_before_1_6_is_refused(save):
    path, _ = save(_use_new_zipfile_serialization=False)
    refused(path, "before 1.6", "weights_only=False")


def test_a_tar_archive_is_refused(tmp_path):
    path = tmp_path / "old.pt"
    with tarfile.open(path, "w") as archive:
        archive.add(__file__, "pickle")
    refused(path, "tar archive", "weights_only=False")


@pytest.mark.parametrize("content", [b"", b"PK", b"text " * 200, b"\x80\x04N.", b"\x93NUMPY\x01\x00"], ids=repr)
def test_other_files_are_refused(tmp_path, content):
    path = tmp_path / "other"
    path.write_bytes(content)
    refused(path, "not a file that torch.save wrote in its zip format")


def test_another_zip_archive_is_refused(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, a=np.ones(3))
    refused(path, "it has 0 records data.pkl, expected one")


def test_a_torchscript_program_is_refused(save):
    path, _ = save()
    refused(write_records(path, {**records(path), "constants.pkl": b"\x80\x02)."}), "TorchScript")


def test_a_file_that_is_cut_off(save):
    """At every tenth length, and at every length near the end."""
    path, _ = save()
    whole = path.read_bytes()
    for length in [*range(4, len(whole) - 100, 10), *range(len(whole) - 100, len(whole))]:
        path.write_bytes(whole[:length])
        refused(path, "cut off or damaged")


def test_a_record_that_is_missing_or_of_the_wrong_size(save):
    path, _ = save(lambda criterion, _: {"criterion_scl": criterion})
    parts = records(path)
    refused(write_records(path, {name: data for name, data in parts.items() if name != "data/0"}), "record 'data/0' is missing")
    refused(write_records(path, {**parts, "data/0": parts["data/0"][:-1]}), f"should have {4 * K * P} bytes and has {4 * K * P - 1}")
    refused(write_records(path, {**parts, "data/0": parts["data/0"] + b"\0"}), f"and has {4 * K * P + 1}")
    refused(write_records(path, {**parts, "byteorder": b"middle"}), "byte order is b'middle'")


def test_damaged_bytes_are_noticed(save):
    """One bit of a class mean: the checksum in the archive tells."""
    path, truth = save(lambda criterion, _: {"criterion_scl": criterion})
    raw, mean = path.read_bytes(), truth["old"]["mean"].numpy().tobytes()
    assert raw.count(mean) == 1
    place = raw.index(mean) + 5
    path.write_bytes(raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1 :])
    refused(path, "Bad CRC-32", "set_crc32_options")


def test_compressed_records_are_refused(save):
    """A few bytes of file could stand for any amount of memory."""
    path, _ = save()
    refused(write_records(path, records(path), compression=zipfile.ZIP_DEFLATED), "compressed")


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_the_file_is_closed(save):
    """After a good file and after a bad one."""
    path, _ = save()
    cut = path.with_suffix(".cut")
    cut.write_bytes(path.read_bytes()[:-30])
    before = os.listdir("/proc/self/fd")
    read_proco_checkpoint(path)
    refused(path, key="other")
    refused(cut)
    assert os.listdir("/proc/self/fd") == before

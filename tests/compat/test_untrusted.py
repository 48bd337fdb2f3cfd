"""Files whose author means harm. Each attack is first shown to work on Python's or torch's own reader, where it makes the canary.

The reader may read such a file, if the harm lies beside what it looks for, or refuse it with a ValueError; it may do nothing else.
"""

from __future__ import annotations

import collections
import contextlib
import copyreg
import importlib
import os
import pickle
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from pairgrad.compat import read_proco_checkpoint

from .checkpoints import K, P, assert_equal, records, statistics, write_records

TRIES = 400  # random changes of each kind; about 3 ms each
DEPTH = 20_000  # levels of nesting; Python's recursion limit is 1,000
KEY_DEPTH = 10 * DEPTH  # the hash of a tuple this deep ends the process


class EstimatorCV:
    """Here, so that torch.load finds it and gets as far as the attack."""


class ProCoLoss(torch.nn.Module):
    pass


class Newborn:
    """Does harm when it is made, even if it is never initialised."""

    def __new__(cls, command):
        os.system(command)


def read_bytes(folder, data):
    """A checkpoint whose pickle is `data`."""
    return read_proco_checkpoint(write_records(folder / "x.pt", {"data.pkl": data, "version": b"3\n"}))


class Call:
    """Pickles as the call of a function."""

    def __init__(self, function, *arguments, **rest) -> None:
        self.reduced = (function, arguments, *rest.values())

    def __reduce__(self):
        return self.reduced

    def __call__(self):
        """Never called; a pickle may only call what can be called."""


def criterion():
    loss = ProCoLoss()
    loss.temperature = 0.1
    for name in ("estimator", "estimator_old"):
        bank = EstimatorCV()
        bank.Ave, bank.Amount, bank.kappa, bank.logc = torch.randn(K, P), torch.ones(K), torch.rand(K), torch.randn(K)
        setattr(loss, name, bank)
    return loss


def sprung(canary, reader, *arguments, **options) -> bool:
    """Whether `reader` makes the canary, whatever else happens to it."""
    with contextlib.suppress(Exception):  # the attack need not leave a usable file
        reader(*arguments, **options)
    made = canary.exists()
    canary.unlink(missing_ok=True)
    return made


def read_or_refuse(path):
    """The state, or None if the reader refused; any other exception is a leak and fails the test."""
    try:
        return read_proco_checkpoint(path)
    except ValueError as error:
        if type(error) is not ValueError or str(path) not in str(error):
            raise
        return None


CALLS = {
    "os.system": lambda c: Call(os.system, f"touch {c}"),
    "eval": lambda c: Call(eval, f"open({c!r}, 'w').close()"),
    "exec": lambda c: Call(exec, f"open({c!r}, 'w').close()"),
    "popen": lambda c: Call(subprocess.check_call, ["touch", c]),
    "method": lambda c: Call(Path.touch, Path(c)),
    "getattr": lambda c: Call(Call(getattr, Call(importlib.import_module, "os"), "system"), f"touch {c}"),
    "apply": lambda c: Call(list, Call(map, os.system, [f"touch {c}"])),
    "state": lambda c: Call(EstimatorCV, state=Call(os.system, f"touch {c}")),
    "elements": lambda c: Call(list, state=None, elements=iter([Call(os.system, f"touch {c}")])),
    "entries": lambda c: Call(collections.OrderedDict, state=None, elements=None, entries=iter([("a", Call(os.system, f"touch {c}"))])),
    "torch.hub": lambda c: Call(torch.hub._import_module, "hubconf", _program(c)),
    "torch.load": lambda c: Call(torch.load, _bare_pickle(c), None, Call(importlib.import_module, "pickle")),
    "rebuild": lambda c: Call(
        torch._utils._rebuild_parameter_with_state, torch.ones(1), False, None, {"data": Call(os.system, f"touch {c}")}
    ),
    "from type": lambda c: Call(torch._tensor._rebuild_from_type_v2, os.system, torch.Tensor, (f"touch {c}",), {}),
    "hooks": lambda c: Call(torch._utils._rebuild_parameter, torch.ones(1), False, Call(os.system, f"touch {c}")),
    "numpy": lambda c: Call(__import__("numpy")._core.multiarray._reconstruct, _Subclass(c), (0,), b"b"),
}


def _program(canary: str) -> str:
    path = Path(canary).with_name("hubconf.py")
    path.write_text(f"open({canary!r}, 'w').close()\n")
    return str(path)


def _bare_pickle(canary: str) -> str:
    path = Path(canary).with_name("inner.pt")
    torch.save(Call(os.system, f"touch {canary}"), path)
    return str(path)


class _Subclass(Call):
    def __init__(self, canary: str) -> None:
        super().__init__(os.system, f"touch {canary}")


def beside(loss, attack):
    return {"criterion_scl": loss, "optimizer": attack}


def before(loss, attack):
    return {"args": {"deep": [(attack,)]}, "criterion_scl": loss}


def as_key(loss, attack):
    return {"criterion_scl": loss, attack: 3}


def as_the_criterion(loss, attack):
    return {"criterion_scl": attack}


def as_the_whole(loss, attack):
    return attack


def in_the_criterion(loss, attack):
    loss.extra = attack
    return {"criterion_scl": loss}


def as_an_estimator(loss, attack):
    vars(loss)["estimator"] = attack
    return {"criterion_scl": loss}


def as_a_statistic(loss, attack):
    loss.estimator_old.kappa = attack
    return {"criterion_scl": loss}


def in_a_shape(loss, attack):
    loss.estimator_old.kappa = Call(torch._utils._rebuild_tensor_v2, torch.ones(K).untyped_storage(), 0, (attack,), (1,), False, None)
    return {"criterion_scl": loss}


def in_the_hooks(loss, attack):
    tensor = loss.estimator_old.kappa
    function, arguments = tensor.__reduce_ex__(2)
    loss.estimator_old.kappa = Call(function, *arguments[:5], attack)
    return {"criterion_scl": loss}


def as_the_temperature(loss, attack):
    loss.temperature = attack
    return {"criterion_scl": loss}


READ = [beside, before, as_key, in_the_criterion, in_the_hooks]
REFUSED = [as_the_criterion, as_the_whole, as_an_estimator, as_a_statistic, in_a_shape, as_the_temperature]


@pytest.mark.parametrize("place", [*READ, *REFUSED])
@pytest.mark.parametrize("protocol", [2, 5])
def test_a_call_anywhere_in_the_file(tmp_path, canary, place, protocol):
    loss, path = criterion(), tmp_path / "x.pt"
    truth = statistics(loss)
    torch.save(place(loss, Call(os.system, f"touch {canary}")), path, pickle_protocol=protocol)
    assert sprung(canary, torch.load, path, weights_only=False)
    state = read_or_refuse(path)
    assert not canary.exists()
    assert (state is not None) == (place in READ)
    if state:
        assert_equal(state, truth)


@pytest.mark.parametrize("place", [beside, as_a_statistic])
@pytest.mark.parametrize("name", CALLS)
def test_any_call(tmp_path, canary, name, place):
    path = tmp_path / "x.pt"
    torch.save(place(criterion(), CALLS[name](str(canary))), path)
    assert sprung(canary, torch.load, path, weights_only=False)
    state = read_or_refuse(path)
    assert not canary.exists()
    assert (state is not None) == (place is beside)


def text(value: str) -> bytes:
    return b"X" + len(value.encode()).to_bytes(4, "little") + value.encode()


# Pickles written by hand. %s is where the command goes; each is a whole pickle.
BYTES = {
    "GLOBAL": b"\x80\x02cos\nsystem\n%s\x85R.",
    "STACK_GLOBAL": b"\x80\x04" + text("os") + text("system") + b"\x93%s\x85R.",
    "dotted through torch._utils": b"\x80\x04"
    + text("torch._utils")
    + text("sys.modules.__class__")
    + b"\x930"
    + text("torch.serialization")
    + text("os.system")
    + b"\x93%s\x85R.",
    "dotted through an allowed class": b"\x80\x04" + text("torch.serialization") + text("os.system.__call__") + b"\x93%s\x85R.",
    "Python 2 name": b"\x80\x02cposix\nsystem\n%s\x85R.",
    "memo": b"\x80\x04" + text("os") + text("system") + b"\x93\x940N0h\x00%s\x85R.",
    "INST": b"(%sios\nsystem\n.",
    "OBJ": b"(cos\nsystem\n%so.",
    "NEWOBJ": b"\x80\x02ctests.compat.test_untrusted\nNewborn\n%s\x85\x81.",
    "NEWOBJ_EX": b"\x80\x04" + text("tests.compat.test_untrusted") + text("Newborn") + b"\x93)}" + text("command") + b"%ss\x92.",
    "inside a dict that is thrown away": b"\x80\x02}" + text("a") + b"cos\nsystem\n%s\x85Rs0N.",
    "after a mark that is thrown away": b"\x80\x02(cos\nsystem\n%s\x85R1N.",
    "BUILD": b"\x80\x02cos\nsystem\n%s\x85R}b.",
    "BUILD with a class": b"\x80\x02ccollections\nUserDict\n)\x81}" + text("data") + b"cos\nsystem\n%s\x85Rsb.",
}


def command(canary) -> bytes:
    return text(f"touch {canary}")


@pytest.mark.parametrize("name", BYTES)
def test_pickles_written_by_hand(tmp_path, canary, name):
    data = BYTES[name] % command(canary)
    assert sprung(canary, pickle.loads, data)
    path = write_records(tmp_path / "x.pt", {"data.pkl": data, "version": b"3\n"})
    assert read_or_refuse(path) is None
    assert not canary.exists()


def test_the_registry_of_extensions_is_not_used(tmp_path, canary):
    """EXT1 names an object by a number, under which the running program may have registered any."""
    copyreg.add_extension("os", "system", 240)
    try:
        data = b"\x80\x02\x82\xf0" + command(canary) + b"\x85R."
        assert sprung(canary, pickle.loads, data)  # leaves the function itself in the cache of the registry
        with pytest.raises(ValueError, match="operation EXT1 is not one"):
            read_bytes(tmp_path, data)
    finally:
        copyreg.remove_extension("os", "system", 240)


@pytest.mark.parametrize(
    "identity",
    [
        b"%s",  # the call alone, then as each part of what torch.save writes
        b"(%s" + text("x") + b"tQ",
        b"(" + text("storage") + b"%s" + text("0") + text("cpu") + b"K\x05tQ",
        b"(" + text("storage") + b"ctorch\nFloatStorage\n%s" + text("cpu") + b"K\x05tQ",
        b"(" + text("storage") + b"ctorch\nFloatStorage\n" + text("0") + b"%sK\x05tQ",
        b"(" + text("storage") + b"ctorch\nFloatStorage\n" + text("0") + text("cpu") + b"%stQ",
    ],
)
def test_a_call_in_a_persistent_id(tmp_path, canary, identity):
    """Swapped in for the storages of a real checkpoint. Only the location may be anything at all, as it is not looked at."""
    loss, path = criterion(), tmp_path / "x.pt"
    loss.estimator = loss.estimator_old
    marker = torch.ones(1)
    loss.estimator_old.kappa = Call(torch._utils._rebuild_tensor_v2, "swap", 0, (K,), (1,), False, None)
    torch.save({"criterion_scl": loss, "extra": marker}, path)
    parts = records(path)
    number = next(name for name in parts if name.startswith("data/") and len(parts[name]) == 4)
    parts["data/7"] = b"\0" * 4 * K
    attack = identity.replace(text("0"), text("7")) % (b"cos\nsystem\n" + command(canary) + b"\x85R")
    assert parts["data.pkl"].count(text("swap")) == 1
    parts["data.pkl"] = parts["data.pkl"].replace(text("swap"), attack)
    write_records(path, parts)
    assert number != "data/7"
    assert sprung(canary, torch.load, path, weights_only=False)
    state = read_or_refuse(path)
    assert not canary.exists()
    assert (state is not None) == (identity.endswith(b"%sK\x05tQ"))


def test_a_storage_that_names_another_record(tmp_path):
    """Keys stay inside the records of the archive."""
    loss, path = criterion(), tmp_path / "x.pt"
    torch.save({"criterion_scl": loss}, path)
    parts = records(path)
    assert parts["data.pkl"].count(text("0")) == 1
    for key in ("../data.pkl", "/etc/passwd", "", "0/", "é" * 3000):
        damaged = {**parts, "data.pkl": parts["data.pkl"].replace(text("0"), text(key))}
        with pytest.raises(ValueError, match=r"is missing|should have") as caught:
            read_proco_checkpoint(write_records(path, damaged))
        assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    ("offset", "shape", "strides"),
    [
        (0, (10**9, 10**9), (0, 0)),
        (1, (K,), (1,)),
        (K, (1,), (1,)),
        (10**30, (1,), (1,)),
        (0, (K,), (2,)),
        (0, (K,), (10**30,)),
        (-1, (K,), (1,)),
        (K - 1, (K,), (-1,)),
        (0, (-K,), (1,)),
        (0, (K,), ()),
        (0, (K,), (1, 1)),
        (0, (K, 10**30), (1, 0)),
        (0, (1,) * 100, (1,) * 100),
        (0, (float(K),), (1,)),
        (0, (True,) * 2, (1, 1)),
        (0.0, (K,), (1,)),
        (0, [K], [1]),
        (0, "5", "1"),
    ],
    ids=str,
)
def test_a_view_outside_of_its_storage(tmp_path, offset, shape, strides):
    """Neither memory that is not the tensor's, nor more memory than the file has."""
    loss, path = criterion(), tmp_path / "x.pt"
    function, arguments = loss.estimator_old.kappa.__reduce_ex__(2)
    loss.estimator_old.kappa = Call(function, arguments[0], offset, shape, strides, False, None)
    torch.save({"criterion_scl": loss}, path)
    with pytest.raises(ValueError, match=r"does not fit into|whole numbers that belong together|expected a (dense )?tensor"):
        read_proco_checkpoint(path)


def test_a_stride_that_does_not_matter(tmp_path):
    """One row: its stride is never taken, and may be anything."""
    loss, path = criterion(), tmp_path / "x.pt"
    function, arguments = torch.randn(2).__reduce_ex__(2)
    for bank in (loss.estimator, loss.estimator_old):
        bank.Ave = Call(function, arguments[0], 0, (1, 2), (10**30, 1), False, None)
        bank.Amount = bank.kappa = bank.logc = torch.ones(1)
    torch.save({"criterion_scl": loss}, path)
    assert read_proco_checkpoint(path).old.mean.shape == (1, 2)


def test_a_record_that_claims_to_be_larger_than_the_file(tmp_path):
    loss, path = criterion(), tmp_path / "x.pt"
    torch.save({"criterion_scl": loss}, path)
    raw = path.read_bytes()
    start = raw.index(b"PK\x01\x02")
    assert b"x/data.pkl" in raw[start : start + 60]
    path.write_bytes(raw[: start + 20] + b"\xf0\xff\xff\x7f" * 2 + raw[start + 28 :])  # compressed and plain size: nearly 2 GiB
    with pytest.raises(ValueError, match="larger than the file"):
        read_proco_checkpoint(path)


DEEP = {
    "tuples": b"N" + b"\x85" * DEPTH,
    "tuples as a key": b"}N" + b"\x85" * KEY_DEPTH + b"Ns",
    "lists": b"]" * DEPTH + b"a" * (DEPTH - 1),
    "dicts": b"}" + (b"K\x01}") * DEPTH + b"s" * DEPTH,
    "calls": b"ca\nb\n" + b")R" * DEPTH,
    "arguments": b"ca\nb\n" * DEPTH + b")R" + b"\x85R" * (DEPTH - 1),
    "states": b"ca\nb\n)R" * DEPTH + b"b" * (DEPTH - 1),
    "references": b"N" + b"Q" * DEPTH,
    "parameters": b"ctorch._utils\n_rebuild_parameter\n" * DEPTH + b"N" + b"\x85R" * DEPTH,
    "marks": b"(" * DEPTH + b"N" + b"t" * DEPTH,
}


@pytest.mark.parametrize("name", DEEP)
def test_deep_nesting(tmp_path, name):
    """As the criterion, and as a statistic."""
    path = tmp_path / "x.pt"
    write_records(path, {"data.pkl": b"\x80\x02}" + text("criterion_scl") + DEEP[name] + b"s."})
    assert read_or_refuse(path) is None
    loss = criterion()
    loss.estimator_old.kappa = "swap"
    torch.save({"criterion_scl": loss}, path)
    parts = records(path)
    parts["data.pkl"] = parts["data.pkl"].replace(text("swap"), DEEP[name])
    assert read_or_refuse(write_records(path, parts)) is None


def test_objects_that_contain_themselves(tmp_path):
    """A module wrapped in itself, and one whose attributes are its own attributes."""
    path = tmp_path / "x.pt"
    for state in (b"}" + text("module") + b"h\x00s", b"}q\x01" + text("_modules") + b"h\x01s"):
        write_records(path, {"data.pkl": b"\x80\x02}" + text("criterion_scl") + b"ca\nb\n)\x81q\x00" + state + b"bs."})
        assert read_or_refuse(path) is None


def test_no_reader_of_python_or_torch_is_used(tmp_path, monkeypatch):
    """The file is read with every unpickler and loader disabled."""
    loss, path = criterion(), tmp_path / "x.pt"
    truth = statistics(loss)
    torch.save({"criterion_scl": loss}, path)

    def forbidden(*_, **__):
        raise AssertionError("must not be called")

    with monkeypatch.context() as patch:
        for owner, name in [
            *((pickle, n) for n in ("load", "loads", "Unpickler", "_Unpickler", "_load", "_loads")),
            (torch, "load"),
            *((torch.serialization, n) for n in ("load", "_load", "_legacy_load", "_open_zipfile_reader")),
            (torch._C, "PyTorchFileReader"),
        ]:
            patch.setattr(owner, name, forbidden)
        assert_equal(read_proco_checkpoint(path), truth)


WATCH = """
import sys
from pairgrad.compat import read_proco_checkpoint
read_proco_checkpoint(sys.argv[1])  # what the libraries import late is imported now
seen = []
sys.addaudithook(lambda event, arguments: seen.append((event, *map(str, arguments[:1]))))
read_proco_checkpoint(sys.argv[1])
print(*sorted(set(seen)), sep="\\n")
"""


def test_the_interpreter_sees_one_file_opened_and_nothing_else(tmp_path, canary):
    """Audit events of Python itself, in a process of its own: no import, no lookup of a pickled name, no code compiled or run."""
    path = tmp_path / "x.pt"
    torch.save(before(criterion(), Call(os.system, f"touch {canary}")), path)
    done = subprocess.run([sys.executable, "-c", WATCH, str(path)], capture_output=True, text=True, check=False, timeout=1000)
    assert done.returncode == 0, done.stderr
    handle = re.compile(r"\('open', '\d+'\)")  # the file again, by its number
    assert [line for line in done.stdout.splitlines() if not handle.fullmatch(line)] == [str(("open", str(path)))]


@pytest.mark.parametrize("record", ["data.pkl", None])
def test_random_damage(tmp_path, canary, record):
    """One to four bytes changed, dropped or doubled, in the pickle or anywhere in the file: read or refused, nothing else."""
    loss, path = criterion(), tmp_path / "x.pt"
    torch.save(before(loss, Call(os.system, f"touch {canary}")), path)
    parts, whole, rng = records(path), path.read_bytes(), random.Random(20)
    read = 0
    for _ in range(TRIES):
        data = bytearray(parts[record] if record else whole)
        for _ in range(rng.randint(1, 4)):
            place = rng.randrange(len(data))
            data[place : place + rng.randint(0, 2)] = rng.choice([b"", bytes([rng.randrange(256)]), data[place : place + 1] * 2])
        if record:
            write_records(path, {**parts, record: bytes(data)})
        else:
            path.write_bytes(data)
        read += read_or_refuse(path) is not None
    assert 0 < read < TRIES


def test_random_bytes_are_not_a_pickle(tmp_path):
    rng = random.Random(21)
    for _ in range(TRIES):
        with contextlib.suppress(ValueError):
            read_bytes(tmp_path, rng.randbytes(rng.randrange(40)) + b".")


def test_long_names_are_cut_in_messages(tmp_path):
    with pytest.raises(ValueError, match="BUILD is applied to the name 'aaa") as caught:
        read_bytes(tmp_path, b"c" + b"a" * 10_000 + b"\nb\nNb.")
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b".", "ends before"),
        (b"NN.", "ends before"),
        (b"(N.", "ends before"),
        (b"N", "exhausted"),
        (b"R.", "where there is none"),
        (b"t.", "mark where there is none"),
        (b"q\x00.", "where there is none"),
        (b"h\x00.", "stored under 0"),
        (b"ca\nb\nNR.", "arguments of a call"),
        (b"ca\nb\nNb.", "BUILD is applied to the name 'a.b'"),
        (b"NNa.", "APPENDS is applied to None"),
        (b"NNNs.", "SETITEMS is applied to None"),
        (b"}(NNNu.", "key without a value"),
        (b"NN\x93.", "not a string"),
        (b"Pname\n.", "operation PERSID"),
        (b"\xff.", "opcode"),
        (b"S'\\q'\n.", "escape|STRING"),  # Python warns, and warnings are errors here
    ],
)
def test_pickles_that_make_no_sense(tmp_path, data, reason):
    with pytest.raises(ValueError, match=reason) as caught:
        read_bytes(tmp_path, data)
    assert caught.value.__suppress_context__

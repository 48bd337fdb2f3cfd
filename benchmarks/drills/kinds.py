"""The kinds of files that we open: valid ones, their readers, and hostile ones that are small and ask for much."""

from __future__ import annotations

import contextlib
import io
import json
import pickle
import random
import struct
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from paper.tests.records import cost_files
from PIL import Image

import pairgrad as pg
from benchmarks.drills.mutations import CALLS, Files, Inside, changed, in_checkpoint, in_header, in_json, in_png, in_zip, plain, png_chunk
from pairgrad.certificates.saved import SavedState, load_state, save_state
from pairgrad.cli.spec_values import load
from pairgrad.coherence.cache import kept_in
from pairgrad.compat import read_proco_checkpoint
from pairgrad_paper.data.arrays import read_npy, read_npz
from pairgrad_paper.data.cifar import CIFAR10, read_test
from pairgrad_paper.data.files import DataRoot
from pairgrad_paper.data.manifests import read_manifest, read_scood
from pairgrad_paper.data.pictures import decode
from pairgrad_paper.records import Record, read, record_of_run, records_of_costs, write
from pairgrad_paper.runs import RunDirectory, load_checkpoint

_EMPTY = b'{"x":{"dtype":"F32","shape":[0,4611686018427387904,4],"data_offsets":[0,0]}}'  # no element, and so no memory
_PRIME = 2**61 - 1  # of Python's hash of integers: all its multiples have the same


@dataclass
class Kind:
    """Files that are read by one reader.

    Attributes:
        what: they are.
        seeds: valid ones.
        reader: is given the folder, and the name of the file that was changed.
        inside: how they are changed with their checksums made right.
        hostile: opened as they are, and refused.
        harmless: opened as they are, and read or refused: they ask for much where a reader is careless, and for little where it is not.
    """

    what: str
    seeds: list[Files]
    reader: Callable[[Path, str], Any]
    inside: Inside = plain
    hostile: list[Files] = field(default_factory=list)
    harmless: list[Files] = field(default_factory=list)

    def example(self, index: int) -> tuple[Files, str]:
        """The files of this number, and which of them was changed."""
        if index < len(given := [*self.hostile, *self.harmless]):
            return given[index], next(iter(given[index]))
        rng = random.Random(f"{self.what} {index}")
        files = dict(rng.choice(self.seeds))
        name = rng.choice(list(files))
        with contextlib.suppress(ValueError, UnicodeError):  # JSON has no such value
            rng.choice([plain, self.inside])(rng, files, name)
        if rng.random() < 0.1:
            files[name] = changed(rng, files[name], files[name])
        return files, name


class Bank:
    """One of ProCo's, with its attributes."""

    def __init__(self) -> None:
        self.Ave, self.Amount, self.kappa, self.logc = torch.randn(3, 4), torch.ones(3), torch.rand(3), torch.randn(3)


class Criterion:
    def __init__(self) -> None:
        self.temperature, self.estimator, self.estimator_old = 0.1, Bank(), Bank()


def audited(x: torch.Tensor) -> torch.Tensor:
    """What the kept audit is of."""
    return (x * x).sum()


def kinds(directory: Path, few: bool) -> list[Kind]:
    """All kinds. The hostile files are left out of a few tries: they take seconds."""
    torch.manual_seed(7)
    found = [*_of_tensors(directory), *_of_data(directory), *_of_runs(directory)]
    for kind in found:
        if few:
            kind.hostile, kind.harmless = [], []
    return found


def _of_tensors(directory: Path) -> list[Kind]:
    x = torch.randn(3, 4)
    loss = pg.ProCoLoss(3, 4)
    bank = pg.ClassBank(3, 4)
    bank.update(x, torch.arange(3))
    states = [
        SavedState(x, torch.arange(3), bank, 0.1),
        SavedState(x, torch.arange(3), pg.ClassState(x, torch.ones(3)), None, x[:, 0], torch.ones(3)),
    ]
    tensors = [{"x.safetensors": save_state(directory / "saved", state).read_bytes()} for state in states]
    inputs = [{"x": x, "n": [1, 2.5, "t", None]}, (x.T, x[1:], x.bfloat16()), loss.state_dict()]
    proco = [_pt({"epoch": 3, "criterion_scl": Criterion()}, pickle_protocol=protocol) for protocol in (2, 4)]
    old = [{"x.pt": _pt(x, _use_new_zipfile_serialization=False)}]
    texts = [{"x": [1.5, 2], "n": 3, "deep": {"y": [[1, 2], [3, 4]]}}, [[1.5], 3, "t"]]

    def loaded(folder: Path, name: str) -> Any:
        return load(str(folder / name))

    kept = directory / "kept"
    cache = kept_in(kept, audited, (x,), {})
    assert cache is not None
    cache.keep(pg.audit(audited, (x,), effort="quick", consequences=False))
    (report,) = kept.glob("*.json")

    def found(folder: Path, name: str) -> None:
        cache = kept_in(folder, audited, (x,), {})
        if cache is None or cache.found is None:
            raise ValueError(f"{name} is made again")
        str(cache.found)

    return [
        Kind(
            "`.pt` files of inputs",
            [{"x.pt": _pt(value)} for value in inputs],
            loaded,
            in_zip,
            _archives("x.pt"),
            [{"x.pt": _pt([torch.zeros(10**6)[:1]] * 50_000)}],  # 200 kB, from a record that need be read only once
        ),
        Kind("`.pt` files of torch before 1.6", old, loaded),
        Kind(
            "checkpoints of ProCo",
            [{"x.pth": data} for data in proco],
            lambda f, n: read_proco_checkpoint(f / n),
            in_zip,
            _archives("x.pth"),
        ),
        Kind("learning states", tensors, lambda folder, name: load_state(folder / name), in_header, _safetensors(tensors[0])),
        Kind("`.safetensors` files of inputs", tensors, loaded, in_header, _safetensors(tensors[0]), [_safetensors_of(_EMPTY)]),
        Kind("`.json` files of inputs", [{"x.json": json.dumps(text).encode()} for text in texts], loaded, in_json, _texts("x.json")),
        Kind("kept audits", [{report.name: report.read_bytes()}], found, in_json, _texts(report.name)),
    ]


def _of_data(directory: Path) -> list[Kind]:
    chance = np.random.default_rng(7)
    pixels, rows = (chance.integers(0, 256, shape, dtype=np.uint8) for shape in ((2, 4, 5, 3), (2, 3072)))
    batch = f"{CIFAR10.folder}/test_batch"
    batches = [{batch: pickle.dumps({"data": rows, "labels": [3, 1]}, protocol)} for protocol in (2, 4)]
    arrays, stored, deflated = io.BytesIO(), io.BytesIO(), io.BytesIO()
    np.save(arrays, pixels)
    np.savez(stored, X=pixels, y=np.arange(2))
    np.savez_compressed(deflated, X=pixels[..., 0])
    lists = [
        {"list.txt": b"p0.png 0\nsub/p 1.png 3\n"},
        {"scood.txt": b'p0.png {\'sc_label\': -1}\nsub/p 1.png {"sc_label": 2, "x": [1]}\n'},
    ]
    pictures = []
    for kind, mode in (
        ("png", "RGB"),
        ("png", "P"),
        ("jpeg", "RGB"),
        ("gif", "P"),
        ("bmp", "RGB"),
        ("tiff", "RGB"),
        ("webp", "RGB"),
        ("ppm", "RGB"),
    ):
        data = io.BytesIO()
        Image.fromarray(chance.integers(0, 256, (9, 8, 3), dtype=np.uint8)).convert(mode).save(data, kind)
        pictures.append({f"picture.{kind}": data.getvalue()})

    place = directory / "pictures"
    (place / "sub").mkdir(parents=True)
    for name in ("p0.png", "sub/p 1.png"):
        (place / name).touch()

    def listed(folder: Path, name: str) -> Any:
        root = DataRoot(folder)
        if name == "list.txt":
            return read_manifest(root, folder / name, [place], name="x", origin="x")
        return read_scood(root, folder / name, place, name="x", origin="x")

    def mapped(folder: Path, name: str) -> Any:
        return read_npy(DataRoot(folder), folder / name).images.sum()

    side = 10_000  # more pixels than Pillow warns of, fewer than it refuses
    bomb = b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", struct.pack(">II5B", side, side, 1, 0, 0, 0, 0))
    bomb += png_chunk(b"IDAT", zlib.compress(bytes((1 + side // 8) * side))) + png_chunk(b"IEND", b"")
    return [
        Kind(
            "pickles of CIFAR",
            batches,
            lambda f, _: read_test(DataRoot(f), CIFAR10, verify=False),
            hostile=[{batch: data} for data in _pickles()],
        ),
        Kind("`.npy` files", [{"x.npy": arrays.getvalue()}], mapped, hostile=[{"x.npy": data} for data in _headers()]),
        Kind(
            "`.npz` files",
            [{"x.npz": each.getvalue()} for each in (stored, deflated)],
            lambda f, n: read_npz(DataRoot(f), f / n),
            in_zip,
            _arrays("x.npz"),
        ),
        Kind("lists of pictures", lists, listed, hostile=[{"scood.txt": b"p0.png {" + _equal_hashes() + b"}\n"}]),
        Kind(
            "pictures",
            pictures,
            lambda folder, name: decode(folder / name),
            in_png,
            [{"x.png": bomb}, {"x.png": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"}],
        ),
    ]


def _of_runs(directory: Path) -> list[Kind]:
    facts = {"recipe": {"name": "r", "epochs": 2}, "realization": "paired", "seed": 1, "data": {"class_counts": [3, 1]}}
    with RunDirectory.create(
        directory / "run", facts, {"versions": {"torch": "2"}, "data": {"notes": ["x"]}, "command": ["pairgrad", "train"]}
    ) as run:
        for step in (1, 2):
            run.log.write("step", step, loss=1 / step, time=1.5 * step)
            run.log.write("epoch", step, time=2.0 * step, accuracy=float("nan"))
        run.save(2, {"x": torch.randn(5), "deep": [{"n": (1, 2.5, None, b"b")}]}, extra={"generator": b"x"})
    evaluation = {"evaluation-00000002.json": json.dumps({"step": 2, "scores": {"energy": 0.5}, "recipe": "r"}).encode()}
    (at,) = run.checkpoints()
    saved = {f"{at.name}/{each.name}": each.read_bytes() for each in at.iterdir()}
    own = {each.name: each.read_bytes() for each in (run.run_path, run.log_path)} | evaluation
    record = write(directory / "record.jsonl", Record("r", "run", "title", facts, {}, ({"kind": "step", "step": 1}, {"kind": "end"})))
    costs = cost_files.stored(directory / "costs.json", cost_files.run())

    def recorded(folder: Path, name: str) -> Any:
        return RunDirectory.open(folder).events(lambda _: None), record_of_run(folder)

    return [
        Kind("checkpoints of runs", [saved], lambda folder, _: load_checkpoint(folder / at.name), in_checkpoint),
        Kind("`run.json`, `record.jsonl` and evaluations", [own], recorded, in_json, [{**own, **text} for text in _texts("run.json")]),
        Kind("records of the evidence", [{"r.jsonl": record.read_bytes()}], lambda f, n: read(f / n), in_json, _texts("r.jsonl")),
        Kind("records of costs", [{"c.json": costs.read_bytes()}], lambda f, n: records_of_costs(f / n), in_json, _texts("c.json")),
    ]


def _pt(value: Any, **options: Any) -> bytes:
    data = io.BytesIO()
    torch.save(value, data, **options)
    return data.getvalue()


def _zipped(parts: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", method) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return data.getvalue()


def _equal_hashes() -> bytes:
    return b", ".join(b"%d: 0" % (_PRIME * each) for each in range(1, 20_000))


def _pickles() -> list[bytes]:
    """Equal hashes as keys and as places of the memo, deep tuples, doubled tuples as values and as keys, long integers, calls."""
    keys = b"".join(b"\x8a\x0c" + (_PRIME * each).to_bytes(12, "little") + b"N" for each in range(1, 100_000))
    places = b"".join(b"p%d\n" % (_PRIME * each) for each in range(1, 100_000))
    parts = [
        b"}(" + keys + b"u",
        b"N" + places,
        b"N" + b"\x85" * 10**7,
        b")" + b"2\x86" * 1000,
        b"})" + b"2\x86" * 1000 + b"Ns",
        b"]" + b"]a" * 10**6,
    ]
    parts += [b"\x8b" + struct.pack("<i", 10**7) + b"\x7f" * 10**7, *CALLS]
    return [b"\x80\x02" + part + b"." for part in parts]


def _archives(name: str) -> list[Files]:
    """Archives with such pickles, tensors that share their memory, records that inflate, a crowded table of contents."""
    found = [*(_zipped({"x/data.pkl": data}) for data in _pickles()), _pt([torch.zeros(10**6)] * 10_000)]
    found += [_inflating(), _zipped({"x/data.pkl": bytes(10**8)}, zipfile.ZIP_DEFLATED)]
    crowded = _zipped({"x/data.pkl": b"N."})
    at = crowded.index(b"PK\x01\x02")
    end = crowded.index(b"PK\x05\x06")
    table = crowded[at:end] * 10**6
    return [
        {name: data}
        for data in [*found, crowded[:at] + table + crowded[end : end + 8] + struct.pack("<HHIIH", 65535, 65535, len(table), at, 0)]
    ]


def _inflating() -> bytes:
    """Zeros as torch.save writes them, and their record deflated, which it never does."""
    data = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(_pt(torch.zeros(10**8, dtype=torch.uint8)))) as saved, zipfile.ZipFile(data, "w") as archive:
        for name in saved.namelist():
            archive.writestr(name, saved.read(name), zipfile.ZIP_DEFLATED if "/data/" in name else zipfile.ZIP_STORED)
    return data.getvalue()


def _npy(shape: str, data: bytes = b"x" * 96, descr: str = "|u1") -> bytes:
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}}}\n".encode()
    return b"\x93NUMPY\x02\x00" + struct.pack("<I", len(header)) + header + data


def _headers() -> list[bytes]:
    shapes = [
        "(1000000000000, 4, 4, 3)",
        "(4611686018427387904, 4, 4, 3)",
        f"({10**30}, 4, 4, 3)",
        "(-1, 4, 4, 3)",
        "(" * 4000 + ")" * 4000,
        "(0, 4, 4, 3)",
    ]
    return [*map(_npy, shapes), _npy("(2, 4, 4, 3)", descr="|V2147483647"), b"\x93NUMPY\x02\x00" + b"\xff" * 4 + b" " * 10**7]


def _arrays(name: str) -> list[Files]:
    bomb = _npy("(25000000, 1, 1, 3)", bytes(75_000_000))
    found = [_zipped({"X.npy": data}) for data in _headers()]
    return [{name: data} for data in [*found, *(_zipped({"X.npy": bomb}, method) for method in (zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2))]]


def _safetensors(valid: Files) -> list[Files]:
    """Headers that are deep, that promise too much, or that are too long: that of a valid file, filled up with blanks."""
    ((name, data),) = valid.items()
    at = 8 + int.from_bytes(data[:8], "little")
    headers = [b"[" * 10**6, _EMPTY.replace(b"0,", b"", 1), data[8:at] + b" " * 2 * 10**7]
    return [*(_safetensors_of(header, data[at:], name) for header in headers), {name: b"\xff" * 8}]


def _safetensors_of(header: bytes, data: bytes = b"", name: str = "x.safetensors") -> Files:
    return {name: struct.pack("<Q", len(header)) + header + data}


def _texts(name: str) -> list[Files]:
    """JSON that is deep, long, or has long integers."""
    texts = [b"[" * depth + b"]" * depth for depth in (100, 900, 10**6)] + [
        b"[" + b"[]," * 10**6 + b"[]]",
        b"[" + b"0," * 5 * 10**6 + b"0]",
        b"9" * 10**6,
        b'{"n": ' + b"9" * 4000 + b"}",
    ]
    return [{name: text} for text in texts]

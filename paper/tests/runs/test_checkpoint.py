"""Checkpoints come back bit for bit, and any change of them is seen."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from pairgrad_paper.runs import (
    CheckpointError,
    RunError,
    check_checkpoint,
    checkpoints,
    latest_checkpoint,
    load_checkpoint,
    save_checkpoint,
)

from .equal import same

FILES = ("state.json", "state.safetensors")


def small_state(step: int = 0) -> dict[Any, Any]:
    return {
        "weights": torch.arange(120.0).reshape(10, 12) + step,
        "rate": 0.1,
        3: (None, b"\x00", float("inf")),
        "flags": torch.tensor(True),
    }


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def unexpected(error: CheckpointError) -> None:
    raise AssertionError(f"reported as damaged: {error}")


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(4, 5)).square().sum().backward()
        optimizer.step()


@pytest.mark.parametrize(
    "optimizer_of",
    [
        lambda parameters: torch.optim.Adam(parameters, lr=0.01, amsgrad=True),
        lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-4),
    ],
    ids=["Adam", "SGD"],
)
def test_training_goes_on_from_a_checkpoint_bit_for_bit(optimizer_of: Any, tmp_path: Path) -> None:
    def fresh() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        model = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 2))
        return model, optimizer_of(model.parameters())

    model, optimizer = fresh()
    train(model, optimizer, 3)
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "generator": torch.get_rng_state()}
    step, loaded, extra = load_checkpoint(save_checkpoint(tmp_path, 3, state, extra={"best": float("-inf"), "at": (1, 2)}))
    assert (step, extra) == (3, {"best": float("-inf"), "at": (1, 2)})
    assert same(loaded, state)
    assert list(loaded["optimizer"]["state"]) == list(range(6))

    train(model, optimizer, 3)
    torch.manual_seed(0)
    other, its_optimizer = fresh()
    other.load_state_dict(loaded["model"])
    its_optimizer.load_state_dict(loaded["optimizer"])
    torch.set_rng_state(loaded["generator"])
    train(other, its_optimizer, 3)
    assert same(other.state_dict(), model.state_dict())
    assert same(its_optimizer.state_dict(), optimizer.state_dict())


def test_a_generators_state_comes_back(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(7)
    torch.rand(5, generator=generator)
    _, state, _ = load_checkpoint(save_checkpoint(tmp_path, 0, generator.get_state()))
    expected = torch.rand(5, generator=generator)
    assert same(torch.rand(5, generator=torch.Generator().set_state(state)), expected)


def test_loaded_tensors_do_not_depend_on_the_file(tmp_path: Path) -> None:
    path = save_checkpoint(tmp_path, 0, {"x": torch.ones(100_000)})
    state = load_checkpoint(path).state
    with (path / "state.safetensors").open("r+b") as file:
        file.write(bytes(400_000))
    assert same(state["x"], torch.ones(100_000))


def test_the_files_are_where_the_format_says_and_readable_by_whom_the_umask_lets(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        path = save_checkpoint(tmp_path / "new" / "checkpoints", 120, small_state())
    finally:
        os.umask(before)
    assert path == tmp_path / "new" / "checkpoints" / "step-00000120"
    assert names(path) == [*FILES]
    assert [file.stat().st_mode & 0o777 for file in (path, *path.iterdir())] == [0o750, 0o640, 0o640]
    assert json.loads((path / "state.json").read_text())["format"] == 2
    assert names(path.parent) == ["step-00000120"]


def test_the_newest_are_kept_in_order_of_steps_not_of_names(tmp_path: Path) -> None:
    for step in (5, 99_999_999, 100_000_000, 100_000_001):
        save_checkpoint(tmp_path, step, small_state(step), keep=2)
    assert [path.name for path in checkpoints(tmp_path)] == ["step-100000000", "step-100000001"]
    loaded = latest_checkpoint(tmp_path, unexpected)
    assert loaded is not None
    assert loaded.step == 100_000_001


def test_no_checkpoint_is_none(tmp_path: Path) -> None:
    assert latest_checkpoint(tmp_path, unexpected) is None
    assert latest_checkpoint(tmp_path / "nowhere", unexpected) is None
    assert checkpoints(tmp_path / "nowhere") == []


def test_every_flipped_byte_is_refused(tmp_path: Path) -> None:
    path, bits = save_checkpoint(tmp_path, 7, small_state()), random.Random(1)
    for name in FILES:
        content = (path / name).read_bytes()
        for position in range(len(content)):
            changed = bytearray(content)
            changed[position] ^= 1 << bits.randrange(8)
            (path / name).write_bytes(changed)
            with pytest.raises(CheckpointError, match=name):
                load_checkpoint(path)
        (path / name).write_bytes(content)
    assert same(load_checkpoint(path).state, small_state())


@pytest.mark.parametrize("name", FILES)
def test_every_truncation_is_refused(name: str, tmp_path: Path) -> None:
    path = save_checkpoint(tmp_path, 7, small_state())
    content = (path / name).read_bytes()
    for length in {0, 1, 7, 8, 9, *range(0, len(content) - 1, 29), len(content) - 2}:
        (path / name).write_bytes(content[:length])
        with pytest.raises(CheckpointError, match=rf"{name} is damaged.*Nothing was removed: `pairgrad check RUN` examines"):
            load_checkpoint(path)
    (path / name).write_bytes(content + b" ")
    if name == "state.safetensors":
        with pytest.raises(CheckpointError, match=rf"{name} is damaged \({len(content) + 1} bytes, {len(content)} were written\)"):
            load_checkpoint(path)
    (path / name).unlink()
    with pytest.raises(CheckpointError, match=rf"{name} cannot be read \(No such file or directory\)"):
        load_checkpoint(path)


def test_damaged_ones_are_reported_newest_first_passed_over_and_kept(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        save_checkpoint(tmp_path, step, small_state(step), keep=3)
    (tmp_path / "step-00000003" / "state.safetensors").write_bytes(b"")
    (tmp_path / "step-00000002" / "state.json").unlink()
    reported: list[str] = []
    loaded = latest_checkpoint(tmp_path, lambda error: reported.append(str(error)))
    assert loaded is not None
    assert loaded.step == 1
    assert same(loaded.state, small_state(1))
    assert ["step-00000003" in reported[0], "step-00000002" in reported[1], len(reported)] == [True, True, 2]
    assert len(checkpoints(tmp_path)) == 3


def test_damaged_ones_do_not_count_among_those_kept_and_later_ones_stay(tmp_path: Path) -> None:
    for step in (1, 2, 4, 5):
        save_checkpoint(tmp_path, step, small_state(step), keep=9)
    for step in (2, 4, 5):
        (tmp_path / f"step-{step:08d}" / "state.safetensors").write_bytes(b"")
    save_checkpoint(tmp_path, 3, small_state(3), keep=2)
    assert [int(path.name[-1]) for path in checkpoints(tmp_path)] == [1, 2, 3, 4, 5]
    save_checkpoint(tmp_path, 4, small_state(4), keep=2)  # takes the place of the damaged one
    assert [int(path.name[-1]) for path in checkpoints(tmp_path)] == [3, 4, 5]
    loaded = latest_checkpoint(tmp_path, lambda error: None)
    assert loaded is not None
    assert loaded.step == 4


def test_the_one_just_written_stays_whatever_is_later(tmp_path: Path) -> None:
    for step in (7, 8, 9, 1, 2):
        save_checkpoint(tmp_path, step, small_state(step), keep=2 if step < 7 else 9)
    assert [int(path.name[-1]) for path in checkpoints(tmp_path)] == [1, 2, 7, 8, 9]
    save_checkpoint(tmp_path, 3, small_state(3), keep=2)
    assert [int(path.name[-1]) for path in checkpoints(tmp_path)] == [2, 3, 7, 8, 9]


def test_a_kill_while_an_old_one_is_removed_leaves_no_half_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_checkpoint(tmp_path, 1, small_state())

    def killed(path: Path, **_: object) -> None:
        if Path(path).exists():
            (Path(path) / "state.json").unlink()
            raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(tmp_path, 2, small_state(), keep=1)
    assert [path.name for path in checkpoints(tmp_path)] == ["step-00000002"]
    assert len(names(tmp_path)) == 2
    monkeypatch.undo()
    save_checkpoint(tmp_path, 3, small_state(), keep=1)
    assert names(tmp_path) == ["step-00000003"]


def test_one_of_the_same_step_is_replaced(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 1, small_state(10))
    save_checkpoint(tmp_path, 1, small_state(11), keep=1)
    assert names(tmp_path) == ["step-00000001"]
    assert same(load_checkpoint(tmp_path / "step-00000001").state, small_state(11))


@pytest.mark.parametrize("second", [False, True])
def test_a_kill_while_one_is_replaced_loses_neither(second: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped between the two renames, or after them."""
    save_checkpoint(tmp_path, 1, small_state(10))
    rename = os.rename

    def killed(source: Path, target: Path) -> None:
        if second or "replaced" in str(target):
            rename(source, target)
        if second == ("replaced" not in str(target)):
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "rename", killed)
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)
    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(tmp_path, 1, small_state(11))
    monkeypatch.undo()
    loaded = latest_checkpoint(tmp_path, unexpected)
    assert loaded is not None
    assert loaded.step == 1
    assert same(loaded.state, small_state(11 if second else 10))
    save_checkpoint(tmp_path, 2, small_state(2), keep=9)
    assert names(tmp_path) == ["step-00000001" if second else "step-00000001.replaced", "step-00000002"]


def test_leftovers_are_no_checkpoints_and_the_next_save_removes_them(tmp_path: Path) -> None:
    path = save_checkpoint(tmp_path, 1, small_state())
    shutil.copytree(path, tmp_path / ".step-00000009-abc.partial")
    (tmp_path / ".step-00000008-removed-1.partial").mkdir()
    shutil.copytree(path, tmp_path / "step-9")
    (tmp_path / "step-00000010").write_text("a file")
    assert [found.name for found in checkpoints(tmp_path)] == ["step-00000001"]
    save_checkpoint(tmp_path, 2, small_state())
    assert names(tmp_path) == ["step-00000001", "step-00000002", "step-00000010", "step-9"]


def test_links_are_not_followed(tmp_path: Path) -> None:
    path = save_checkpoint(tmp_path / "real", 5, small_state())
    folder = tmp_path / "linked"
    folder.mkdir()
    (folder / "step-00000005").symlink_to(path)
    assert checkpoints(folder) == []
    with pytest.raises(CheckpointError, match=rf"is a link: name the directory it leads to, {path}"):
        load_checkpoint(folder / "step-00000005")
    for name in FILES:
        copied = shutil.copytree(path, folder / f"of-{name}")
        (copied / name).unlink()
        (copied / name).symlink_to(path / name)
        with pytest.raises(CheckpointError, match=rf"{name} is a link"):
            load_checkpoint(copied)


def test_a_checkpoint_under_the_name_of_another_step_is_refused(tmp_path: Path) -> None:
    path = save_checkpoint(tmp_path, 5, small_state())
    path.rename(tmp_path / "step-00000006")
    with pytest.raises(CheckpointError, match=r"state\.json is of step 5, its directory's name says 6"):
        load_checkpoint(tmp_path / "step-00000006")
    (tmp_path / "step-00000006").rename(tmp_path / "best")
    assert load_checkpoint(tmp_path / "best").step == 5


def test_files_of_two_checkpoints_do_not_mix(tmp_path: Path) -> None:
    first, second = (save_checkpoint(tmp_path, step, small_state(step)) for step in (1, 2))
    shutil.copy(first / "state.safetensors", second / "state.safetensors")
    with pytest.raises(CheckpointError, match=r"SHA-256"):
        load_checkpoint(second)


def test_another_format_is_refused_by_its_number(tmp_path: Path) -> None:
    path = save_checkpoint(tmp_path, 5, small_state()) / "state.json"
    path.write_text(path.read_text().replace('"format": 2', '"format": 3'))
    with pytest.raises(CheckpointError, match=r"has format 3, this version reads 2"):
        load_checkpoint(path.parent)


def test_a_checkpoint_of_the_first_format_is_read_and_checked(tmp_path: Path) -> None:
    """It has no checksums of blocks, so damage is found and not located."""
    path = save_checkpoint(tmp_path, 5, small_state())
    document = json.loads((path / "state.json").read_text())
    del document["content"]["blocks"]
    plain = json.dumps(document["content"], sort_keys=True, separators=(",", ":"))
    document |= {"format": 1, "content_sha256": hashlib.sha256(plain.encode()).hexdigest()}
    (path / "state.json").write_text(json.dumps(document))
    assert same(load_checkpoint(path).state, small_state())
    flip(path / "state.safetensors", 200)
    with pytest.raises(CheckpointError, match=r"they differ\)"):
        load_checkpoint(path)


def test_damage_is_located(tmp_path: Path) -> None:
    path = save_checkpoint(tmp_path, 5, {"x": torch.zeros(50_000)})
    flip(path / "state.safetensors", 70_000)
    for look in (load_checkpoint, check_checkpoint):
        with pytest.raises(
            CheckpointError,
            match=r"state\.safetensors is damaged \(200\d+ bytes, .* SHA-256 is \w{12}\.\.\., \w{12}\.\.\. was written; they differ, "
            r"first between bytes 65536 and 131072\)\. Nothing was removed",
        ):
            look(path)


def test_a_directory_whose_name_is_not_utf8_is_a_place_like_any_other(tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    path = save_checkpoint(folder, 5, small_state())
    assert same(load_checkpoint(path).state, small_state())
    assert check_checkpoint(path) > 0


def test_what_another_version_of_safetensors_cannot_read_is_not_taken_for_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a resumed run would go back to an older checkpoint, or find none, while every byte is as it was written."""
    save_checkpoint(tmp_path, 1, small_state())

    def refused(content: bytes) -> dict[str, torch.Tensor]:
        raise safetensors.SafetensorError("unknown dtype")

    monkeypatch.setattr(safetensors.torch, "load", refused)
    with pytest.raises(
        RunError, match=r"is as it was written \(SHA-256 \w{12}\.\.\.\), and safetensors .* cannot read it \(unknown dtype\)"
    ):
        latest_checkpoint(tmp_path, unexpected)


def test_the_umask_is_found_out_without_setting_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Setting it is for all threads: a file that another one makes in that moment would be writable for all users."""
    monkeypatch.setattr(os, "umask", lambda mask: pytest.fail("the umask was set"))
    save_checkpoint(tmp_path, 1, small_state())


def test_what_may_not_be_read_is_not_taken_for_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a resumed run would go back to an older checkpoint for want of a permission."""
    save_checkpoint(tmp_path, 1, small_state())

    opened = os.open

    def refused(path: Any, *arguments: Any, **options: Any) -> int:
        if str(path).endswith("state.json"):
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, *arguments, **options)

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(RuntimeError, match=r"state\.json cannot be read \(Permission denied\): make it readable"):
        latest_checkpoint(tmp_path, unexpected)


def test_arguments_are_checked_before_anything_is_written(tmp_path: Path) -> None:
    for wrong, message in (
        ({"step": -1}, "step must be an integer >= 0"),
        ({"keep": 0}, "keep must be an integer >= 1"),
        ({"state": {1, 2}}, "state cannot be saved"),
        ({"extra": {"x": torch.ones(1)}}, r"extra\['x'\] is a tensor"),
        ({"extra": {"x": {1}}}, r"extra\['x'\] cannot be saved"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            save_checkpoint(tmp_path / "c", **{"step": 1, "state": small_state(), **wrong})
    assert not (tmp_path / "c").exists()


def test_a_failed_removal_is_a_warning_and_the_new_checkpoint_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_checkpoint(tmp_path, 1, small_state())

    def refused(path: Path, ignore_errors: bool = False) -> None:
        if not ignore_errors:
            raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(shutil, "rmtree", refused)
    with pytest.warns(RuntimeWarning, match=r"cannot remove .*step-00000001, which is no longer needed"):
        path = save_checkpoint(tmp_path, 2, small_state(2), keep=1)
    assert same(load_checkpoint(path).state, small_state(2))


def test_everything_is_on_the_disk_before_it_gets_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Power loss cannot be tried here; the order of the calls that guard against it can."""
    calls: list[str] = []
    fsync, rename = os.fsync, os.rename

    def synced(handle: int) -> None:
        calls.append("sync " + Path(os.readlink(f"/proc/self/fd/{handle}")).name.split(".")[-1])
        fsync(handle)

    def renamed(source: Path, target: Path) -> None:
        calls.append(f"rename to {Path(target).name}")
        rename(source, target)

    if not Path("/proc/self/fd").exists():
        pytest.skip("needs /proc to tell what is synced")
    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "rename", renamed)
    save_checkpoint(tmp_path / "checkpoints", 1, small_state())
    where = calls.index("rename to step-00000001")
    assert "sync safetensors" in calls[:where]
    assert calls[where - 1] == "sync partial"
    assert calls[where + 1 :] == ["sync checkpoints"]


def signed(path: Path, change: Callable[[Any], None]) -> None:
    """Change the content of a `state.json` and make its checksum right."""
    document = json.loads(path.read_text())
    change(document["content"])
    text = json.dumps(document["content"], sort_keys=True, separators=(",", ":"))
    document["content_sha256"] = hashlib.sha256(text.encode()).hexdigest()
    path.write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("step", "1"),
        ("step", -1),
        ("bytes", None),
        ("sha256", 5),
        ("blocks", 7),
        ("blocks", ["x"]),
        ("skeleton", json.loads("[" * 450 + "]" * 450)),
    ],
    ids=str,
)
def test_a_manifest_of_wrong_types_is_refused_though_its_checksum_is_right(name: str, value: Any, tmp_path: Path) -> None:
    path = save_checkpoint(tmp_path, 1, small_state())
    signed(path / "state.json", lambda content: content.__setitem__(name, value))
    with pytest.raises(CheckpointError, match=r"state\.json is damaged"):
        load_checkpoint(path)


def test_the_deepest_state_that_is_saved_is_read(tmp_path: Path) -> None:
    state: Any = {"x": torch.ones(1)}
    for number in range(99):
        state = [{"x": state}, (state,)][number % 2]
    assert same(load_checkpoint(save_checkpoint(tmp_path, 1, state)).state, state)


def test_what_would_not_be_read_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="integer of 400 digits"):
        save_checkpoint(tmp_path, 1, {"x": 10**399})
    assert list(tmp_path.iterdir()) == []

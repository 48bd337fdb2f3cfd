"""One process, or one of several."""

import os
import pickle

import pytest
import torch
from tests.distributed.ranks import LIMIT, agent, all_are_here, run
from torch import distributed

from pairgrad.distributed import RankError
from pairgrad_paper.training import Elsewhere, Process, ProcessError, Sharing


def test_what_torchrun_says(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    assert Process.here() == Process(0, 1, 0)
    assert Process.here().first
    for name, value in (("RANK", "5"), ("WORLD_SIZE", "8"), ("LOCAL_RANK", "1")):
        monkeypatch.setenv(name, value)
    assert Process.here() == Process(5, 8, 1)
    assert not Process.here().first


def test_alone_nothing_is_exchanged():
    numbers = torch.tensor([1.0, 2.0], requires_grad=True)
    process, cpu = Process(), torch.device("cpu")
    assert not process.mean(numbers).requires_grad
    assert (process.any(True), process.any(False)) == (True, False)
    process.barrier()
    with process.joined(cpu):
        assert not torch.distributed.is_initialized()


def test_each_process_has_a_gpu_of_its_own(monkeypatch):
    real = torch.zeros
    monkeypatch.setattr(torch, "zeros", lambda *size, device, **more: real(*size, **more))
    assert Process(5, 8, 1).device("cuda") == torch.device("cuda", 1)
    assert Process(5, 8, 1).device("cuda:3") == torch.device("cuda", 3)


def test_a_device_that_cannot_compute():
    with pytest.raises(ProcessError, match="device 'meta' cannot be used here"):
        Process().device("meta")


def test_a_device_without_the_dtype(monkeypatch):
    def zeros(*_, dtype, device):
        if dtype == torch.float64:
            raise TypeError("Cannot convert a MPS Tensor to float64 dtype")
        return torch.ones(1)

    monkeypatch.setattr(torch, "zeros", zeros)
    assert Process().device("mps") == torch.device("mps")
    with pytest.raises(ProcessError, match="device 'mps' cannot be used here: Cannot convert"):
        Process().device("mps", torch.float64)


def test_what_belongs_to_a_run_and_what_does_not():
    assert Sharing(2, "reduce", "fsdp", 5.0).facts() == {"class_parallel": 2, "exchange": "reduce", "wrap": "fsdp"}
    assert Sharing().without_effect() is None


def _outcome(function):
    try:
        return function()
    except (RankError, Elsewhere, ValueError, RuntimeError, ZeroDivisionError) as error:
        return type(error).__name__, str(error)


def _together():
    rank = distributed.get_rank()
    process = Process(rank, distributed.get_world_size())

    def fail():
        with process.together("a deed"):
            if rank == 1:
                raise ValueError("it cannot be done")

    def compute():
        with process.watched("computing"):
            raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    def lose():
        all_are_here("before it happens")
        if rank == 1:
            os._exit(1)
        with process.watched("gradients"):
            distributed.all_reduce(torch.zeros(1))

    found = {
        "failed": _outcome(fail),
        "any": [process.any(rank == 2), process.any(False)],
        "mean": process.mean(torch.tensor([float(rank)])).item(),
        "equal": _outcome(lambda: process.require_equal("a look", "the update", 5 + (rank == 1))),
        "computed": _outcome(compute),
        "groups": [
            None if group is None else distributed.get_process_group_ranks(group) for group in Process(rank, 4, sharing=Sharing(2)).groups
        ],
        "pickled": pickle.loads(pickle.dumps(Process(rank, 4))).rank,
    }
    found["lost"] = _outcome(lose)
    return found


@pytest.mark.distributed
def test_what_processes_do_together():
    parts = run(4, _together, expect=(0, 2, 3))
    for rank in (0, 2, 3):
        found = parts[rank]
        assert found["failed"] == ("Elsewhere", "another process failed in 'run: a deed', and says why")
        assert found["any"] == [True, False]
        assert found["mean"] == 1.5
        kind, text = found["equal"]
        assert kind == "RankError"
        assert "the update must be the same on all ranks" in text
        assert "rank 1 has 6, rank 0 has 5" in text
        assert found["computed"] == ("RuntimeError", "mat1 and mat2 shapes cannot be multiplied")
        assert found["groups"] == [[rank % 2, rank % 2 + 2], [rank // 2 * 2, rank // 2 * 2 + 1]]
        assert found["pickled"] == rank
        kind, text = found["lost"]
        assert kind == "RankError"
        assert text.startswith(f"rank {rank} of 4, in 'run: gradients'")
        assert "rank 1 gave no sign of life" in text


def _leaves(variables):
    """A group as torchrun would have it made, which one of two processes leaves with an error."""
    rank = distributed.get_rank()
    distributed.destroy_process_group()
    os.environ.update(RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank), **variables)
    process = Process.here(Sharing(timeout=LIMIT))

    def work():
        with process.joined(torch.device("cpu")):
            process.barrier()
            if rank == 1:
                raise ZeroDivisionError("nothing to divide by")
            process.barrier("the next update")

    return _outcome(work)


@pytest.mark.distributed
def test_a_process_that_leaves_says_why():
    with agent() as variables:
        first, second = run(2, _leaves, variables, expect=(0, 1))  # each leaves when it is done
    assert second == ("ZeroDivisionError", "nothing to divide by")
    assert first[0] == "RankError"
    assert "in 'run: the next update'" in first[1]
    assert "rank 1 stopped with ZeroDivisionError: nothing to divide by" in first[1]

"""One process, or one of several."""

import pytest
import torch

from pairgrad.experiments.training import Process
from pairgrad.experiments.training.process import ProcessError


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
    assert process.gathered(numbers) is numbers
    assert not process.mean(numbers).requires_grad
    assert (process.any(True, cpu), process.any(False, cpu)) == (True, False)
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

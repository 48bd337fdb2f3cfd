"""Global settings of torch that the audited function changes are put back, before each call and in the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from pairgrad.coherence import Subject, audit
from tests.coherence.functions import doubles


def _deterministic() -> tuple[Any, ...]:
    enabled, warns = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    return enabled, warns, torch.utils.deterministic.fill_uninitialized_memory  # pyright: ignore[reportAttributeAccessIssue]


def _global_hooks() -> int:
    """How many global hooks of this file a module calls."""
    seen: list[int] = []
    _counting.append(seen)
    torch.nn.Identity()(torch.ones(1))
    _counting.remove(seen)
    return len(seen)


_counting: list[list[int]] = []


def _count(*_: Any) -> None:
    for seen in _counting:
        seen.append(1)


def _tf32() -> None:
    torch.backends.cudnn.allow_tf32 = not torch.backends.cudnn.allow_tf32


SETTINGS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "default dtype": (torch.get_default_dtype, lambda: torch.set_default_dtype(torch.float16)),
    "default device": (torch.get_default_device, lambda: torch.set_default_device("meta")),
    "deterministic": (_deterministic, lambda: torch.use_deterministic_algorithms(True)),
    "deterministic, warns": (_deterministic, lambda: torch.use_deterministic_algorithms(True, warn_only=True)),
    "threads": (torch.get_num_threads, lambda: torch.set_num_threads(3)),
    "anomaly": (
        lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        lambda: torch.autograd.set_detect_anomaly(True, check_nan=False),
    ),
    "matmul precision": (torch.get_float32_matmul_precision, lambda: torch.set_float32_matmul_precision("medium")),
    "tf32": (lambda: torch.backends.cudnn.allow_tf32, _tf32),
    "precision of products": (
        lambda: (torch.get_float32_matmul_precision(), torch.backends.cuda.matmul.fp32_precision),
        lambda: setattr(torch.backends.cuda.matmul, "fp32_precision", "tf32"),
    ),
    "grad mode": (torch.is_grad_enabled, lambda: torch.set_grad_enabled(False)),
    "forward hooks": (_global_hooks, lambda: torch.nn.modules.module.register_module_forward_hook(_count)),
    "forward hooks, before": (_global_hooks, lambda: torch.nn.modules.module.register_module_forward_pre_hook(_count)),
}


@pytest.fixture(params=SETTINGS)
def setting(request: Any) -> Any:
    """How a setting is read and changed, and what it was."""
    read, change = SETTINGS[request.param]
    return read, change, read()


def test_a_setting_that_the_forward_changes_is_put_back(setting: Any) -> None:
    read, change, before = setting
    found = []

    def fn(x: torch.Tensor) -> torch.Tensor:
        found.append(read())
        y = x * 2
        change()
        return y

    with Subject(fn, doubles(1.0)) as subject:
        assert read() == before
        subject.outputs_at(subject.tensors)
        assert read() == before
        subject.pull(subject.tensors, (doubles(1.0),))
        subject.graph()
    assert read() == before
    if found[0] == before:  # the audit itself turns the grad mode on
        assert set(found) == {before}


def test_a_setting_that_the_backward_changes_is_put_back(setting: Any) -> None:
    read, change, before = setting

    class Changing(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
            change()
            return gradients[0] * 2

    with Subject(Changing.apply, doubles(1.0)) as subject:
        subject.pull(subject.tensors, (doubles(1.0),))
        assert read() == before
    assert read() == before


def test_settings_are_put_back_if_the_audit_raises(setting: Any) -> None:
    read, change, before = setting

    def fn(x: torch.Tensor) -> torch.Tensor:
        change()
        raise KeyError

    with pytest.raises(KeyError):
        audit(fn, doubles(1.0))
    assert read() == before


def test_settings_are_put_back_after_an_audit() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        torch.set_default_dtype(torch.float16)
        torch.use_deterministic_algorithms(True)
        torch.set_num_threads(3)
        return y

    before = torch.get_default_dtype(), torch.get_num_threads()
    assert audit(fn, doubles(1.0), effort="quick").passed
    assert (torch.get_default_dtype(), torch.get_num_threads()) == before
    assert not torch.are_deterministic_algorithms_enabled()


def test_the_number_of_threads_is_not_set_where_it_has_not_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(threads: int) -> None:
        raise AssertionError(threads)

    monkeypatch.setattr(torch, "set_num_threads", refuse)
    with Subject(torch.sin, doubles(1.0)) as subject:
        subject.outputs_at(subject.tensors)


def test_hooks_that_were_registered_before_stay_and_can_be_removed() -> None:
    handle = torch.nn.modules.module.register_module_forward_hook(_count)
    try:
        with Subject(lambda x: (torch.nn.modules.module.register_module_forward_hook(_count), x * 2)[1], doubles(1.0)):
            pass
        assert _global_hooks() == 1
    finally:
        handle.remove()
    assert _global_hooks() == 0

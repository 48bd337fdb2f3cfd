"""Every test of a recorded step ends with torch as it was."""

from __future__ import annotations

import pytest
import torch
from torch.autograd.function import _SingleLevelFunction
from torch.overrides import _get_current_function_mode_stack

PLACES = (
    (torch.Tensor, "backward"),
    (torch.autograd, "backward"),
    (torch.autograd, "grad"),
    (_SingleLevelFunction, "apply"),
    (torch._dynamo.eval_frame, "_callback_from_stance"),
    (torch._dynamo.eval_frame, "_maybe_set_eval_frame"),
)
BEFORE = [vars(owner).get(name) for owner, name in PLACES]


@pytest.fixture(autouse=True)
def _nothing_left():
    yield
    assert [vars(owner).get(name) for owner, name in PLACES] == BEFORE, "a recording has left something patched"
    assert _get_current_function_mode_stack() == []

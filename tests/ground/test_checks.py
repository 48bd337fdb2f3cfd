"""Checks of arguments at the borders of what they take, and the sentences they say beyond them."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from pairgrad.ground import checks
from pairgrad.ground.checks import LARGEST


def refused(kind: type[Exception], words: str) -> Any:
    return pytest.raises(kind, match=f"^{re.escape(words)}")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (torch.zeros(2, 3), "a float32 tensor of shape (2, 3) on cpu"),
        (np.zeros(4, np.int16), "a int16 array of shape (4,)"),
        (True, "True (bool)"),
        (10**40 - 1, f"{10**40 - 1} (int)"),
        (10**40, "an integer of 133 bits (int)"),
        (-(10**5000), f"an integer of {(10**5000).bit_length()} bits (int)"),
        ("x" * 98, f"'{'x' * 98}' (str)"),  # with its quotes 100 characters
        ("x" * 99, f"'{'x' * 96}... (str)"),
    ],
    ids=lambda value: repr(value)[:20] if not isinstance(value, int) or abs(value) < 10**9 else "large",
)
def test_what_came_in_a_few_words(value: Any, words: str) -> None:
    assert checks.describe(value) == words


def test_of_a_class_that_cannot_be_shown() -> None:
    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError

    assert checks.describe(Broken()) == "an object of class Broken (Broken)"


def test_integers() -> None:
    assert torch.iinfo(torch.int64).max == LARGEST
    assert checks.integer_at_least("n", np.int32(3), 3) == 3
    assert checks.integer_at_least("n", torch.tensor(7), 3) == 7
    assert checks.integer_at_least("n", LARGEST, 0) == LARGEST
    assert checks.integer_at_least("n", 5, 0, most=5) == 5
    for value, kind, words in (
        (2, ValueError, "n must be an integer >= 3, got 2: at least a triangle"),
        (True, TypeError, "n must be an integer >= 3, got True (bool)"),
        (4.0, TypeError, "n must be an integer >= 3, got 4.0 (float)"),
        (torch.tensor(True), TypeError, "n must be an integer >= 3, got a bool tensor"),
        (torch.tensor(4, device="meta"), TypeError, "n must be an integer >= 3, got a int64 tensor"),
        (LARGEST + 1, ValueError, f"n must be an integer from 3 to 2^63 - 1, got {LARGEST + 1}"),
    ):
        with refused(kind, words):
            checks.integer_at_least("n", value, 3, hint="at least a triangle")
    with refused(ValueError, "n must be an integer from 0 to 5, got 6"):
        checks.integer_at_least("n", 6, 0, most=5)
    with refused(TypeError, f"n must be an integer >= {-LARGEST}, got 'a'"):
        checks.integer_at_least("n", "a", -LARGEST)
    with refused(TypeError, "n must be an integer, got 'a'"):  # from -2^63 on there is no lower limit worth a word
        checks.integer_at_least("n", "a", -LARGEST - 1)


def test_exact_numbers() -> None:
    assert checks.exact_number("nu", Fraction(1, 3)) == Fraction(1, 3)
    assert checks.exact_number("nu", 0.1) == Fraction(0.1)
    assert checks.exact_number("nu", np.float32(0.5)) == Fraction(1, 2)
    assert checks.exact_number("nu", 2, least=2) == 2
    for value, kind, words in (
        (-1e-300, ValueError, "nu must be >= 0, got -1e-300"),
        (math.inf, ValueError, "nu must be a finite number >= 0, got inf"),
        (10**400, ValueError, "nu must be a finite number >= 0, got an integer of"),
        (False, TypeError, "nu must be a real number >= 0, got False (bool)"),
        ("1", TypeError, "nu must be a real number >= 0, got '1' (str)"),
    ):
        with refused(kind, words):
            checks.exact_number("nu", value)


def test_real_numbers() -> None:
    assert checks.real_number("t", np.float64(0.5), "a finite number") == 0.5
    assert checks.real_number("t", 3, "a number > 2", lambda v: v > 2) == 3.0
    for value, kind in ((math.nan, ValueError), (10**400, ValueError), (True, TypeError), ("3", TypeError), (3j, TypeError)):
        with refused(kind, "t must be a finite number, got "):
            checks.real_number("t", value, "a finite number")
    with refused(ValueError, "t must be a finite number, got 'x' (str)"):
        checks.real_number("t", "x", "a finite number", kind=ValueError)


def test_flags_and_choices() -> None:
    assert checks.boolean("flag", np.True_) is True
    assert checks.optional_boolean("flag", None) is None
    assert checks.optional_boolean("flag", np.False_) is False
    with refused(TypeError, "flag must be True or False, got 'no' (str): leave it out"):
        checks.boolean("flag", "no", hint="leave it out")
    with refused(TypeError, "flag must be True, False or None, got 1 (int)"):
        checks.optional_boolean("flag", 1)
    assert checks.one_of("how", "a", ("a", "b")) == "a"
    with refused(ValueError, "how must be one of 'a', 'b', got 'c'"):
        checks.one_of("how", "c", ("a", "b"))
    with refused(ValueError, "how must be one of 'a', 'b', got 3 (int)"):
        checks.one_of("how", 3, ("a", "b"))


def test_dtypes() -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        assert checks.computing_dtype("dtype", dtype) == torch.float32
    assert checks.computing_dtype("dtype", torch.float64) == torch.float64
    with refused(TypeError, "dtype must be torch.float32, torch.float64, torch.float16 or torch.bfloat16, got torch.int64"):
        checks.computing_dtype("dtype", torch.int64)
    assert checks.wide_dtype("dtype", torch.float32) == torch.float32
    with refused(TypeError, "dtype must be torch.float32 or torch.float64, got torch.float16 (dtype): too narrow"):
        checks.wide_dtype("dtype", torch.float16, hint="too narrow")
    with refused(TypeError, "x must be a dense tensor, got one of layout torch.sparse_coo: use x.to_dense()"):
        checks.floating_tensor("x", torch.eye(2).to_sparse())


def test_shapes() -> None:
    assert checks.shape_of("shape", [2, 0]) == torch.Size([2, 0])
    assert checks.shape_of("shape", (2**30, 2**29)) == torch.Size([2**30, 2**29])
    with refused(ValueError, "shape must have fewer than 2^60 elements, got (1073741824, 1073741824)"):
        checks.shape_of("shape", (2**30, 2**30))
    with refused(ValueError, "shape[1] must be an integer >= 0, got -1"):
        checks.shape_of("shape", (2, -1))
    with refused(TypeError, "shape must be a tuple of integers >= 0, got 3 (int): e.g. (3,)"):
        checks.shape_of("shape", 3)


def test_generators_and_devices() -> None:
    generator = torch.Generator()
    assert checks.generator_or_none("generator", generator) is generator
    assert checks.generator_or_none("generator", None) is None
    with refused(TypeError, "generator must be a torch.Generator or None, got 3 (int)"):
        checks.generator_or_none("generator", 3)
    assert checks.device_or_none("device", None) is None
    assert checks.device_or_none("device", torch.device("meta")) == torch.device("meta")
    assert checks.device_or_none("device", "cpu") == torch.device("cpu")
    for value in (0, 127):  # indices of an accelerator
        accelerator = torch.accelerator.current_accelerator()
        if accelerator is None:
            with refused(ValueError, f"device must be a torch.device or its name, such as 'cpu' or 'cuda:0', got {value} (int)"):
                checks.device_or_none("device", value)
        else:
            assert checks.device_or_none("device", value) == torch.device(accelerator.type, value)
    for value in (-1, 128, True, "nowhere", 0.0):
        with refused(ValueError, "device must be a torch.device or its name"):
            checks.device_or_none("device", value)


def test_values_are_looked_at_where_that_is_free() -> None:
    x = torch.zeros(2)
    assert checks.readable(x)
    assert not checks.readable(x.to("meta"))
    seen: list[bool] = []

    def look(row: torch.Tensor) -> torch.Tensor:
        seen.extend([checks.readable(row), checks.inside_torch_func()])
        return row

    torch.func.vmap(look)(x[:, None])
    assert seen == [False, True]
    assert not checks.inside_torch_func()
    checks.assert_later(torch.tensor(True), "fine")
    with pytest.raises(RuntimeError, match="not fine"):
        checks.assert_later(torch.tensor(False), "not fine")

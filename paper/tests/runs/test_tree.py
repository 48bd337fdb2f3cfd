"""Trees come back as they went, and what cannot be saved is named."""

from __future__ import annotations

import json
import math
from collections import OrderedDict, defaultdict, namedtuple
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pairgrad_paper.runs import flatten, unflatten

from .equal import same

DTYPES = (
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
)


def through_json(state: Any) -> Any:
    tensors, skeleton = flatten(state)
    return unflatten(tensors, json.loads(json.dumps(skeleton, allow_nan=False)))


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
keys = st.text() | st.integers()
trees = st.recursive(
    scalars,
    lambda children: (
        st.lists(children, max_size=4) | st.lists(children, max_size=4).map(tuple) | st.dictionaries(keys, children, max_size=4)
    ),
    max_leaves=20,
)


@settings(max_examples=80, deadline=None)
@given(trees)
def test_any_tree_of_plain_values_comes_back(tree: Any) -> None:
    back = through_json(tree)
    assert same(_without_payload(tree), _without_payload(back))


def _without_payload(tree: Any) -> Any:
    """A NaN is a NaN: which of them is not kept."""
    if isinstance(tree, float) and math.isnan(tree):
        return math.nan
    if isinstance(tree, dict):
        return {key: _without_payload(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(_without_payload(item) for item in tree)
    return tree


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
def test_tensors_of_every_dtype_and_shape_come_back(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = torch.randint(0, 2, shape).to(dtype)
    assert same(through_json(tensor), tensor)


def test_bits_of_special_floats_stay() -> None:
    special = torch.tensor([math.nan, -math.nan, math.inf, -math.inf, -0.0, 5e-324, 0.1], dtype=torch.float64)
    assert same(through_json([special, special.bfloat16()]), [special, special.bfloat16()])


def test_int_keys_and_str_keys_that_look_alike_stay_apart() -> None:
    state = {0: torch.zeros(1), "0": torch.ones(1), "a": {"b']['c": torch.full((1,), 2.0)}, "a']['b": {"c": torch.full((1,), 3.0)}}
    tensors, _ = flatten(state)
    assert len(tensors) == 4
    assert same(through_json(state), state)


def test_tensor_names_are_the_expressions_that_reach_them() -> None:
    state = {"optimizer": {"state": {0: {"exp_avg": torch.ones(2)}}}, "list": [(torch.zeros(1),)]}
    tensors, _ = flatten(state)
    for name, tensor in tensors.items():
        assert eval(name, {"state": state}).data_ptr() == tensor.data_ptr()


def test_shared_strided_expanded_and_negated_tensors_become_separate_contiguous_ones() -> None:
    base = torch.arange(12.0).reshape(3, 4)
    weight = torch.nn.Parameter(torch.ones(2))
    negated = torch._neg_view(torch.ones(3))  # pyright: ignore[reportPrivateImportUsage]
    assert negated.is_neg()
    assert negated.is_contiguous()
    state = [base, base.t(), base[1:], base.expand(2, 3, 4), base[:0], base[:0], weight, weight.detach(), negated]
    tensors, skeleton = flatten(state)
    addresses = [tensor.untyped_storage().data_ptr() for tensor in tensors.values() if tensor.numel()]
    assert len(set(addresses)) == len(addresses)
    assert all(tensor.is_contiguous() and not tensor.requires_grad and not tensor.is_neg() for tensor in tensors.values())
    assert same(unflatten(tensors, skeleton), [tensor.detach() for tensor in state])
    assert tensors["state[0]"].data_ptr() == base.data_ptr(), "a tensor that can be written as it is was copied"


def test_a_modules_state_dict_keeps_its_class_and_versions() -> None:
    state = torch.nn.BatchNorm1d(3).state_dict()
    back = through_json(state)
    assert isinstance(back, OrderedDict)
    assert vars(back)["_metadata"][""] == {"version": 2}
    assert same(back, state)


Point = namedtuple("Point", "x y")
ITSELF: list[Any] = []
ITSELF.append(ITSELF)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"a": [1, {2: {3}}]}, r"^state\['a'\]\[1\]\[2\] cannot be saved: it is \{3\} \(builtins\.set\).*leave it out"),
        ({"rate": np.float64(0.5)}, r"^state\['rate'\] .*numpy\.float64.*float\(\.\.\.\)"),
        ({"n": np.int64(1)}, r"^state\['n'\] .*numpy\.int64"),
        ({"p": Point(1, 2)}, r"^state\['p'\] .*plain tuple"),
        ({"size": torch.zeros(2, 3).shape}, r"^state\['size'\] .*torch\.Size.*plain tuple"),
        ({"d": defaultdict(int)}, r"^state\['d'\] .*plain dict"),
        ({"a": {(1, 2): 3}}, r"^state\['a'\] cannot be saved: its key \(1, 2\) \(builtins\.tuple\)"),
        ({True: 3}, r"^state cannot be saved: its key True"),
        ({"z": torch.zeros(2, dtype=torch.complex64)}, r"^state\['z'\] .*complex64"),
        ({"s": torch.eye(2).to_sparse()}, r"^state\['s'\] .*sparse_coo"),
        ({"m": torch.zeros(2, device="meta")}, r"^state\['m'\] .*meta"),
        (ITSELF, r"^state\[0\]\[0\].*nested deeper than 100 levels"),
    ],
)
def test_what_cannot_be_saved_is_named(state: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        flatten(state)


@pytest.mark.parametrize(
    ("skeleton", "message"),
    [
        ({"tensor": "state['y']"}, r"state: the tensor \"state\['y'\]\" is missing"),
        ({"dict": [["x", 1]]}, r"no place in the skeleton for the tensor 'x' \(1 of 1"),
        ({"dict": [["x"]]}, r"state: \['x'\].* is not a key and a value"),
        ({"dict": [[None, {"tensor": "x"}]]}, "is not a key and a value"),
        ({"list": [{"set": []}]}, r"state\[0\]: \{'set': \[\]\}"),
        ({"list": [], "tuple": []}, "is not part of a skeleton"),
        ({"float": "12"}, "is not part of a skeleton"),
        ([1], "is not part of a skeleton"),
        ({"bytes": "0g"}, "hexadecimal"),
    ],
)
def test_a_skeleton_that_is_none_or_of_other_tensors_is_refused(skeleton: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        unflatten({"x": torch.zeros(1)}, skeleton)

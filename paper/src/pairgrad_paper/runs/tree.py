"""Nested training states as named tensors and a skeleton in JSON, and back, bit for bit.

In the skeleton None, booleans, integers, finite floats and strings stand for themselves; everything else is an object with one key that
names its kind, such as `{"tuple": [...]}`. Dicts are lists of pairs, so that their order and integer keys survive. A tensor is
`{"tensor": name}`, and its name is the expression that reaches it: `state['optimizer']['state'][0]['exp_avg']`.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from pairgrad.ground import describe

DTYPES = (
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
)
ROOT = "state"
_DEEPEST = 100  # levels; a container that contains itself ends here and not in a RecursionError
_SEQUENCES: dict[type, str] = {list: "list", tuple: "tuple"}
_NOT_FINITE = ("nan", "inf", "-inf")
_KNOWN = "tensors, ints, floats, bools, None, str, bytes, and dicts, lists and tuples of them are saved"


def flatten(state: Any) -> tuple[dict[str, torch.Tensor], Any]:
    """The tensors of `state` by name, and its skeleton.

    The tensors are on the CPU, detached, contiguous and share no memory with one another; only those that are not so are copied.
    Dicts may have str and int keys. An OrderedDict stays one, with the `_metadata` of a module's state_dict.

    Raises:
        TypeError: something in the tree is of another type; the message says where.

    Examples:
        >>> import torch
        >>> tensors, skeleton = flatten({"lr": 0.1, "state": {0: (torch.zeros(2), None)}})
        >>> list(tensors)
        ["state['state'][0][0]"]
        >>> skeleton
        {'dict': [['lr', 0.1], ['state', {'dict': [[0, {'tuple': [{'tensor': "state['state'][0][0]"}, None]}]]}]]}
    """
    tensors, skeleton = survey(state)
    owned: set[int] = set()
    return {name: _apart(tensor, owned) for name, tensor in tensors.items()}, skeleton


def survey(state: Any, root: str = ROOT) -> tuple[dict[str, torch.Tensor], Any]:
    """`flatten` with the tensors of `state` themselves: nothing is copied or moved."""
    tensors: dict[str, torch.Tensor] = {}
    return tensors, _skeleton(state, root, tensors, 0)


def unflatten(tensors: Mapping[str, torch.Tensor], skeleton: Any) -> Any:
    """The tree that `flatten` took apart.

    Raises:
        ValueError: the skeleton is none, or it and the tensors do not belong together; the message says where.
    """
    left = set(tensors)
    tree = _tree(skeleton, ROOT, tensors, left)
    if left:
        raise ValueError(f"no place in the skeleton for the tensor {min(left)!r} ({len(left)} of {len(tensors)} tensors have none)")
    return tree


def _skeleton(value: Any, path: str, tensors: dict[str, torch.Tensor], depth: int) -> Any:
    if depth > _DEEPEST:
        raise TypeError(f"{path[:80]}... is nested deeper than {_DEEPEST} levels: does it contain itself?")
    kind = type(value)
    if value is None or kind in (bool, int, str):
        return value
    if kind is float:
        return value if math.isfinite(value) else {"float": str(value)}
    if kind is bytes:
        return {"bytes": value.hex()}
    if isinstance(value, torch.Tensor):
        tensors[path] = _checked(value, path)
        return {"tensor": path}
    if kind in _SEQUENCES:
        return {_SEQUENCES[kind]: [_skeleton(item, f"{path}[{i}]", tensors, depth + 1) for i, item in enumerate(value)]}
    if kind in (dict, OrderedDict):
        pairs = [[key, _skeleton(item, f"{path}[{key!r}]", tensors, depth + 1)] for key, item in _items(value, path)]
        if kind is dict:
            return {"dict": pairs}
        metadata = getattr(value, "_metadata", None)
        return {"ordered": pairs, "metadata": _skeleton(metadata, f"{path}._metadata", tensors, depth + 1)}
    raise TypeError(f"{path} cannot be saved: it is {_shown(value)}; {_KNOWN}. {_advice(value)}")


def _items(mapping: dict[Any, Any], path: str) -> Iterator[tuple[str | int, Any]]:
    for key, item in mapping.items():
        if type(key) not in (str, int):
            raise TypeError(f"{path} cannot be saved: its key {_shown(key)} is neither a str nor an int")
        yield key, item


def _checked(tensor: torch.Tensor, path: str) -> torch.Tensor:
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout != torch.strided or tensor.is_meta or tensor.is_quantized:
        raise TypeError(
            f"{path} cannot be saved: it is a {type(tensor).__name__} of layout {tensor.layout} on {tensor.device}, and only plain dense tensors are. "
            "Save a dense copy of it"
        )
    if tensor.dtype not in DTYPES:
        names = ", ".join(str(dtype).removeprefix("torch.") for dtype in DTYPES)
        raise TypeError(
            f"{path} cannot be saved: it is {describe(tensor)}, and the dtypes {names} are. Save it as one of these, e.g. by .view()"
        )
    return tensor


def _apart(tensor: torch.Tensor, owned: set[int]) -> torch.Tensor:
    """The tensor as safetensors takes it; `owned` has the addresses of the memory that is already spoken for."""
    tensor = tensor.detach().to("cpu").resolve_neg().contiguous()
    address = tensor.untyped_storage().data_ptr()
    if address in owned:
        return tensor.clone()
    owned.add(address)
    return tensor


def _shown(value: Any) -> str:
    text = repr(value)
    return f"{text if len(text) <= 60 else text[:60] + '...'} ({type(value).__module__}.{type(value).__qualname__})"


def _advice(value: Any) -> str:
    for plain in (bool, int, float, str, bytes, tuple, list, dict):
        if isinstance(value, plain):
            return f"Make it a plain {plain.__name__}: {plain.__name__}(...)"
    return "Make it one of these, or leave it out"


def _tree(skeleton: Any, path: str, tensors: Mapping[str, torch.Tensor], left: set[str]) -> Any:
    if skeleton is None or type(skeleton) in (bool, int, float, str):
        return skeleton
    match skeleton:
        case {"float": str(text)} if len(skeleton) == 1 and text in _NOT_FINITE:
            return float(text)
        case {"bytes": str(text)} if len(skeleton) == 1:
            return bytes.fromhex(text)
        case {"tensor": str(name)} if len(skeleton) == 1:
            if name not in tensors:
                raise ValueError(f"{path}: the tensor {name!r} is missing")
            left.discard(name)
            return tensors[name]
        case {"list": list(items)} if len(skeleton) == 1:
            return [_tree(item, f"{path}[{i}]", tensors, left) for i, item in enumerate(items)]
        case {"tuple": list(items)} if len(skeleton) == 1:
            return tuple(_tree(item, f"{path}[{i}]", tensors, left) for i, item in enumerate(items))
        case {"dict": list(pairs)} if len(skeleton) == 1:
            return dict(_pairs(pairs, path, tensors, left))
        case {"ordered": list(pairs), "metadata": metadata} if len(skeleton) == 2:
            ordered = OrderedDict(_pairs(pairs, path, tensors, left))
            if metadata is not None:
                ordered._metadata = _tree(metadata, f"{path}._metadata", tensors, left)  # pyright: ignore[reportAttributeAccessIssue]
            return ordered
    raise ValueError(f"{path}: {_shown(skeleton)} is not part of a skeleton")


def _pairs(pairs: list[Any], path: str, tensors: Mapping[str, torch.Tensor], left: set[str]) -> Iterator[tuple[str | int, Any]]:
    for pair in pairs:
        if not isinstance(pair, list) or len(pair) != 2 or type(pair[0]) not in (str, int):
            raise ValueError(f"{path}: {_shown(pair)} is not a key and a value")
        yield pair[0], _tree(pair[1], f"{path}[{pair[0]!r}]", tensors, left)

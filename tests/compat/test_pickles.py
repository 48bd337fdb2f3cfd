"""What the reader of pickles writes down: a record of each call, name and value, of which nothing is executed."""

from __future__ import annotations

import os
import pickle

import pytest

from pairgrad.compat.pickles import Construction, Key, Persistent, Symbol, read_pickle


class Call:
    """Pickles as the call of a function."""

    def __init__(self, function, *arguments, **rest) -> None:
        self.reduced = (function, arguments, *rest.values())

    def __reduce__(self):
        return self.reduced


def test_what_is_written_down():
    """The records of one pickle with everything in it."""
    data = pickle.dumps(
        [
            Call(os.system, "x", state={"a": 1}),
            Call(list, state=None, elements=iter([1, 2])),
            {(1, 2): 3, None: 4},
            {5},
            frozenset({6}),
            print,
        ],
        protocol=4,
    )
    call, filled, mapping, plain, frozen, function = read_pickle(data)
    assert isinstance(call, Construction)
    assert call.callee == Symbol(os.system.__module__, "system")
    assert (call.arguments, call.states) == (("x",), [{"a": 1}])
    assert filled.elements == [1, 2]
    key, none = mapping
    assert isinstance(key, Key)
    assert key.value == (1, 2)
    assert none is None
    assert (plain, frozen) == ([5], [6])
    assert function == Symbol("builtins", "print")
    assert isinstance(read_pickle(b"N)\x86Q."), Persistent)
    made = read_pickle(b"\x80\x04ca\nb\n)}" + b"X\x01\0\0\0k" + b"K\x01s\x92.")
    assert (made.arguments, made.keywords, made.states) == ((), {"k": 1}, [])
    for record in (call, key, function, read_pickle(b"NQ.")):
        assert not callable(record)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"I5\n.", 5),
        (b"I01\n.", True),
        (b"L7L\n.", 7),
        (b"F1.5\n.", 1.5),
        (b"Vx\n.", "x"),
        (b"U\x01x.", "x"),
        (b"(NK\x01d.", {None: 1}),
        (b"(NK\x01l.", [None, 1]),
        (b"N(K\x010K\x0200.", None),  # POP takes values, then the mark itself
        (b"N(K\x01K\x021.", None),
        (b"K\x012\x86.", (1, 1)),
        (b"Np5\n0g5\n.", None),
        (b"Nr\x00\x01\x00\x000j\x00\x01\x00\x00.", None),
        (b"\x80\x05\x96\x01" + b"\0" * 7 + b"x.", bytearray(b"x")),
        (b"\x80\x04\x8e\x01" + b"\0" * 7 + b"x.", b"x"),
        (b"\x80\x04\x8d\x01" + b"\0" * 7 + b"x.", "x"),
    ],
)
def test_plain_values_come_back_as_they_are(data, expected):
    """The operations that the checkpoints above do not happen to use, as Python reads them."""
    assert pickle.loads(data) == expected
    assert read_pickle(data) == expected

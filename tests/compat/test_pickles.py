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


def long(number: int) -> bytes:
    return b"\x8a\x10" + number.to_bytes(16, "little")


def test_integers_of_one_hash_are_not_looked_up_as_keys() -> None:
    """All multiples of 2^61 - 1 have the hash 0: as keys, 100,000 of them would take minutes."""
    keys = [(2**61 - 1) * each for each in range(1, 100_000)]
    got = read_pickle(b"\x80\x02}(" + b"".join(long(key) + b"N" for key in keys) + b"u.")
    assert [key.value if isinstance(key, Key) else key for key in got] == keys
    assert sum(not isinstance(key, Key) for key in got) <= 17


def test_places_of_the_memo_are_those_of_programs() -> None:
    with pytest.raises(ValueError, match="under a number of more than 32 bits"):
        read_pickle(b"Np%d\n." % 2**32)
    assert read_pickle(b"Np%d\n0g%d\n." % (2**32 - 1, 2**32 - 1)) is None


@pytest.mark.parametrize("part", [b"N" + b"\x85" * 500_000, b"]" + b"]a" * 250_000], ids=["nested", "many"])
def test_more_operations_than_programs_write_are_refused(part: bytes) -> None:
    with pytest.raises(ValueError, match="more than 500000 operations"):
        read_pickle(part + b".")


def test_half_a_million_operations_are_read() -> None:
    """A training file of CIFAR-100 has 200,000."""
    assert read_pickle(b"(" + b"K\x01" * 499_996 + b"l.") == [1] * 499_996


def test_an_integer_of_megabytes_is_refused() -> None:
    with pytest.raises(ValueError, match="an integer of more than 32768 bits"):
        read_pickle(b"\x8b\x88\x13\x00\x00" + b"\x7f" * 5000 + b".")
    assert read_pickle(b"\x8b\x00\x10\x00\x00" + b"\x7f" * 4096 + b".").bit_length() == 32767

"""A pickle read as data: what it would import, call or set is written down, and nothing is imported, called or set.

A pickle is a program for a stack machine. `read_pickle` runs that program with records in the place of everything that is not
a plain value: a name to import becomes a `Symbol`, a call becomes a `Construction` that keeps its arguments and whatever state,
entries and elements the new object would have been given, and a reference to data outside the pickle becomes a `Persistent`.
No record is callable and no name is ever looked up, so there is no list of harmless functions to keep harmless.
"""

from __future__ import annotations

import pickletools
from dataclasses import dataclass, field
from typing import Any, NoReturn

from pairgrad.ground.reading import BITS, OPERATIONS

_SHOWN = 60  # characters of a name from the file that are shown in a message
_PLACES = 2**32  # of the memo: what torch.save and Python write, and too few of one hash to matter
_KEYS = 2**63  # integers below it stay plain as keys, at most 17 of them with one hash
_PLAIN = frozenset(
    {
        *("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "UNICODE", "BINSTRING", "SHORT_BINSTRING"),
        *("BININT", "BININT1", "BININT2", "INT", "BINFLOAT", "FLOAT"),
        *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
    }
)  # operations that push what they carry
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


@dataclass(frozen=True, slots=True)
class Symbol:
    """A name that the pickle asks to import."""

    module: str
    name: str


# The records compare by identity and print without their contents: objects in a pickle may contain themselves, or each other many times over.
@dataclass(slots=True, eq=False, repr=False)
class Construction:
    """A call that the pickle asks for, and what it would have done to the object that came back."""

    callee: Any
    arguments: tuple[Any, ...]
    keywords: Any = None
    states: list[Any] = field(default_factory=list)  # for __setstate__ or __dict__, oldest first
    entries: dict[Any, Any] = field(default_factory=dict)  # object[key] = value
    elements: list[Any] = field(default_factory=list)  # object.append(value), object.add(value)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Persistent:
    """A reference to data outside the pickle."""

    id: Any


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Key:
    """A dict key that is not a plain value."""

    value: Any


def kind(value: Any) -> str:
    """What a value of the pickle is, in a few words and without its contents."""
    match value:
        case Construction(Symbol() as symbol):
            return f"an object made by {_shown(symbol)}"
        case Construction():
            return "an object made by another object"
        case Symbol():
            return f"the name {_shown(value)}"
        case Persistent():
            return "a reference to data outside the pickle"
        case None:
            return "None"
        case _:
            return f"a value of type {type(value).__name__}"


def read_pickle(data: bytes) -> Any:
    """The object that a pickle describes, built from plain values and records.

    Numbers, strings, bytes, tuples, lists and dicts come back as they are, sets as lists. A dict key that is neither a number, a
    string, bytes nor None becomes a `Key`, because hashing a deeply nested tuple can exhaust the C stack; so does an integer of more than 64 bits,
    because thousands of these can have the same hash.

    Raises:
        ValueError: the pickle is cut off, is not a pickle, uses an operation that torch.save does not write, has more operations than programs write, or
            an integer of more than 32768 bits.
    """
    machine = _Machine()
    position = 0
    try:
        for number, (operation, argument, where) in enumerate(pickletools.genops(data)):
            position = where or 0
            if number == OPERATIONS:
                raise ValueError(f"it has more than {OPERATIONS} operations")
            machine.step(operation.name, argument)
    # pickletools says DeprecationWarning about an odd escape in a string; whoever made warnings errors gets our error.
    except (ValueError, DeprecationWarning) as error:
        raise ValueError(f"its pickle is damaged, cut off or not from torch.save (after byte {position}: {error})") from None
    return machine.result()


class _Machine:
    """The stack machine. Every step either does what the operation says to plain values, or writes it down."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.below: list[list[Any]] = []  # the stacks below each open mark
        self.memo: dict[int, Any] = {}

    def result(self) -> Any:
        return self.stack[0]

    def step(self, operation: str, argument: Any) -> None:
        push, pop = self.stack.append, self.pop
        if operation in _PLAIN:
            push(argument)
            return
        if operation in _TUPLES:
            items = [pop() for _ in range(_TUPLES[operation])]
            push(tuple(reversed(items)))
            return
        match operation:
            case "BINGET" | "LONG_BINGET" | "GET":
                if argument not in self.memo:
                    _refuse(f"nothing was stored under {argument}")
                push(self.memo[argument])
            case "BINPUT" | "LONG_BINPUT" | "PUT":
                if argument >= _PLACES:
                    _refuse("it stores a value under a number of more than 32 bits")
                self.memo[argument] = self.top()
            case "MEMOIZE":
                self.memo[len(self.memo)] = self.top()
            case "LONG" | "LONG1" | "LONG4":
                if argument.bit_length() > BITS:
                    _refuse(f"it has an integer of more than {BITS} bits")
                push(argument)
            case "NONE":
                push(None)
            case "NEWTRUE" | "NEWFALSE":
                push(operation == "NEWTRUE")
            case "MARK":
                self.below.append(self.stack)
                self.stack = []
            case "EMPTY_TUPLE":
                push(())
            case "TUPLE":
                self.push_after_mark(tuple)
            case "EMPTY_LIST" | "EMPTY_SET":
                push([])
            case "LIST" | "FROZENSET":
                self.push_after_mark(list)
            case "APPEND":
                self.extend([pop()])
            case "APPENDS" | "ADDITEMS":
                self.extend(self.since_mark())
            case "EMPTY_DICT":
                push({})
            case "DICT":
                items = self.since_mark()
                self.stack.append({})
                self.fill(items)
            case "SETITEM":
                value, key = pop(), pop()
                self.fill([key, value])
            case "SETITEMS":
                self.fill(self.since_mark())
            case "GLOBAL":
                module, _, name = argument.partition(" ")
                push(Symbol(module, name))
            case "STACK_GLOBAL":
                name, module = pop(), pop()
                if not (isinstance(module, str) and isinstance(name, str)):
                    _refuse("a name to import is not a string")
                push(Symbol(module, name))
            case "REDUCE" | "NEWOBJ":
                arguments, callee = pop(), pop()
                self.construct(callee, arguments)
            case "NEWOBJ_EX":
                keywords, arguments, callee = pop(), pop(), pop()
                self.construct(callee, arguments, keywords)
            case "BUILD":
                state = pop()
                self.constructed(operation).states.append(state)
            case "BINPERSID":
                push(Persistent(pop()))
            case "POP":
                # The mark itself counts as an element of the stack.
                if self.stack:
                    pop()
                else:
                    self.since_mark()
            case "POP_MARK":
                self.since_mark()
            case "DUP":
                push(self.top())
            case "PROTO" | "FRAME":
                pass
            case "STOP":
                if self.below or len(self.stack) != 1:
                    _refuse("it ends before its object is finished")
            case _:
                # EXT1, EXT2 and EXT4 take objects from a registry of the running program; PERSID, INST, OBJ and STRING are older than torch.
                _refuse(f"operation {operation} is not one that torch.save writes")

    def pop(self) -> Any:
        if not self.stack:
            _refuse("it takes a value where there is none")
        return self.stack.pop()

    def top(self) -> Any:
        if not self.stack:
            _refuse("it uses a value where there is none")
        return self.stack[-1]

    def since_mark(self) -> list[Any]:
        """The values above the last mark; the mark goes with them."""
        if not self.below:
            _refuse("it goes back to a mark where there is none")
        values, self.stack = self.stack, self.below.pop()
        return values

    def push_after_mark(self, make: type) -> None:
        values = self.since_mark()
        self.stack.append(make(values))

    def constructed(self, operation: str) -> Construction:
        if not isinstance(target := self.top(), Construction):
            _refuse(f"operation {operation} is applied to {kind(target)}")
        return target

    def construct(self, callee: Any, arguments: Any, keywords: Any = None) -> None:
        if not isinstance(arguments, tuple):
            _refuse(f"the arguments of a call are {kind(arguments)}")
        self.stack.append(Construction(callee, arguments, keywords))

    def extend(self, values: list[Any]) -> None:
        target = self.top()
        if not isinstance(target, list):
            target = self.constructed("APPENDS").elements
        target.extend(values)

    def fill(self, items: list[Any]) -> None:
        """Set the entries key, value, key, value, ... of the dict or object on top."""
        if len(items) % 2:
            _refuse("a dict has a key without a value")
        target = self.top()
        if not isinstance(target, dict):
            target = self.constructed("SETITEMS").entries
        for key, value in zip(items[::2], items[1::2], strict=True):
            plain = isinstance(key, (str, bytes, float, type(None))) or (isinstance(key, int) and -_KEYS <= key < _KEYS)
            target[key if plain else Key(key)] = value


def _shown(symbol: Symbol) -> str:
    text = f"{symbol.module}.{symbol.name}"
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")


def _refuse(reason: str) -> NoReturn:
    raise ValueError(reason)

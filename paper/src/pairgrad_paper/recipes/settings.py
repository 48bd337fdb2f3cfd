"""Recipes by name, changed by `key=value`, and as plain data for the run record."""

from __future__ import annotations

import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any

from pairgrad_paper.recipes import RECIPES, Recipe, UnknownName
from pairgrad_paper.recipes.recipe import LONGER
from pairgrad_paper.recipes.values import CHOICES, LIMITS, contradiction

# PATT's presets as records store them, in the two fields preset and benchmark: each is written as the first pair, and read from any.
_STORED_PRESETS = {
    "cifar": (("paper", "cifar"), ("released-code", "cifar")),
    "imagenet": (("paper", "imagenet"), ("released-code", "imagenet"), ("released-readme", "imagenet")),
    "cifar-readme": (("released-readme", "cifar"),),
}
_SHOWN = 60  # characters of a value in a message
_WORDS = ("name", "summary", "notes")  # what a recipe says of itself; not for --set


class SettingError(ValueError):
    """A recipe was asked for something that it cannot be."""


def recipe_named(name: str) -> Recipe:
    """The recipe of that name; an `UnknownName` that says which are near, and lists them all, otherwise."""
    if name in RECIPES:
        return RECIPES[name]
    near = difflib.get_close_matches(name, RECIPES, n=3)
    hint = f"; did you mean {' or '.join(near)}? There are" if near else "; there are"
    raise UnknownName(f"no recipe is called {name!r}{hint} {', '.join(RECIPES)}")


def keys(recipe: Recipe) -> dict[str, Any]:
    """Everything that can be set, with its value: {"optimizer.lr": 0.001, ...}."""
    return dict(_leaves(recipe, ""))


def changed(recipe: Recipe, settings: Iterable[str]) -> Recipe:
    """The recipe with `key=value` settings applied, for example `optimizer.lr=0.01`, `epochs=5`, `model.head=none`, `schedule.milestones=60,80`.

    Where the public code of the system has a schedule of its own for a number of epochs, `epochs` sets that too, unless a setting is of the schedule.

    Raises:
        SettingError: unknown key, a value of another type, one that is not among the choices, or settings that cannot go together.
    """
    settings = list(settings)
    named = {setting.partition("=")[0].strip() for setting in settings}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals:
            raise SettingError(f"--set must look like key=value, for example optimizer.lr=0.01, got {setting!r}")
        recipe = _with(recipe, key.strip().split("."), text.strip(), key.strip())
    if "epochs" in named and not any(key.startswith("schedule.") for key in named):
        schedule = LONGER.get(recipe.name, {}).get(recipe.epochs, recipe.schedule)
        recipe = dataclasses.replace(recipe, schedule=schedule)
    return _consistent(recipe)


def as_data(recipe: Recipe) -> dict[str, Any]:
    """Plain dicts, lists, strings and numbers, for JSON. Equal recipes give equal data: a setting that may be a fraction is a float, 100.0 and not 100."""
    data = _plain(recipe)
    preset, benchmark = _STORED_PRESETS[recipe.loss.preset][0]
    fields = list((data["loss"] | {"preset": preset}).items())
    after = [name for name, _ in fields].index("preset") + 1
    data["loss"] = dict([*fields[:after], ("benchmark", benchmark), *fields[after:]])
    return data


def from_data(data: Mapping[str, Any]) -> Recipe:
    """The recipe of a run record; a SettingError if it is none that this version of pairgrad could have written."""
    known = RECIPES.get(data.get("name", "")) if isinstance(data, Mapping) else None
    words = {"summary": known.summary if known else "", "notes": list(known.notes) if known else []}
    return _consistent(_from_data(Recipe, {**words, **_with_preset(data)} if isinstance(data, Mapping) else data, ""))


def _with_preset(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """The data of a recipe with the preset of its loss in one field."""
    loss = data.get("loss")
    if not isinstance(loss, Mapping):
        return data
    stored = loss.get("preset"), loss.get("benchmark")
    for preset, pairs in _STORED_PRESETS.items():
        if stored in pairs:
            return {**data, "loss": {name: value for name, value in loss.items() if name != "benchmark"} | {"preset": preset}}
    raise SettingError(f"{_where('loss.')}: loss.preset is {stored[0]!r:.60} and loss.benchmark {stored[1]!r:.60}")


def _where(prefix: str) -> str:
    return f"the recipe of this run{f' ({prefix[:-1]})' if prefix else ''} is not one that this version of pairgrad writes"


def _leaves(value: Any, prefix: str) -> Iterable[tuple[str, Any]]:
    for item in dataclasses.fields(value):
        inner = getattr(value, item.name)
        if dataclasses.is_dataclass(inner):
            yield from _leaves(inner, f"{prefix}{item.name}.")
        elif prefix or item.name not in _WORDS:
            yield prefix + item.name, inner


def _with(value: Any, path: list[str], text: str, key: str) -> Any:
    hints = typing.get_type_hints(type(value))
    name = path[0]
    inner = getattr(value, name) if name in hints else None
    group = dataclasses.is_dataclass(inner)
    if name not in hints or key in _WORDS or (len(path) > 1 and not group):
        raise SettingError(_unknown(key))
    if group:
        if len(path) == 1:
            options = ", ".join(f"{name}.{item.name}" for item in dataclasses.fields(inner))
            raise SettingError(f"{key!r} is a group of settings: set one of {options}")
        return dataclasses.replace(value, **{name: _with(inner, path[1:], text, key)})
    return dataclasses.replace(value, **{name: checked(key, _parsed(text, hints[name], key))})


def _unknown(key: str) -> str:
    known = list(keys(next(iter(RECIPES.values()))))
    near = [name for name in known if name.endswith(f".{key}")] or difflib.get_close_matches(key, known, n=3, cutoff=0.5)
    return f"no setting is called {key!r}; " + (f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(known)}")


def _parsed(text: str, hint: Any, key: str) -> Any:
    """Text as the type of a field: numbers, words, true and false, none, and lists with commas."""
    shown = repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")
    if isinstance(hint, types.UnionType):
        if text.lower() in ("none", "null"):
            return None
        (hint,) = (option for option in typing.get_args(hint) if option is not type(None))
    if typing.get_origin(hint) is tuple:
        kinds = typing.get_args(hint)
        parts = [part for part in text.strip("()[] ").split(",") if part.strip()]
        if kinds[-1] is not Ellipsis and len(parts) != len(kinds):
            raise SettingError(f"{key} must be {len(kinds)} numbers with a comma between them, got {shown}")
        return tuple(_parsed(part.strip(), kinds[0], key) for part in parts)
    if hint is bool:
        if text.lower() not in ("true", "false"):
            raise SettingError(f"{key} must be true or false, got {shown}")
        return text.lower() == "true"
    if hint is str:
        return text
    try:
        number = hint(text)
    except ValueError:
        raise SettingError(f"{key} must be {'a whole number' if hint is int else 'a number'}, got {shown}") from None
    if isinstance(number, float) and not math.isfinite(number):
        raise SettingError(f"{key} must be a finite number, got {shown}")
    return number


def checked(key: str, value: Any) -> Any:
    """The value, if the setting can have it."""
    if key in CHOICES and value is not None and value not in CHOICES[key]():
        raise SettingError(f"{key} must be one of {', '.join(CHOICES[key]())}, got {value!r}")
    if key in LIMITS and value is not None:
        sentence, good = LIMITS[key]
        if not good(value):
            raise SettingError(f"{key} must be {sentence}, got {value!r}")
    return value


def _consistent(recipe: Recipe) -> Recipe:
    if why := contradiction(recipe):
        raise SettingError(why)
    return recipe


def _plain(group: Any) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for name, hint in typing.get_type_hints(type(group)).items():
        value = getattr(group, name)
        if dataclasses.is_dataclass(value):
            data[name] = _plain(value)
        elif value is not None and float in (hint, *typing.get_args(hint)):
            data[name] = float(value)
        else:
            data[name] = list(value) if isinstance(value, tuple) else value
    return data


def _from_data(kind: type, data: Any, prefix: str) -> Any:
    hints = typing.get_type_hints(kind)
    where = _where(prefix)
    if not isinstance(data, Mapping):
        raise SettingError(f"{where}: expected {', '.join(hints)}, got {data!r:.60}")
    if set(data) != set(hints):
        missing, extra = (", ".join(sorted(map(str, names))) or "nothing" for names in (set(hints) - set(data), set(data) - set(hints)))
        raise SettingError(f"{where}: missing {missing}, unknown {extra}")
    values: dict[str, Any] = {}
    for name, hint in hints.items():
        if dataclasses.is_dataclass(hint):
            values[name] = _from_data(typing.cast(type, hint), data[name], f"{prefix}{name}.")
            continue
        value = _typed(data[name], hint)
        if value is _WRONG:
            raise SettingError(f"{where}: {prefix}{name} is {data[name]!r:.60}")
        values[name] = checked(prefix + name, value)
    return kind(**values)


_WRONG = object()


def _typed(value: Any, hint: Any) -> Any:
    """A value from JSON as the type of a field, `_WRONG` if it has another."""
    if isinstance(hint, types.UnionType):
        if value is None:
            return None
        (hint,) = (option for option in typing.get_args(hint) if option is not type(None))
    if typing.get_origin(hint) is tuple:
        kinds = typing.get_args(hint)
        if not isinstance(value, (list, tuple)) or (kinds[-1] is not Ellipsis and len(value) != len(kinds)):
            return _WRONG
        parts = tuple(_typed(part, kinds[0]) for part in value)
        return _WRONG if _WRONG in parts else parts
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is not hint or (hint is float and not math.isfinite(value)):
        return _WRONG
    return value

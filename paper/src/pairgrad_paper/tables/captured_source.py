"""The records that the tables and figures of visited states are made from: which one, in words what was run, and what to type where there is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pairgrad_paper.records import Record, Records
from pairgrad_paper.tables.not_run import NotRun
from pairgrad_paper.tables.published import Printed
from pairgrad_paper.tables.seeds import Seeds, by_seed
from pairgrad_paper.tables.table import Check

STARTS = ("random", "trained")
_PATT, _PROCO = "patt-cifar10-lt-if100-cpu", "proco-cifar10-lt-if100-cpu"
_BENCHMARKS = {
    "cifar10-lt": "CIFAR-10-LT",
    "cifar100-lt": "CIFAR-100-LT",
    "imagenet-lt": "ImageNet-LT",
    "inat18": "iNaturalist 2018",
    "digits-lt": "digits with a long tail",
}
PUBLISHED_BENCHMARKS = tuple(name for name in _BENCHMARKS if name != "digits-lt")
_BACKBONES = {"resnet18": "ResNet18", "resnet32": "ResNet32", "resnet50": "ResNet50"}


def frozen(records: Records, title: str, label: str) -> Record:
    """The record of captured PATT states, the first by name; `NotRun` for the table of that title without one."""
    commands = _after_training(_PATT, "frozen", "frozen-cifar10")
    return _first(records.of("frozen"), NotRun(title, label, commands, "It takes CIFAR-10 and half an hour on a CPU"))


def states(records: Records, title: str, label: str) -> Record:
    """The record of the defects over a ProCo run, the first by name."""
    commands = _after_training(_PROCO, "states", "proco-cifar10-states")
    return _first(records.of("states"), NotRun(title, label, commands, "It takes CIFAR-10 and half an hour on a CPU"))


def forks(records: Records, title: str, label: str) -> dict[str, Seeds]:
    """The forks from each of the starts that there are, the random one first: of one system and version, over the most seeds.

    A fork without a consistent branch is none of the paper's.
    """
    both = records.of("fork", lambda each: "consistent" in each.facts["branches"])
    found = {start: by_seed(records, (each for each in both if each.facts["start"] == start)) for start in STARTS}
    kept = {start: max(groups, key=lambda group: len(group.runs)) for start, groups in found.items() if groups}
    if not kept:
        commands = (f"pairgrad fork {_PATT} --updates 1000", "pairgrad collect forks/*.jsonl")
        raise NotRun(title, label, commands, "It takes CIFAR-10 and an hour on a CPU for each seed")
    return kept


def others_than_forks(records: Records, found: Mapping[str, Seeds]) -> tuple[str, ...]:
    """A note on the forks that are in no mean: of another system or version of the code."""
    read = {record.name for group in found.values() for record in group.runs.values()}
    left = [f"{each.name} ({records.version(each)})" for each in records.of("fork") if each.name not in read]
    versions = ", ".join(dict.fromkeys(group.version for group in found.values()))
    note = f"Made by {versions}."
    if left:
        note += f" Not read here, because no mean is over two systems or two versions of the code: {', '.join(left)}."
    return (note,)


def _after_training(recipe: str, command: str, record: str) -> tuple[str, ...]:
    return (
        f"pairgrad train {recipe} --realization original --keep 40",
        f"pairgrad {command} runs/{recipe}-original-seed3407",
        f"pairgrad collect {record}.jsonl",
    )


def _first(found: list[Record], missing: NotRun) -> Record:
    if not found:
        raise missing
    return found[0]


def system(record: Record, *also: Record) -> str:
    """What was trained, in one phrase; `also` are of the same settings, with other seeds.

    Examples:
        >>> facts = {
        ...     "recipe": {
        ...         "name": "r",
        ...         "data": {"benchmark": "cifar10-lt", "imbalance": 100.0},
        ...         "model": {"backbone": "small32"},
        ...         "epochs": 30,
        ...         "batch_size": 64,
        ...     },
        ...     "seed": 1,
        ... }
        >>> system(Record("n", "frozen", "", facts, {}, ()))
        'CIFAR-10-LT (imbalance factor 100), backbone small32, 30 epochs of batches of 64, seed 1 (recipe r)'
    """
    recipe = record.facts["recipe"]
    imbalance = recipe["data"].get("imbalance")
    long_tail = f" (imbalance factor {imbalance:g})" if imbalance else ""
    seeds = sorted({each.facts["seed"] for each in (record, *also)})
    trained = f"{recipe['epochs']} epochs of batches of {recipe['batch_size']}, {_seeds(seeds)} (recipe {recipe['name']})"
    return f"{_benchmark(recipe)}{long_tail}, backbone {_backbone(recipe)}, {trained}"


def _seeds(seeds: Sequence[int]) -> str:
    return f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"


def to_be_met(record: Record, *checks: Check) -> tuple[Check, ...]:
    """Checks of published numbers, which a run on other data than the paper's need not meet: its features have another dimension."""
    return checks if record.facts["recipe"]["data"]["benchmark"] in PUBLISHED_BENCHMARKS else ()


def stand_in(record: Record, backbone: str, benchmark: str | None = None, also: Sequence[Record] = ()) -> str:
    """A note: what ours is, and what of the paper's it stands in for, where it does not always name the benchmark; `also` are of the same system."""
    recipe = record.facts["recipe"]
    names = ", ".join(each.name for each in (record, *also))
    ours = f"Record{'s' if also else ''} {names}: {system(record, *also)}."
    if recipe["model"]["backbone"] == backbone and recipe["data"]["benchmark"] == (benchmark or recipe["data"]["benchmark"]):
        return f"{ours} Data and backbone are the paper's."
    if recipe["data"]["benchmark"] not in PUBLISHED_BENCHMARKS:
        return f"{ours} Other data, and features of another dimension, than the paper's: the published numbers show the size, and are not to be met."
    of = _BENCHMARKS[benchmark] if benchmark else "system (it does not say on which of the CIFAR benchmarks)"
    return (
        f"{ours} Scaled down: it stands in for the paper's {of} with {_BACKBONES[backbone]}, so the published numbers are to be met where "
        "they depend on the concentrations alone, and in size elsewhere."
    )


def others(records: Records, record: Record) -> tuple[str, ...]:
    """A note on records of the same kind that are not read here."""
    left = [each.name for each in records.of(record.record) if each.name != record.name]
    return (f"Not read here: {', '.join(left)}.",) if left else ()


def short(record: Record) -> str:
    """Benchmark and backbone, for a caption."""
    recipe = record.facts["recipe"]
    return f"{_benchmark(recipe)}, backbone {_backbone(recipe)}"


def _benchmark(recipe: Mapping[str, Any]) -> str:
    name = str(recipe["data"]["benchmark"])
    return _BENCHMARKS.get(name, name)


def _backbone(recipe: Mapping[str, Any]) -> str:
    name = str(recipe["model"]["backbone"])
    return _BACKBONES.get(name, name)


def counted(text: str, held: Sequence[bool]) -> Check:
    """A check of every row: held if all do, and says how many."""
    return Check(f"{text} in {sum(held)} of {len(held)}", bool(held) and all(held))


def near(ours: float, printed: Printed, share: float = 0.01) -> bool:
    """Whether ours is within that share of the printed number."""
    return abs(ours / float(printed) - 1) <= share

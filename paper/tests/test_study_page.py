"""The numbers in the sentences of the study and of the README are those of the records."""

from __future__ import annotations

import re
import statistics
from pathlib import Path

import pytest

from pairgrad_paper.records import Record, Records
from pairgrad_paper.tables import PLACE

ROOT = Path(__file__).resolve().parents[2]
# without the tables and captions that commands put in: what they say would count as said
STUDY, README = (PLACE.sub("", (ROOT / name).read_text()) for name in ("docs/evidence/study.md", "README.md"))


@pytest.fixture(scope="module")
def records() -> Records:
    return Records(None)


def forks(records: Records) -> list[list[Record]]:
    """From the random start and from the trained one, in the order of the seeds."""
    found = sorted(records.of("fork", lambda _: True), key=lambda record: record.facts["seed"])
    return [[record for record in found if record.facts["start"] == start] for start in ("random", "trained")]


def pairs(record: Record) -> dict[int, tuple[float, float]]:
    """By update: distance of parameters between original and consistent, and between the coherent branches of the control."""
    own = {line["step"]: line["parameter"] for line in record.of("distance") if line["branch"] == "consistent"}
    control = {line["step"]: line["parameter"] for line in record.of("control") if line["between"] == ["consistent", "arfr"]}
    return {step: (own[step], control[step]) for step in control if step > 0}


def said(text: str, *words: str) -> None:
    for each in words:
        assert each in text, f"{each!r} is not said"


def listed(values: list[float]) -> str:
    *first, last = (f"{value:.0f}" for value in values)
    return f"{', '.join(first)} and {last}"


def span(values: list[float]) -> str:
    return f"{min(values):.1f} to {max(values):.1f}"


def spread(values: list[float]) -> str:
    return f"{statistics.mean(values):.3f} ± {statistics.stdev(values):.3f}"


def test_distances_of_forks(records: Records) -> None:
    both = [[pairs(record) for record in group] for group in forks(records)]
    first, later = ([each[1][0] / each[1][1] for each in group] for group in both)
    said(STUDY, f"{listed(first)} times further apart from the random start", f"{listed(later)} times from the trained one")
    said(" ".join(README.split()), f"{min(first):.0f} to {max(first):.0f} times further apart after the first update")
    ten, twenty = ([[each[step][0] / each[step][1] for each in group] for group in both] for step in (10, 20))
    said(STUDY, f"it is {span(ten[0])} and {span(ten[1])} times, after twenty {span(twenty[0])} and {span(twenty[1])}")
    (a, b), (c, d) = ([[each[1000][k] for each in group] for k in (0, 1)] for group in both)
    said(
        " ".join(STUDY.split()),
        f"{spread(a)} against {spread(b)} of the parameters from the random start, {spread(c)} against {spread(d)} from the",
    )
    assert all(own / control < 2 for group in both for each in group for step, (own, control) in each.items() if step >= 20)


def test_what_is_equal(records: Records) -> None:
    both = forks(records)
    assert [len(group) for group in both] == [3, 3]
    probes = [line for group in both for record in group for line in record.of("probe")]
    assert all(line["scores_equal"] and line["loss_equal"] for line in probes)
    said(
        STUDY,
        f"at all {len(probes)} probes of three seeds",
        f"leaves at most {max(line['feature_residual'] for line in probes):.1e}".replace("e-0", "e-"),
    )
    said(" ".join(README.split()), f"at all {len(probes)} probes of three seeds")
    same = [[line for line in record.of("control") if line["between"] == ["arfr", "paired"]] for group in both for record in group]
    assert not any(line["parameter"] or line["feature"] for lines in same for line in lines)
    said(STUDY, *(f"{len(lines)} times in {lines[-1]['step']} updates" for lines in same))
    assert min(line["parameter_residual"] for line in probes) > 1e-4
    parameters = [line["parameter_gap"] for line in probes]
    said(STUDY, f"Its gap is between {min(parameters):.1e} and {max(parameters):.1e}".replace("e-0", "e-"))
    gaps = [line["feature_gap"] for line in probes]
    assert f"{min(gaps):.2e}" == f"{max(gaps):.2e}" == "2.56e-03"


def test_minutes_and_accuracies(records: Records) -> None:
    runs = records.of("run", lambda _: True)
    (proco,) = (record for record in runs if record.facts["recipe"]["name"].startswith("proco"))
    patt = [record for record in runs if record is not proco]

    def minutes(record: Record) -> str:
        return f"{record.one('end')['minutes']:.0f}"

    lowest, highest = (minutes(pick(patt, key=lambda record: record.one("end")["minutes"])) for pick in (min, max))
    said(STUDY, f"A run of PATT took {lowest} to {highest} minutes, ProCo {minutes(proco)},")
    arms = {record.facts["realization"] for record in patt}
    seeds = sorted({record.facts["seed"] for record in patt})
    assert len(patt) == len(arms) * len(seeds)
    said(STUDY, f"four arms with {('no', 'one', 'two', 'three')[len(seeds)]} seeds", " ".join(f"--seed {seed}" for seed in seeds))
    accuracies = {
        (record.facts["realization"], record.facts["seed"]): 100
        * next(line["test_accuracy"] for line in reversed(record.of("epoch")) if "test_accuracy" in line)
        for record in patt
    }
    means = [sum(accuracies[name, seed] for seed in seeds) / len(seeds) for name in ("original", "consistent", "arfr")]
    said(STUDY, "reach {:.1f}, {:.1f} and {:.1f} %".format(*means))
    same = all(accuracies["arfr", seed] == accuracies["paired", seed] for seed in seeds)
    assert same
    said(STUDY, "`paired` ends with the numbers of `arfr` in every digit")


def test_commands_are_those_of_the_records(records: Records) -> None:
    """Without where they wrote to, whether they showed progress, and which of several arms and seeds they were for."""
    folded = " ".join(STUDY.replace("\\\n", " ").split())
    for record in records.of("run", lambda _: True):
        words = record.environment["command"]
        for one in (r"--output runs ", r" --output runs$", r" --quiet", r"--checkpoint-every 1 "):
            words = re.sub(one, "", words)
        *_, options = re.split(r"--seed \d+ " if "--seed" in words else r"--realization \w+ ", words)
        assert options in folded, options
        assert f"pairgrad train {record.facts['recipe']['name']} --realization original" in folded
        assert "evaluation" in {line["kind"] for line in record.lines}
        said(folded, f"pairgrad evaluate runs/{record.facts['recipe']['name']}-")

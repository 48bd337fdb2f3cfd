"""Tables of visited states: what they take from records, what they set it beside, and what they say where there is nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev

import pytest

from pairgrad_paper.catalogue import TABLES
from pairgrad_paper.recipes import RECIPES
from pairgrad_paper.records import Record, RecordError, Records
from pairgrad_paper.tables import NotRun, Table, to_csv, to_markdown

from .made import read
from .records_fakes import changed, everything, fork, frozen, recipe, states, stored

NAMES = ("backward-counterfactual", "captured-audit", "precision-geometry", "one-step-replay", "fork-summary", "proco-states")


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Records:
    return everything(tmp_path_factory.mktemp("records"))


@pytest.fixture(scope="module")
def again(tmp_path_factory: pytest.TempPathFactory) -> Records:
    return everything(tmp_path_factory.mktemp("again"))


def held(table: Table) -> list[bool]:
    return [check.held for check in table.checks]


@pytest.mark.parametrize("name", NAMES)
def test_equal_records_give_equal_bytes(name: str, records: Records, again: Records) -> None:
    first, second = (TABLES[name].table(lambda: None, each) for each in (records, again))
    assert first.name == name
    assert to_csv(first) == to_csv(second)
    assert to_markdown(first) == to_markdown(second)
    assert all(held(first)), first.checks
    assert "CIFAR-10-LT" in to_markdown(first)
    assert "Scaled down: it stands in for the paper's" in to_markdown(first)


@pytest.mark.parametrize(
    ("name", "commands"),
    [
        (
            "backward-counterfactual",
            ("train patt-cifar10-lt-if100-cpu --realization original", "frozen runs/patt-", "collect frozen-cifar10"),
        ),
        ("captured-audit", ("train patt-cifar10-lt-if100-cpu", "frozen ", "collect ")),
        ("precision-geometry", ("train patt-cifar10-lt-if100-cpu", "frozen ", "collect ")),
        ("one-step-replay", ("train patt-cifar10-lt-if100-cpu", "frozen ", "collect ")),
        ("fork-summary", ("fork patt-cifar10-lt-if100-cpu --updates 1000", "collect forks/")),
        ("proco-states", ("train proco-cifar10-lt-if100-cpu --realization original", "states runs/proco-", "collect proco-cifar10-states")),
    ],
)
def test_without_a_record(name: str, commands: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.raises(NotRun) as missing:
        TABLES[name].table(lambda: None, Records(tmp_path))
    assert [typed.startswith(f"pairgrad {start}") for typed, start in zip(missing.value.commands, commands, strict=True)] == [True] * len(
        commands
    )
    assert "CIFAR-10" in missing.value.needs


def test_backward_counterfactual(records: Records) -> None:
    table = read("backward-counterfactual", records)
    lines = frozen().of("counterfactual")
    assert table.column("view") == [2, 3] * 3
    assert table.column("step") == [20, 20, 400, 400, 1200, 1200]
    assert table.numbers("defect") == [line["defect"] for line in lines]
    assert table.numbers("relative") == [line["relative"] for line in lines]
    assert table.column("largest_published") == ["1.40e-05", "1.35e-05"] * 3
    assert table.numbers("radius_high") == [392.505, 392.505, 392.6, 392.6, 392.8, 392.8]


@pytest.mark.parametrize(
    ("cells", "kept"),
    [
        ({"score": 1e-16}, [False, True, True]),
        ({"loss": 1e-16}, [False, True, True]),
        ({"defect": 2.60e-3}, [True, False, True]),
        ({"relative": 2.52e-3}, [True, True, False]),
    ],
)
def test_backward_counterfactual_sees_what_is_off(cells: dict[str, float], kept: list[bool], tmp_path: Path) -> None:
    table = read("backward-counterfactual", stored(tmp_path, changed(frozen(), "counterfactual", 3, **cells)))
    assert held(table) == kept
    assert sum("5 of 6" in check.text for check in table.checks) == 1


def test_audit_is_the_maximum_over_the_views(tmp_path: Path) -> None:
    record = changed(frozen(), "audit", 3, finite_score=3.3e-3, defect=2.57e-3)
    table = read("captured-audit", stored(tmp_path, record))
    rows = {str(row["comparison"]): row for row in table.rows}
    assert list(rows) == ["finite-potential score", "AR/FR score", "paired score", "clipped slope", "supplied slope"]
    finite = rows["finite-potential score"]
    assert (finite["largest"], finite["step"], finite["view"]) == (3.3e-3, 400, 3)
    assert finite["largest_published"] == "3.32e-03"
    assert finite["largest_ratio"] == pytest.approx(3.3 / 3.32)
    assert finite["least"] == min(line["finite_score"] for line in record.of("audit"))
    assert rows["paired score"]["largest_published"] is None
    assert rows["AR/FR score"]["largest_published"] == "1.17e-09"
    assert held(table) == [True, True]
    assert "over 6 captured views (the paper: 6)" in table.caption
    assert "60 of 60 class concentrations are at the cap" in table.notes[1]


@pytest.mark.parametrize(
    ("cells", "kept"),
    [({"clipped_slope": 2.6e-3}, [False, True]), ({"defect": 2.6e-3}, [False, True]), ({"arfr_score": 0.1}, [True, False])],
)
def test_audit_sees_what_is_off(cells: dict[str, float], kept: list[bool], tmp_path: Path) -> None:
    assert held(read("captured-audit", stored(tmp_path, changed(frozen(), "audit", 0, **cells)))) == kept


def test_precision_and_geometry(records: Records, tmp_path: Path) -> None:
    table = read("precision-geometry", records)
    assert {(row["precision"], row["geometry"]) for row in table.rows} == {
        (precision, geometry) for precision in ("float32", "float64") for geometry in ("expanded", "factorised")
    }
    for number, (cells, kept) in enumerate(
        (
            ({"precision": "float64"}, [False, True, True]),
            ({"loss": 1e-9}, [True, False, True]),
            ({"relative": 0.0}, [True, True, False]),
        )
    ):
        assert held(read("precision-geometry", stored(tmp_path / str(number), changed(frozen(), "cross", 0, **cells)))) == kept


@pytest.mark.parametrize(
    ("cells", "off"),
    [
        ({"scores_equal": False}, 0),
        ({"loss_equal": False}, 0),
        ({"update_gap": 0.0}, 1),
        ({"gradient_residual": 1e-8}, 2),
        ({"update_residual": 0.0}, 3),
    ],
)
def test_replay_sees_what_is_off(cells: dict[str, float], off: int, tmp_path: Path) -> None:
    table = read("one-step-replay", stored(tmp_path, changed(frozen(), "replay", 2, **cells)))
    assert held(table) == [number != off for number in range(4)]
    assert "in 2 of 3" in table.checks[off].text
    assert "702,538 parameters" in table.notes[0]
    assert all(str(row["optimizer"]).startswith("adam") for row in table.rows)
    assert "optimizer" in [column.key for column in table.shown]  # the learning rate is another at every state


BRANCHES = ("consistent", "arfr", "paired")


def test_forks_have_a_row_for_every_branch_and_the_controls(records: Records) -> None:
    table = read("fork-summary", records)
    assert [(row["start"], row["branch"]) for row in table.rows] == [
        (start, branch) for start in ("random", "trained") for branch in (*BRANCHES, "arfr from consistent", "paired from arfr")
    ]
    first = table.rows[0]
    record = fork("random")
    gaps = sorted(line["feature_gap"] for line in record.of("probe"))
    assert (first["feature_gap_low"], first["feature_gap"], first["feature_gap_high"]) == (gaps[0], gaps[21], gaps[42])
    last = [line for line in record.of("distance") if line["branch"] == "consistent"][-1]
    assert (first["updates"], first["parameter_distance"], first["feature_distance"]) == (1000, last["parameter"], last["feature"])
    late = [line["total"] for line in record.of("loss") if line["branch"] == "consistent"][-10:]
    assert first["loss"] == pytest.approx(sum(late) / 10, rel=1e-12)
    assert (first["probes"], first["equal"]) == (43, 43)
    control = [line for line in record.of("control") if line["between"] == ["consistent", "arfr"]][-1]
    assert [row["parameter_distance"] for row in table.rows[3:5]] == [control["parameter"], 0]
    notes = "".join(table.notes)
    ratio = last["parameter"] / control["parameter"]
    assert f"{last['parameter']:.2g} and {control['parameter']:.2g} after 1000 ({ratio:.3g} times)" in notes
    number = sum(line["between"] == ["arfr", "paired"] for line in record.of("control"))
    assert f'random start, "paired from arfr": equal in every bit wherever measured, {number} times, last after 1000 updates' in notes
    assert sum("Scaled down" in note for note in table.notes) == 1  # two forks of one system


@pytest.mark.parametrize(
    ("cells", "off"),
    [
        ({"scores_equal": False}, 1),
        ({"loss_equal": False}, 1),
        ({"feature_gap": 2.5e-4}, 2),
        ({"feature_gap": 3.5e-3}, 2),
        ({"feature_gap": 0.0}, 2),
        ({"parameter_gap": 2.5e-4}, 3),
    ],
)
def test_forks_see_what_is_off(cells: dict[str, float], off: int, tmp_path: Path) -> None:
    table = read("fork-summary", stored(tmp_path, changed(fork("trained"), "probe", 7, **cells)))
    assert held(table) == [number != off for number in range(5)]
    assert "in 42 of 43" in table.checks[off].text


@pytest.mark.parametrize(("step", "parameter", "held"), [(1, 0.0, True), (1, 1e-3, False), (2, 1e-3, True)])
def test_forks_must_part_further_than_the_control_after_the_first_update(step: int, parameter: float, held: bool, tmp_path: Path) -> None:
    record = fork("trained")
    at = [number for number, line in enumerate(record.of("control")) if line["step"] == step and line["between"][0] == "consistent"]
    table = read("fork-summary", stored(tmp_path, changed(record, "control", at[0], parameter=parameter)))
    assert table.checks[4].held is held


def test_branches_are_equal_only_if_features_are_too(tmp_path: Path) -> None:
    record = fork("trained")
    at = [number for number, line in enumerate(record.of("control")) if line["between"] == ["arfr", "paired"]]
    table = read("fork-summary", stored(tmp_path, changed(record, "control", at[0], feature=1e-9)))
    assert "equal in every bit wherever" not in "".join(table.notes)


def test_a_fork_without_losses_has_a_table(tmp_path: Path) -> None:
    table = read("fork-summary", stored(tmp_path, _without(fork("random"), "loss")))
    assert table.rows[0]["loss"] is None


def test_a_distance_that_does_not_grow_is_none_that_parted(tmp_path: Path) -> None:
    record = fork("trained")
    last = max(number for number, line in enumerate(record.of("distance")) if line["branch"] == "consistent")
    assert not read("fork-summary", stored(tmp_path, changed(record, "distance", last, parameter=1e-9))).checks[4].held


def test_one_fork_alone_and_a_short_one(tmp_path: Path) -> None:
    table = read("fork-summary", stored(tmp_path, _without(fork("random", updates=100), "control")))
    assert table.column("start") == ["random"] * 3
    assert not table.checks[0].held  # seven probes
    assert "one of the paper's two starts only" in table.notes[1]
    assert not any("Control" in note for note in table.notes)


def _without(record: Record, kind: str) -> Record:
    return replace(record, lines=tuple(line for line in record.lines if line["kind"] != kind))


def test_forks_with_another_branch_or_without_the_consistent_one(tmp_path: Path) -> None:
    record = fork("random", updates=100)
    branches = {"original": "original", "consistent": "consistent", "arfr": "log-miller", "paired": "paired"}
    lines = tuple({**line, "branch": branches[line["branch"]]} if "branch" in line else line for line in record.lines)
    other = replace(record, lines=lines, facts={**record.facts, "branches": list(branches.values())})
    (row,) = [row for row in read("fork-summary", stored(tmp_path / "a", other)).rows if row["branch"] == "log-miller"]
    assert row["feature_gap"] is row["loss_difference"] is None
    assert row["parameter_distance"] is not None
    with pytest.raises(NotRun):
        read("fork-summary", stored(tmp_path / "b", replace(record, facts={**record.facts, "branches": ["original", "arfr"]})))


def test_forks_of_two_systems_are_told_apart(tmp_path: Path) -> None:
    other = fork("trained")
    other = replace(other, facts={**other.facts, "seed": 1})
    notes = read("fork-summary", stored(tmp_path, fork("random"), other)).notes
    assert ["seed 3407" in notes[0], "seed 1 " in notes[0], "seed 1 " in notes[1]] == [True, False, True]


def test_forks_over_three_seeds(tmp_path: Path) -> None:
    """The trained start has one seed less, and one fork of another version of the code, which is in no mean."""
    seeds, commit = (1, 2, 3), "0" * 9
    forks = [fork("random", seed=seed, commit=commit) for seed in seeds] + [fork("trained", seed=seed, commit=commit) for seed in seeds[:2]]
    table = read("fork-summary", stored(tmp_path, *forks, fork("trained", seed=3, commit="1" * 9)))
    random, trained = (row for row in table.rows if row["branch"] == "consistent")
    assert [(row["forks"], row["probes"], row["equal"]) for row in (random, trained)] == [(3, 129, 129), (2, 86, 86)]
    ends = [[line["parameter"] for line in each.of("distance") if line["branch"] == "consistent"][-1] for each in forks[:3]]
    assert random["parameter_distance"] == pytest.approx(sum(ends) / 3)
    assert random["parameter_distance_deviation"] == pytest.approx(stdev(ends))
    assert f"{fmean(ends):.4f} ± {stdev(ends):.4f}" in to_markdown(table)
    notes = " ".join(table.notes)
    assert "Seeds: 3 from the random start, 2 from the trained start." in notes
    assert "no mean is over two systems or two versions of the code: fork-cifar10-seed3-trained (commit 1111111)" in notes
    assert "seeds 1, 2, 3" in notes
    quotients = [one / other for one, other in zip(ends, (each.of("control")[-2]["parameter"] for each in forks[:3]), strict=True)]
    assert f"after 1000 ({min(quotients):.3g} to {max(quotients):.3g} times)" in notes
    assert all(held(table))


def test_one_seed_says_that_there_are_no_error_bars(records: Records) -> None:
    table = read("fork-summary", records)
    assert "One seed: there are no error bars." in table.notes
    assert "±" not in "".join(to_markdown(table).split("|")[1:])


def test_a_later_defect_is_seen(tmp_path: Path) -> None:
    table = read("proco-states", stored(tmp_path, changed(states(), "capture", 4, above=0.01, maximum=2e-5)))
    assert [check.held for check in table.checks] == [True, False]
    assert "the largest 2.0e-05" in table.checks[1].text


def test_a_record_without_what_its_kind_has_is_named(tmp_path: Path) -> None:
    """Not a traceback: the directory, and what to do."""
    broken = replace(frozen(), facts={key: value for key, value in frozen().facts.items() if key != "recipe"})
    with pytest.raises(RecordError, match=r"has not what its kind has \(KeyError: 'recipe'\): make it again"):
        TABLES["captured-audit"].table(lambda: None, stored(tmp_path, broken))


def test_states(records: Records, tmp_path: Path) -> None:
    table = read("proco-states", records)
    assert table.column("what") == ["queries", "bank"] * 5
    assert table.column("above_published") == ["23 %", *[None] * 9]
    assert "(23%; published 23 %)" in table.checks[0].text
    assert "| 23.1% | 23 % |" in to_markdown(table)
    assert "p = 128, temperature 0.1" in table.notes[0]
    assert "ImageNet queries and of the iNaturalist class bank are not run" in table.notes[2]
    for name in ("proco-imagenet-lt", "proco-inat18", "proco-cifar100-lt-if100"):
        assert name in RECIPES
        assert name in table.notes[2]
    none = read("proco-states", stored(tmp_path / "none", changed(states(), "capture", 0, above=0.0)))
    late = read("proco-states", stored(tmp_path / "late", changed(states(), "capture", 8, above=0.01)))
    assert (held(none), held(late)) == ([False, True], [True, False])


def noted(name: str, record: Record, directory: Path) -> str:
    """What the first note of a table says was run."""
    return read(name, stored(directory, record)).notes[0]


def test_what_was_run_in_words(tmp_path: Path) -> None:
    record = frozen()
    audit, replay = (noted(name, record, tmp_path / name) for name in ("captured-audit", "one-step-replay"))
    assert "CIFAR-10-LT (imbalance factor 100), backbone small32, 30 epochs of batches of 64, seed 3407" in audit
    assert "for the paper's CIFAR-100-LT with ResNet18" in audit
    assert "does not say on which" in replay
    own = recipe(model={"backbone": "resnet18"}, data={"benchmark": "cifar100-lt", "imbalance": None})
    full = replace(record, facts={**record.facts, "recipe": own})
    for name in ("captured-audit", "one-step-replay"):
        note = noted(name, full, tmp_path / f"full-{name}")
        assert "(imbalance" not in note
        assert "Data and backbone are the paper's." in note
    ten = replace(full, facts={**full.facts, "recipe": {**own, "data": {"benchmark": "cifar10-lt", "imbalance": None}}})
    assert "Scaled down" in noted("captured-audit", ten, tmp_path / "ten")


def test_numbers_of_the_paper_are_not_to_be_met_on_digits(tmp_path: Path) -> None:
    record = frozen()
    digits = replace(record, facts={**record.facts, "recipe": recipe(data={"benchmark": "digits-lt", "imbalance": 10.0})})
    for name in ("backward-counterfactual", "captured-audit"):
        on_cifar, on_digits = (read(name, stored(tmp_path / f"{name}-{place}", each)) for place, each in enumerate((record, digits)))
        assert "are not to be met." in on_digits.notes[0]
        assert "percent of the published" in str(on_cifar.checks)
        assert on_digits.checks
        assert "published" not in str(on_digits.checks)


def test_of_two_records_the_other_is_named(tmp_path: Path) -> None:
    records = stored(tmp_path, frozen(), replace(frozen(), name="frozen-digits"))
    assert read("backward-counterfactual", records).notes[-1] == "Not read here: frozen-digits."

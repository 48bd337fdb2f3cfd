"""`pairgrad fork`."""

import pytest
from tests.cli.command import invoke

from pairgrad_paper.recipes import recipe_named
from pairgrad_paper.records import read
from pairgrad_paper.training import load_data

SMALL = ("--set", "epochs=2", "--set", "batch_size=32", "--set", "outlier_batch_size=16")
PLAN = ("--updates", "4", "--probes", "3", "--branch", "original", "--branch", "consistent")
NAME = "fork-digits-lt-seed3407"


def forked(output, *more):
    return invoke("fork", "digits-lt", *SMALL, *PLAN, "--output", str(output), *more)


@pytest.fixture(scope="module")
def forks(tmp_path_factory):
    output = tmp_path_factory.mktemp("forks")
    return output, forked(output)


def words(result):
    return " ".join(result.output.split())


def test_two_forks_and_their_records(forks):
    output, result = forks
    assert result.exit_code == 0
    assert sorted(path.name for path in output.iterdir()) == [
        f"{NAME}-{kind}{end}" for kind in ("random", "trained") for end in ("", ".jsonl")
    ]
    first, second = (read(output / f"{NAME}-{kind}.jsonl") for kind in ("random", "trained"))
    assert (first.facts["start_step"], second.facts["start_step"]) == (0, 4)
    assert {line["step"] for line in first.of("loss")} == {4}  # the last update has one, however few there are
    said = words(result)
    assert "equal in every bit at 3 of 3 probes" in said
    assert "4 updates each from random weights" in said
    assert "from the state after update 4" in said
    assert "after 4 updates consistent is" in said


def test_a_short_fork_has_fewer_probes(tmp_path):
    result = invoke("fork", "digits-lt", *SMALL, "--updates", "1", "--no-second", *PLAN[4:], "--output", str(tmp_path), "-q")
    assert result.exit_code == 0, result.output
    assert len(read(tmp_path / f"{NAME}-random.jsonl").of("probe")) == 2


def test_without_a_number_the_forks_fill_the_recipe(forks, tmp_path):
    total = 2 * (len(load_data(recipe_named("digits-lt"), None).train) // 96)  # updates of two epochs
    half, whole = (total - 1) // 2, total - 1  # a fork ends before the last update
    short = ("digits-lt", *SMALL, "--set", "batch_size=96", *PLAN[4:], "-q")
    for name, arguments, planned in (
        ("two", short, [(0, half, half + 1), (half, half, half + 1)]),
        ("one", (*short, "--no-second"), [(0, whole, whole + 1)]),
        ("from", ("--from", str(forks[0] / f"{NAME}-random"), *PLAN[4:], "-q"), [(4, 11, 12)]),
    ):
        assert invoke("fork", *arguments, "--output", str(tmp_path / name)).exit_code == 0
        found = [read(path).facts for path in sorted((tmp_path / name).glob("*.jsonl"))]
        assert [(facts["start_step"], facts["updates"], facts["probes"]) for facts in found] == planned


def test_the_same_command_again_does_nothing_new(forks):
    output, _ = forks
    before = (output / f"{NAME}-random.jsonl").read_bytes()
    result = forked(output, "--no-second")
    assert result.exit_code == 0
    assert "resuming" not in result.output
    assert (output / f"{NAME}-random.jsonl").read_bytes() == before


def test_from_a_run_and_from_a_fork(forks, tmp_path):
    output, _ = forks
    run = invoke("train", "digits-lt", *SMALL, "--monitor-every", "0", "--stop-at", "3", "--output", str(tmp_path), "-q")
    assert run.exit_code == 0
    for source, step in ((tmp_path / "digits-lt-paired-seed3407", 3), (output / f"{NAME}-random", 4)):
        arguments = ("--from", str(source), *PLAN, "--set", "epochs=3", "--output", str(tmp_path / f"forks{step}"), "-q")
        result = invoke("fork", *arguments)
        assert result.exit_code == 0, result.output
        assert read(tmp_path / f"forks{step}" / f"{NAME}-trained.jsonl").facts["start_step"] == step


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), "give either a recipe"),
        (("digits-lt", "--from", "somewhere"), "give either a recipe"),
        (("digits-lt", "--step", "3"), "--step chooses a checkpoint"),
        (("digits-ltt",), "did you mean digits-lt"),
        (("--from", "nowhere"), "is nowhere the directory of a run"),
        (("digits-lt", "--branch", "origin"), "origin"),
        (("digits-lt", "--branch", "consistent"), "original first"),
        (("digits-lt", "--updates", "200"), "two forks of 200 updates go beyond the 320 updates of digits-lt: --set epochs=101 or more"),
        (("digits-lt", "--updates", "500", "--no-second"), "a fork of 500 updates after update 0 goes beyond"),
        (("digits-lt", "--seed", "-1"), "--seed must be from 0"),
        (("digits-lt", "--updates", "5", "--probes", "9"), "--probes must be from 2"),
    ],
)
def test_what_cannot_be_started(arguments, expected, tmp_path):
    result = invoke("fork", *arguments, "--output", str(tmp_path / "forks"))
    assert result.exit_code == 2
    assert expected in " ".join((result.output + (result.stderr or "")).split())
    assert "Traceback" not in result.output


def test_forks_are_collected_by_their_directory(forks, tmp_path):
    output, _ = forks
    result = invoke("collect", str(output / f"{NAME}-random"), "--records", str(tmp_path))
    assert result.exit_code == 0
    assert (tmp_path / f"{NAME}-random.jsonl").read_bytes() == (output / f"{NAME}-random.jsonl").read_bytes()


def test_another_batch_size_cannot_go_on_from_a_state(forks, tmp_path):
    output, _ = forks
    result = invoke("fork", "--from", str(output / f"{NAME}-random"), *PLAN, "--set", "batch_size=16", "--output", str(tmp_path))
    assert result.exit_code == 2
    assert "a fork cannot start from this state" in " ".join((result.output + (result.stderr or "")).split())

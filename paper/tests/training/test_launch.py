"""What a run is, and when two are the same."""

import dataclasses

import pytest
import torch

from pairgrad_paper.data import load_benchmark
from pairgrad_paper.runs import RunDirectory, RunMismatch
from pairgrad_paper.training import Arm, Process, Sharing, load_data, run_directory
from paper.tests.training.small import arm, digits, opened, recipe


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seed": 2}, "seed: 1 there, 2 given"),
        ({"realization": "original"}, 'realization: "arfr" there, "original" given'),
        ({"recipe": recipe("patt", "epochs=3")}, "recipe.epochs: 2 there, 3 given"),
    ],
)
def test_another_run_is_refused(change, words, tmp_path):
    with opened(tmp_path / "run", arm()):
        pass
    with pytest.raises(RunMismatch, match=words), opened(tmp_path / "run", dataclasses.replace(arm(), **change)):
        pass


def test_other_data_are_refused(tmp_path):
    (tmp_path / "root").mkdir()
    facts = arm().facts(digits())
    first = digits().class_counts[0]
    fewer = arm().facts(dataclasses.replace(digits(), class_counts=(first - 1, *digits().class_counts[1:])))
    with RunDirectory.create(tmp_path / "run", facts) as run:
        assert run.differences(facts) == ()
        (line,) = run.differences(fewer)
        assert line.startswith("data.class_counts: [117, 71")
        assert "[116, 71" in line


def test_another_number_of_processes_is_another_run(tmp_path):
    """Batch normalisation has the statistics of each process's own part."""
    with RunDirectory.create(tmp_path / "run", arm().facts(digits(), Process(0, 2))):
        pass
    with (
        pytest.raises(RunMismatch, match=r"(?s)processes: 2 there, 1 given.*With --reshare it resumes with the options given now"),
        opened(tmp_path / "run", arm()),
    ):
        pass


def test_a_run_may_be_shared_in_another_way_and_remembers(tmp_path, monkeypatch):
    monkeypatch.setattr(Process, "any", lambda self, flag, what: flag)  # there is no group

    def shared(ranks, classes, reshare, realization="arfr"):
        process = Process(0, ranks, sharing=Sharing(classes, reshare=reshare))
        return run_directory(tmp_path / "run", dataclasses.replace(arm(), realization=realization), digits(), process=process)

    with shared(4, 2, True) as run:
        assert (run.changed, "before" in run.facts) == ((), False)
    with shared(2, 1, True) as run:
        assert run.changed == ("processes: 4 there, 2 given", "sharing.class_parallel: 2 there, 1 given")
    with shared(2, 1, False) as run:  # as it was last: needs no word
        assert run.changed == ()
    with pytest.raises(RunMismatch, match="processes: 2 there, 4 given"), shared(4, 2, False):
        pass
    with shared(1, 1, True) as run:
        assert len(run.changed) == 2
        wide, narrow = ({"class_parallel": classes, "exchange": "auto", "wrap": "ddp"} for classes in (2, 1))
        assert run.facts["before"] == [{"processes": 4, "sharing": wide}, {"processes": 2, "sharing": narrow}]
        assert run.differences(arm().facts(digits())) == ()
    written = (tmp_path / "run" / "run.json").read_bytes()
    with pytest.raises(RunMismatch, match=r"(?s)realization.*or the options of that run$"), shared(2, 1, True, "paired"):
        pass
    assert (tmp_path / "run" / "run.json").read_bytes() == written


def test_what_is_trained_on_is_among_the_facts_and_what_it_is_tested_on_is_not():
    plain = arm().facts(digits())
    fewer = dataclasses.replace(digits(), ood=(), notes=("a source is missing",), files=(), test=digits().test.subset(range(10)))
    assert arm().facts(fewer) == plain
    assert Arm(dataclasses.replace(arm().recipe, summary="in other words", notes=("said",)), "arfr", 1).facts(digits()) == plain
    train = digits().train
    darker = dataclasses.replace(train, images=train.images // 2)
    assert arm().facts(dataclasses.replace(digits(), train=darker)) != plain
    swapped = dataclasses.replace(train, labels=train.labels.flip(0))
    assert arm().facts(dataclasses.replace(digits(), train=swapped)) != plain
    others = digits().outliers.subset(range(4000))
    assert arm().facts(dataclasses.replace(digits(), outliers=others)) != plain
    assert arm("proco").facts(dataclasses.replace(digits(), outliers=others)) == arm("proco").facts(digits())  # it has no use for them


def test_the_files_that_were_found_are_kept(tmp_path):
    with run_directory(tmp_path / "run", arm(), digits()) as run:
        assert run.environment["data"]["files"] == [dataclasses.asdict(fact) for fact in digits().files]
        assert run.environment["data"]["notes"] == list(digits().notes)


def test_data_are_loaded_as_the_recipe_says():
    loaded = load_data(recipe("patt", "data.imbalance=7", "data.rule=shuffled"), None)
    wanted = load_benchmark("digits-lt", imbalance=7.0, rule="shuffled")
    assert loaded.class_counts == wanted.class_counts != digits().class_counts
    indices = torch.arange(len(wanted.train))
    assert torch.equal(loaded.train.batch(indices), wanted.train.batch(indices))

"""Settings of recipes: `key=value`, what cannot be, and the way to JSON and back."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from pairgrad_paper.catalogue import UnknownName
from pairgrad_paper.recipes import RECIPES, Data, Optimizer, Recipe, SettingError, as_data, changed, from_data, keys, recipe_named
from pairgrad_paper.runs import RunDirectory

DIGITS = RECIPES["digits-lt"]
each = pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)


def put(data: dict[str, Any], key: str, value: object) -> dict[str, Any]:
    """A copy of plain data with one leaf replaced."""
    copy = json.loads(json.dumps(data))
    *groups, last = key.split(".")
    inner = copy
    for group in groups:
        inner = inner[group]
    inner[last] = value
    return copy


def test_recipes_by_name() -> None:
    assert recipe_named("digits-lt") is DIGITS
    with pytest.raises(
        UnknownName, match=r"no recipe is called 'digit-lt'; did you mean digits-lt.*\? There are digits-lt, patt-cifar10-lt-if10, "
    ):
        recipe_named("digit-lt")
    with pytest.raises(UnknownName, match=r"no recipe is called 'xyzzy'; there are digits-lt, "):
        recipe_named("xyzzy")


@pytest.mark.parametrize(
    ("setting", "key", "value"),
    [
        ("epochs=5", "epochs", 5),
        (" epochs = 5 ", "epochs", 5),
        ("optimizer.lr=0.01", "optimizer.lr", 0.01),
        ("optimizer.lr=1e-2", "optimizer.lr", 0.01),
        ("optimizer.name=sgd", "optimizer.name", "sgd"),
        ("data.imbalance=20", "data.imbalance", 20.0),
        ("data.imbalance=none", "data.imbalance", None),
        ("data.imbalance=NULL", "data.imbalance", None),
        ("data.outliers=photo-patches", "data.outliers", "photo-patches"),
        ("data.outliers=a=b.npy", "data.outliers", "a=b.npy"),
        ("model.normalize=true", "model.normalize", True),
        ("model.normalize=False", "model.normalize", False),
        ("model.head=512,128", "model.head", (512, 128)),
        ("model.head=(512, 128)", "model.head", (512, 128)),
        ("model.head=none", "model.head", None),
        ("schedule.milestones=60,80", "schedule.milestones", (60, 80)),
        ("schedule.milestones=[60]", "schedule.milestones", (60,)),
        ("schedule.milestones=", "schedule.milestones", ()),
        ("loss.adjustment_weight=0", "loss.adjustment_weight", 0.0),
        ("loss.cap=1e4", "loss.cap", 1e4),
        ("optimizer.momentum=0", "optimizer.momentum", 0.0),
        ("seed=9223372036854775807", "seed", 2**63 - 1),
        ("batch_size=2", "batch_size", 2),
    ],
)
def test_settings_are_read(setting: str, key: str, value: object) -> None:
    result = keys(changed(DIGITS, [setting]))
    assert result[key] == value
    assert type(result[key]) is type(value)
    before = keys(DIGITS)
    assert {name: result[name] for name in result if name != key} == {name: before[name] for name in before if name != key}


def test_a_longer_run_has_the_schedule_of_the_public_code() -> None:
    proco = RECIPES["proco-cifar100-lt-if100"]
    long = changed(proco, ["epochs=400"]).schedule
    assert (long.milestones, long.warmup) == ((360, 380), 10)
    assert changed(proco, ["epochs=300"]).schedule == proco.schedule
    own = changed(proco, ["schedule.milestones=300", "epochs=400"]).schedule
    assert (own.milestones, own.warmup) == ((300,), 5)
    assert changed(DIGITS, ["epochs=400"]).schedule == DIGITS.schedule


def test_no_outlier_view() -> None:
    assert changed(DIGITS, ["views.outliers=none", "outlier_batch_size=0"]).views.outliers is None


def test_later_settings_win_and_the_recipe_stays() -> None:
    assert changed(DIGITS, ["epochs=5", "epochs=6"]).epochs == 6
    assert changed(DIGITS, []) == DIGITS == RECIPES["digits-lt"]


def test_every_key_can_be_set() -> None:
    """To the value it has, written as `--dry-run` shows it."""
    for recipe in (DIGITS, RECIPES["proco-cifar10-lt-if10"], RECIPES["patt-imagenet-lt"]):
        settings = []
        for key, value in keys(recipe).items():
            text = (
                ",".join(map(str, value))
                if isinstance(value, tuple)
                else str(value).lower()
                if value in (None, True, False)
                else str(value)
            )
            settings.append(f"{key}={text}")
        assert changed(recipe, settings) == recipe
        assert as_data(changed(recipe, settings)) == as_data(recipe)


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("epochs", r"--set must look like key=value, for example optimizer\.lr=0\.01, got 'epochs'"),
        ("epoch=3", r"no setting is called 'epoch'; did you mean epochs"),
        ("lr=3", r"no setting is called 'lr'; did you mean optimizer\.lr\?"),
        ("optimizer.rl=3", r"no setting is called 'optimizer\.rl'; did you mean optimizer\.lr"),
        ("zzzzzzz=3", r"no setting is called 'zzzzzzz'; there are data\.benchmark, data\.imbalance, "),
        ("=3", r"no setting is called ''; there are "),
        ("name=other", r"no setting is called 'name'; did you mean optimizer\.name\?"),
        ("summary=other", r"no setting is called 'summary'"),
        ("notes=other", r"no setting is called 'notes'"),
        ("epochs.more=3", r"no setting is called 'epochs\.more'; did you mean epochs"),
        ("optimizer.lr.more=3", r"no setting is called 'optimizer\.lr\.more'; did you mean optimizer\.lr"),
        ("__class__=3", r"no setting is called '__class__'"),
        ("optimizer.=3", r"no setting is called 'optimizer\.'"),
        (
            "optimizer=sgd",
            r"'optimizer' is a group of settings: set one of optimizer\.name, optimizer\.lr, optimizer\.weight_decay, optimizer\.momentum, optimizer\.nest",
        ),
        ("epochs=five", r"epochs must be a whole number, got 'five'"),
        ("epochs=5.5", r"epochs must be a whole number, got '5\.5'"),
        ("epochs=1e2", r"epochs must be a whole number, got '1e2'"),
        ("epochs=none", r"epochs must be a whole number, got 'none'"),
        ("epochs=", r"epochs must be a whole number, got ''"),
        ("epochs=0", r"epochs must be at least 1, got 0"),
        ("batch_size=1", r"batch_size must be at least 2, because batch normalisation needs two samples, got 1"),
        ("outlier_batch_size=-1", r"outlier_batch_size must be from 0 to 1e\+18, got -1"),
        ("seed=-1", r"seed must be from 0 to 2\*\*63 - 1, got -1"),
        ("seed=9223372036854775808", r"seed must be from 0 to 2\*\*63 - 1, got 9223372036854775808"),
        ("optimizer.lr=fast", r"optimizer\.lr must be a number, got 'fast'"),
        ("optimizer.lr=nan", r"optimizer\.lr must be a finite number, got 'nan'"),
        ("optimizer.lr=1e999", r"optimizer\.lr must be a finite number, got '1e999'"),
        ("optimizer.lr=0", r"optimizer\.lr must be above 0, up to 1e\+18, got 0\.0"),
        ("optimizer.weight_decay=-1", r"optimizer\.weight_decay must be from 0 to 1e\+18, got -1\.0"),
        ("optimizer.momentum=1", r"optimizer\.momentum must be from 0 up to, not including, 1, got 1\.0"),
        ("optimizer.name=adamw", r"optimizer\.name must be one of adam, sgd, got 'adamw'"),
        ("optimizer.nesterov=yes", r"optimizer\.nesterov must be true or false, got 'yes'"),
        ("schedule.kind=linear", r"schedule\.kind must be one of cosine, late-cosine, steps, constant, got 'linear'"),
        ("schedule.milestones=80,60", r"schedule\.milestones must be epochs in rising order, got \(80, 60\)"),
        ("schedule.milestones=60,60", r"schedule\.milestones must be epochs in rising order"),
        ("schedule.milestones=0,60", r"schedule\.milestones must be epochs in rising order"),
        ("schedule.milestones=60,x", r"schedule\.milestones must be a whole number, got 'x'"),
        ("schedule.warmup=-1", r"schedule\.warmup must be from 0 to 1e\+18, got -1"),
        ("schedule.factor=0", r"schedule\.factor must be above 0, up to 1e\+18, got 0\.0"),
        ("model.head=512", r"model\.head must be 2 numbers with a comma between them, got '512'"),
        ("model.head=1,2,3", r"model\.head must be 2 numbers with a comma between them, got '1,2,3'"),
        (
            "model.head=0,128",
            r"model\.head must be two numbers, the hidden width \(at least 1\) and the dimension \(at least 2\), got \(0, 128\)",
        ),
        ("model.head=512,1", r"model\.head must be two numbers"),
        ("model.backbone=resnet19", r"model\.backbone must be one of resnet18, resnet32, .*, got 'resnet19'"),
        ("model.classifier=none", r"model\.classifier must be one of linear, cosine, got 'none'"),
        ("loss.method=ce", r"loss\.method must be one of patt, proco, got 'ce'"),
        ("loss.preset=best", r"loss\.preset must be one of cifar, imagenet, cifar-readme, got 'best'"),
        ("loss.memory=short", r"loss\.memory must be one of .*, got 'short'"),
        ("loss.geometry=flat", r"loss\.geometry must be one of .*, got 'flat'"),
        ("loss.temperature=1e-300", r"loss\.temperature must be from 1e-18 to 1e\+18, got 1e-300"),
        ("loss.logit_temperature=1e-40", r"loss\.logit_temperature must be from 1e-18 to 1e\+18, got 1e-40"),
        ("loss.cap=1e40", r"loss\.cap must be above 0, up to 1e\+18, got 1e\+40"),
        ("optimizer.lr=1e40", r"optimizer\.lr must be above 0, up to 1e\+18, got 1e\+40"),
        ("optimizer.weight_decay=1e300", r"optimizer\.weight_decay must be from 0 to 1e\+18, got 1e\+300"),
        ("optimizer.weight_decay=1e19", r"optimizer\.weight_decay must be from 0 to 1e\+18"),
        ("optimizer.lr=" + "9" * 5000, r"optimizer\.lr must be a finite number, got '9{60}\.\.\.'$"),
        ("loss.temperature=0", r"loss\.temperature must be from 1e-18 to 1e\+18, got 0\.0"),
        ("loss.logit_temperature=-1", r"loss\.logit_temperature must be from 1e-18 to 1e\+18"),
        ("loss.outlier_weight=-1", r"loss\.outlier_weight must be from 0 to 1e\+18"),
        ("loss.adjustment_weight=-1", r"loss\.adjustment_weight must be from 0 to 1e\+18"),
        ("loss.contrast_weight=-1", r"loss\.contrast_weight must be from 0 to 1e\+18"),
        ("loss.cap=0", r"loss\.cap must be above 0"),
        ("data.benchmark=cifar10", r"data\.benchmark must be one of digits-lt, cifar10-lt, .*, got 'cifar10'"),
        ("data.rule=last", r"data\.rule must be one of first, shuffled, got 'last'"),
        ("data.imbalance=0.5", r"data\.imbalance must be at least 1, got 0\.5"),
        ("views.regular=none", r"views\.regular must be one of .*, got 'none'"),
        ("views.test=digits", r"views\.test must be one of .*digits-test, got 'digits'"),
    ],
)
def test_what_cannot_be_set(setting: str, sentence: str) -> None:
    with pytest.raises(SettingError, match=rf"^{sentence}"):
        changed(DIGITS, [setting])


@pytest.mark.parametrize(
    ("name", "settings", "sentence"),
    [
        (
            "patt-imagenet-lt",
            ["data.imbalance=100"],
            r"data\.imbalance must be none for imagenet-lt, which is long-tailed as published, got 100",
        ),
        (
            "digits-lt",
            ["data.benchmark=cifar10-lt"],
            r"views\.regular must be a pipeline for images of 3 channels, which cifar10-lt has, got 'digits-r",
        ),
        (
            "digits-lt",
            ["views.test=cifar-test"],
            r"views\.test must be a pipeline for images of 1 channel, which digits-lt has, got 'cifar-test'",
        ),
        ("digits-lt", ["views.calibration=cifar-test"], r"views\.calibration must be a pipeline for images of 1 channel"),
        (
            "digits-lt",
            ["schedule.kind=steps", "schedule.milestones=1,2", "schedule.factor=1e12"],
            r"schedule\.factor must leave the learning rate below 1e\+18 after all milestones, got 1e\+12",
        ),
        ("patt-imagenet-lt", ["optimizer.momentum=0"], r"optimizer\.nesterov must be false where optimizer\.momentum is 0"),
        (
            "proco-cifar10-lt-if10",
            ["outlier_batch_size=64"],
            r"outlier_batch_size must be 0 for ProCo, whose loss has no term for outliers, got 64",
        ),
        (
            "digits-lt",
            ["views.outliers=none"],
            r"outlier_batch_size must be 0 while views\.outliers is none, got 64: name the pipeline of outliers too",
        ),
    ],
)
def test_settings_that_cannot_go_together(name: str, settings: list[str], sentence: str) -> None:
    with pytest.raises(SettingError, match=rf"^{sentence}"):
        changed(RECIPES[name], settings)


def test_contradictions_are_looked_for_at_the_end() -> None:
    """The order of settings does not matter."""
    settings = ["optimizer.momentum=0", "optimizer.nesterov=false"]
    assert changed(RECIPES["patt-imagenet-lt"], settings) == changed(RECIPES["patt-imagenet-lt"], settings[::-1])
    assert changed(RECIPES["patt-imagenet-lt"], ["optimizer.momentum=0", "optimizer.name=adam"]).optimizer.nesterov  # of SGD only


CHANGES = (
    "epochs=3",
    "data.outliers=x.npy",
    "model.head=4,8",
    "schedule.milestones=1,2",
    "loss.cap=7",
    "loss.outlier_weight=1",
    "model.normalize=true",
)


@each
@pytest.mark.parametrize("settings", [(), CHANGES], ids=["plain", "changed"])
def test_there_and_back(recipe: Recipe, settings: tuple[str, ...]) -> None:
    given = changed(recipe, settings)
    data = as_data(given)
    read = json.loads(json.dumps(data, allow_nan=False))
    assert read == data  # strict JSON already: no tuples
    back = from_data(read)
    assert back == given
    assert {key: type(value) for key, value in keys(back).items()} == {key: type(value) for key, value in keys(given).items()}
    assert json.dumps(as_data(back)) == json.dumps(data)


def same(first: Recipe, second: Recipe) -> bool:
    """Whether the facts are equal, type by type."""
    return json.dumps(as_data(first)) == json.dumps(as_data(second))


def test_equal_recipes_have_equal_facts(tmp_path: Path) -> None:
    """A run is taken up again only if its facts are equal, type by type: 20 and 20.0 must not differ."""
    for recipe, setting in (
        (DIGITS, "data.imbalance=20"),
        (RECIPES["patt-cifar10-lt-if100"], "data.imbalance=100"),
        (RECIPES["proco-cifar10-lt-if50"], "data.imbalance=50.0"),
        (RECIPES["proco-cifar10-lt-if10"], "loss.contrast_weight=1"),
    ):
        assert same(recipe, changed(recipe, [setting]))
    whole = replace(DIGITS, data=Data("digits-lt", 20), optimizer=Optimizer("adam", 1, 0))  # a user's own, with whole numbers
    fractions = replace(DIGITS, data=Data("digits-lt", 20.0), optimizer=Optimizer("adam", 1.0, 0.0))
    assert same(whole, fractions)
    assert type(as_data(whole)["data"]["imbalance"]) is float
    assert type(as_data(whole)["epochs"]) is int
    assert type(as_data(whole)["model"]["normalize"]) is bool
    with RunDirectory.create(tmp_path / "run", as_data(DIGITS), {}) as run:
        assert list(run.differences(as_data(changed(DIGITS, ["data.imbalance=21"])))) == ["data.imbalance: 20.0 there, 21.0 given"]


@pytest.mark.parametrize(
    ("preset", "stored"),
    [
        ("cifar", [("paper", "cifar"), ("released-code", "cifar")]),
        ("imagenet", [("paper", "imagenet"), ("released-code", "imagenet"), ("released-readme", "imagenet")]),
        ("cifar-readme", [("released-readme", "cifar")]),
    ],
)
def test_presets_keep_their_stored_names(preset: str, stored: list[tuple[str, str]]) -> None:
    """Records on disk have two fields, preset and benchmark, and names that were once two for the same numbers."""
    recipe = changed(DIGITS, [f"loss.preset={preset}"])
    data = as_data(recipe)
    assert list(data["loss"])[:4] == ["method", "temperature", "preset", "benchmark"]
    assert (data["loss"]["preset"], data["loss"]["benchmark"]) == stored[0]
    for pair in stored:
        assert from_data(put(put(data, "loss.preset", pair[0]), "loss.benchmark", pair[1])) == recipe


def test_recipes_of_stored_records_are_read_and_written_alike() -> None:
    """Those that come with the package, byte by byte."""
    headers = [json.loads(path.read_text().splitlines()[0]) for path in files("pairgrad_paper.records").joinpath("data").iterdir()]
    recipes = [header["facts"]["recipe"] for header in headers if "recipe" in header["facts"]]
    assert recipes
    for stored in recipes:
        assert json.dumps({key: value for key, value in as_data(from_data(stored)).items() if key in stored}) == json.dumps(stored)


def test_whole_numbers_in_a_record_are_fractions_too() -> None:
    back = from_data(put(as_data(DIGITS), "data.imbalance", 20))
    assert back == DIGITS
    assert type(back.data.imbalance) is float


FOREIGN = r"^the recipe of this run is not one that this version of pairgrad writes: "


@pytest.mark.parametrize("data", [None, 3, "digits-lt", [], [{}], ["name"]])
def test_no_recipe_at_all(data: Any) -> None:
    with pytest.raises(SettingError, match=FOREIGN + r"expected name, summary, data, .*, got "):
        from_data(data)


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("epochs", "five", FOREIGN + r"epochs is 'five'$"),
        ("epochs", 5.0, FOREIGN + r"epochs is 5\.0$"),
        ("epochs", True, FOREIGN + r"epochs is True$"),
        ("epochs", None, FOREIGN + r"epochs is None$"),
        ("epochs", 0, r"^epochs must be at least 1, got 0$"),
        ("name", 3, FOREIGN + r"name is 3$"),
        ("notes", "one", FOREIGN + r"notes is 'one'$"),
        ("notes", [1], FOREIGN + r"notes is \[1\]$"),
        ("optimizer.lr", "0.1", r"^the recipe of this run \(optimizer\) is not one .*: optimizer\.lr is '0\.1'$"),
        ("optimizer.lr", True, r"optimizer\.lr is True$"),
        ("optimizer.lr", float("nan"), r"optimizer\.lr is nan$"),
        ("optimizer.nesterov", 1, r"optimizer\.nesterov is 1$"),
        ("optimizer.name", "lion", r"^optimizer\.name must be one of adam, sgd, got 'lion'$"),
        (
            "optimizer",
            None,
            r"^the recipe of this run \(optimizer\) is not one .*: expected name, lr, weight_decay, momentum, nesterov, got None$",
        ),
        ("model.head", [1, 2, 3], r"model\.head is \[1, 2, 3\]$"),
        ("model.head", [1.5, 2], r"model\.head is \[1\.5, 2\]$"),
        ("model.head", "12", r"model\.head is '12'$"),
        ("data.imbalance", [], r"data\.imbalance is \[\]$"),
        ("views.test", None, r"views\.test is None$"),
        ("views.test", "cifar-test", r"^views\.test must be a pipeline for images of 1 channel"),
        ("loss.preset", "best", r"^the recipe of this run \(loss\) is not one .*: loss\.preset is 'best' and loss\.benchmark 'cifar'$"),
        ("loss.preset", [], r"loss\.preset is \[\] and loss\.benchmark 'cifar'$"),
        ("loss.benchmark", None, r"loss\.preset is 'paper' and loss\.benchmark None$"),
        ("loss", 3, r"^the recipe of this run \(loss\) is not one .*, got 3$"),
        ("more", 1, FOREIGN + r"missing nothing, unknown more$"),
        ("schedule.more", 1, r"^the recipe of this run \(schedule\) is not one .*: missing nothing, unknown more$"),
    ],
)
def test_foreign_values(key: str, value: object, sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        from_data(put(as_data(DIGITS), key, value))


def test_missing_values() -> None:
    data = as_data(DIGITS)
    del data["epochs"], data["seed"]
    with pytest.raises(SettingError, match=FOREIGN + r"missing epochs, seed, unknown nothing$"):
        from_data(data)

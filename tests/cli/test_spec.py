"""The languages of --inputs, --domain and --constraints: what they mean, and what they say to mistakes."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from pairgrad.cli.spec import SpecError, check_inputs, make_inputs, parse_constraints, parse_domain
from pairgrad.coherence import Box, LogRange


def made(text, seed=0, dtype=torch.float64):
    return make_inputs(text, seed, dtype)


def one(text, **options):
    (value,), keywords = made(text, **options)
    assert keywords == {}
    return value


def same(a, b):
    return a.dtype == b.dtype and torch.equal(a, b)


def test_random_numbers_are_those_of_the_seed():
    def normal(seed):
        return torch.randn(5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)

    assert same(one("randn(5)", seed=7), normal(7))
    assert not torch.equal(one("randn(5)", seed=8), normal(7))
    (first, second), _ = made("randn(5), randn(5)")
    assert not torch.equal(first, second)


def test_numbers_lie_where_they_should():
    x = one("uniform(0.5, 4, (2000,))")
    assert 0.5 <= x.min() < 0.52
    assert 3.9 < x.max() < 4
    assert one("positive(500)").min() > 0
    assert set(one("randint(3, (200,))").tolist()) == {0, 1, 2}
    assert set(one("randint(5, 7, (200,))").tolist()) == {5, 6}
    assert set(one("bernoulli(0.5, (200,))").tolist()) == {0.0, 1.0}
    torch.testing.assert_close(one("unit(7, 9)").norm(dim=-1), torch.ones(7, dtype=torch.float64))
    torch.testing.assert_close(one("simplex(7, 9)").sum(-1), torch.ones(7, dtype=torch.float64))
    torch.testing.assert_close(one("geomspace(0.01, 100, 3)"), torch.tensor([0.01, 1, 100], dtype=torch.float64))
    spd = one("spd(4, 4)")
    assert same(spd, spd.mT)
    assert torch.linalg.eigvalsh(spd).min() > 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *((text, torch.ones(2, 3).double()) for text in ("ones(2, 3)", "ones((2,3))", "ones([2, 3,])")),
        ("ones()", torch.ones(()).double()),
        ("zeros(0)", torch.zeros(0).double()),
        ("linspace(0, 1, 5)", torch.linspace(0, 1, 5, dtype=torch.float64)),
        ("logspace(-1, 1, 3)", torch.logspace(-1, 1, 3, dtype=torch.float64)),
        ("full(2.5, (2,))", torch.tensor([2.5, 2.5]).double()),
        ("eye(2)", torch.eye(2).double()),
        ("arange(3)", torch.arange(3)),
        ("[1.5, 2, -3]", torch.tensor([1.5, 2, -3]).double()),
        ("[1, 2]", torch.tensor([1, 2])),
        ("[[1, 2], [3, 4.0]]", torch.tensor([[1, 2], [3, 4.0]]).double()),
        ("[true, false]", torch.tensor([True, False])),
        ("ones(2):float32", torch.ones(2)),
        ("[1, 2]:bfloat16", torch.tensor([1, 2], dtype=torch.bfloat16)),
        ("-0.5:float64", torch.tensor(-0.5).double()),
        ("bernoulli(1, (2,)):bool", torch.tensor([True, True])),
    ],
)
def test_tensors(text, expected):
    assert same(one(text), expected), one(text)


def test_plain_values_stay_plain():
    args, kwargs = made("3, -0.5, 1e3, true, None, 'a: #b\\n', (3, 4),\n [], n=3, name=\"x\",")
    assert args[:7] == (3, -0.5, 1000.0, True, None, "a: #b\\n", (3, 4))
    assert isinstance(args[0], int)
    assert kwargs == {"n": 3, "name": "x"}


def test_lists_of_tensors_are_lists():
    value = one("[randn(2), [1.0, 2.0]]")
    assert [type(item) for item in value] == [torch.Tensor, torch.Tensor]
    assert one("(randn(2), 3)")[1] == 3


def test_the_dtype_of_the_audit_is_that_of_what_does_not_say_its_own():
    assert one("randn(2)", dtype=torch.float32).dtype == torch.float32
    assert one("[0.5]", dtype=torch.float32).dtype == torch.float32
    assert one("randn(2):float64", dtype=torch.float32).dtype == torch.float64
    assert one("randint(3, (2,))", dtype=torch.float32).dtype == torch.int64


def test_what_is_fixed_is_not_differentiated_and_the_rest_is():
    (x, y, labels), _ = made("randn(2), fixed(randn(2)):float32, randint(3, (2,))")
    assert x.requires_grad
    assert not y.requires_grad
    assert y.dtype == torch.float32
    assert not labels.requires_grad
    assert not one("randn(2)").requires_grad


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("rnadn(3)", 1, "unknown name 'rnadn': did you mean 'randn'?"),
        ("\u00e9=1, x=rnd", 8, "unknown name 'rnd'"),
        ("randn(3", 8, "expected a comma or ')', but the text ends"),
        ("[1, 2", 6, "expected a comma or ']', but the text ends"),
        ("3)(4", 2, "unexpected ')'"),
        ("randn", 1, "randn needs arguments, for example randn(32, 128)"),
        ("x=1, x=2", 6, "'x' is given twice"),
        ("randn(3):flot32", 10, "expected a dtype after ':', got 'flot32'"),
        ("randn(3):", 10, "expected a dtype after ':'"),
        ("3 4", 1, "expected a comma"),
        ("x=", 3, "expected a value"),
        ("", 1, "no inputs"),
        ("  'abc", 3, "quotation mark that is not closed"),
        ("randint(10, 32)", 1, "randint of two numbers needs a shape too"),
        ("randn(4, dtype=float32)", 10, "a dtype follows after a colon"),
        ("2, torch.randn(4)", 4, "names stand alone here: write randn, not torch.randn"),
        ("uniform((3,), 1, 2)", 1, "uniform is written like uniform(0.1, 4, (16,))"),
        ("randn(-1)", 7, "a size must be a whole number from 0 to 268435456, got -1"),
        ("randn(4, true)", 10, "expected a number or a shape, got 'true'"),
        ("randn(99999, 99999)", 1, "elements is more than"),
        ("randn(3).numpy()", 1, "cannot read 'randn(3).numpy'"),
        ("x.y=3", 1, "cannot read 'x.y'"),
        ("__import__('os')", 1, "unknown name '__import__'"),
        ("f'{x}'", 1, "unknown name"),
        ("[x for x in y]", 1, "expected a value, got '[x for x in y]'"),
        ("2, (lambda: 3)", 11, "cannot read"),
        ("3, 9**9**9", 4, "expected a value, got '9**9**9'"),
        ("3, {2}", 4, "expected a value, got '{2}'"),
        ("*x", 1, "expected a value, got '*x'"),
        ("**x", 1, "expected name=value"),
        ("3, 1|float32", 5, "unexpected '|'"),
        ("randn(3) # 4", 10, "unexpected '#'"),
        ("3, 123456789012345678901", 4, "a whole number must be below 2 to the 63"),
    ],
)
def test_mistakes_are_pointed_at(text, column, message):
    with pytest.raises(SpecError) as caught:
        check_inputs(text)
    lines = str(caught.value).splitlines()
    assert message in lines[0]
    assert lines[0].endswith(f"(column {column})")
    assert lines[1] == f"    {text}"
    assert lines[2] == " " * (4 + column - 1) + "^"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *((opening * 3000, "too many brackets inside one another") for opening in ("(", "[", "fixed(", "[(")),
        *((f"{part * 9000}1", "too many operators inside one another") for part in ("-", "1+", "not ")),
        ("1" + ":float32" * 9000, "too many operators inside one another"),
        ("1, " * 40_000, "expected at most 100000 characters, got 120000"),
        ("9" * 5000, "cannot read '9999"),
        ("9" * 4000, "a whole number must be below"),
        ("1\0", "cannot read|control characters"),
        ("\ud800", "control characters"),
    ],
)
def test_long_and_deep_texts_are_refused(text, message):
    with pytest.raises(SpecError, match=message) as caught:
        check_inputs(text)
    assert len(str(caught.value).splitlines()[0]) < 120


@pytest.mark.parametrize("opening", ["(", "[", "fixed(", "[("])
def test_some_brackets_inside_one_another_are_read(opening):
    closing = {"(": ")", "[": "]"}
    made(opening * 15 + "1.5" + "".join(closing[mark] for mark in reversed(opening * 15) if mark in closing))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x=3, 4", "a value without a name cannot follow one with a name"),
        ("randint(10, 32)", r"randint\(10, \(32,\)\) is 32 whole numbers below 10"),
        ("randn(4, dtype=float32)", r"as in randn\(4\):float32"),
        ("np.linspace(0, 1, 3)", r"as in linspace\(0, 1, 8\)"),
        ("uniform(1, 0, (3,))", "low < high"),
        ("randint(0, (3,))", "low < high"),
        ("bernoulli(2, (3,))", "from 0 to 1"),
        ("geomspace(-1, 1, 3)", "positive ends"),
        ("spd(3, 4)", "two equal sizes"),
        ("eye(20000)", "eye of 20000 rows has 400000000 elements, more than"),
        ("300:uint8", "without overflow"),
        ("[9223372036854775808]", "must be below 2 to the 63"),
        ("eye(1e999)", "a number of elements must be a whole number from 0 to 268435456, got inf"),
        ("linspace(0, 1, 1e999)", "a number of elements must be a whole number from 0 to 268435456, got inf"),
        ("randint(1e999, (3,))", "randint needs whole numbers low < high, both of 64 bits, got 0 and inf"),
        ("1e999:int64", "cannot make '1e999:int64': value cannot be converted"),
        ("zeros(0, 268435456, 268435456, 268435456)", "cannot make 'zeros.*': Stride calculation overflowed"),
        ("zeros(" + "1," * 65 + ")", "zeros of 65 dimensions has more than 64"),
        ("linspace(0, 1, 2.5)", "whole number"),
        ("[[1, 2], [3]]", "rows of different lengths"),
        ("'text':float32", "only a tensor or a number"),
        ("@nowhere.pt", "no such file: nowhere.pt"),
        ("@inputs.txt", "read from .safetensors, .pt, .pth and .json"),
    ],
)
def test_other_mistakes_and_hints(text, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "inputs.txt").touch()
    with pytest.raises(SpecError, match=message):
        made(f"3, {text}")


def test_what_is_unknown_gets_a_list_of_examples_that_work():
    with pytest.raises(SpecError) as caught:
        check_inputs("nothing(3)")
    assert max(map(len, str(caught.value).splitlines())) <= 80
    _, _, hint = str(caught.value).partition("known: ")
    examples = re.findall(r"\b[a-z]+\((?:[-\d, ]|\d\.\d|\([\d, ]+\))+\)(?::\w+)?", " ".join(hint.split()))
    assert {"randn", "uniform", "unit", "simplex", "spd", "randint", "bernoulli", "geomspace"} <= {text.split("(")[0] for text in examples}
    assert len(examples) >= 17
    assert all(isinstance(one(text), torch.Tensor) for text in examples)


def test_a_long_text_is_shown_around_the_mistake():
    with pytest.raises(SpecError) as caught:
        check_inputs("randn(3), " * 30 + "rnadn(3), " + "randn(3), " * 30)
    _, shown, pointer, *_ = str(caught.value).splitlines()
    assert len(shown) <= 80
    assert shown[pointer.index("^") :].startswith("rnadn")


def test_files_of_tensors(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x = torch.arange(3.0, dtype=torch.float64)
    save_file({"x": x, "y": x + 1}, "named.safetensors")
    save_file({"0": x, "1": x + 1}, "numbered.safetensors")
    torch.save((x, 3), "pair.pt")
    torch.save({"x": x}, "one file.pt")
    (tmp_path / "inputs.json").write_text(json.dumps({"x": [1.5, 2], "n": 3, "deep": {"y": [[1, 2]]}}))
    (tmp_path / "list.json").write_text("[[1.5], 3]")
    args, kwargs = made("@named.safetensors")
    assert args == ()
    assert same(kwargs["y"], x + 1)
    args, kwargs = made("@numbered.safetensors")
    assert same(args[1], x + 1)
    assert made("@pair.pt")[0][1] == 3
    assert same(made('@"one file.pt"')[1]["x"], x)
    kwargs = made("@inputs.json")[1]
    assert same(kwargs["x"], torch.tensor([1.5, 2], dtype=torch.float64))
    assert kwargs["n"] == 3
    assert same(kwargs["deep"]["y"], torch.tensor([[1, 2]]))
    assert made("@list.json")[0][1] == 3
    args, kwargs = made("@pair.pt, n=3")
    assert same(args[0][0], x)
    assert kwargs == {"n": 3}


def test_files_are_read_without_executing_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"x": Evil()}, "evil.pt")
    with pytest.raises(SpecError, match=r"evil\.pt cannot be read: it holds an object made by 'posix\.mkdir', and only tensors"):
        made("@evil.pt")
    assert not (tmp_path / "executed").exists()
    torch.load("evil.pt", weights_only=False)  # it would have been
    assert (tmp_path / "executed").exists()


class Evil:
    def __reduce__(self):
        return os.mkdir, ("executed",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 900 + "]" * 900, "is not a JSON file: it is nested more than 64 deep"),
        ("[" + "9" * 200 + "]", "holds numbers that make no tensor"),
        ("[" + "9" * 5000 + "]", "is not a JSON file: it has an integer of 5000 digits"),
        ("[[1], [1, 2]]", None),
        ('{"x": [[1], [1, 2]]}', "holds numbers that make no tensor: rows of different lengths"),
    ],
    ids=range(5),
)
def test_json_that_asks_for_much_is_refused_by_its_name(text: str, message: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.json").write_text(text)
    if message is None:
        assert len(made("@x.json")[0]) == 2
        return
    with pytest.raises(SpecError, match=rf"x\.json {message}"):
        made("@x.json")


@pytest.mark.parametrize("name", ["broken.pt", "broken.json", "broken.safetensors"])
def test_broken_files(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text("{nonsense")
    with pytest.raises(SpecError, match=r"broken\.\w+ (is not a|cannot be read: it is not a)"):
        made(f"@{name}")


def test_a_file_name_that_is_nearly_right(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "batch.pt").touch()
    with pytest.raises(SpecError, match=r"did you mean 'batch\.pt'"):
        made("@bacth.pt")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.1..4", Box(0.1, 4)),
        ("1..4", Box(1, 4)),
        ("-1 .. +1", Box(-1, 1)),
        (".5..1.", Box(0.5, 1)),
        ("log 1e-3..1e3", LogRange(1e-3, 1e3)),
        ("x=log 1..1e4, y=-1..1", {"x": LogRange(1, 1e4), "y": Box(-1, 1)}),
        ("input 0=0..1, layer.weight=-1..1", {"input 0": Box(0, 1), "layer.weight": Box(-1, 1)}),
        ("-1..1, _, log 1..2", (Box(-1, 1), None, LogRange(1, 2))),
    ],
)
def test_domains(text, expected):
    assert parse_domain(text) == expected


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("a..b", 1, "expected low..high, got 'a..b'"),
        ("x=0..1, y=1", 11, "expected low..high, got '1'"),
        ("4..1", 1, "needs low < high"),
        ("0..1, log -1..1", 7, "log low..high needs 0 < low < high"),
        ("", 1, "expected low..high"),
        ("1..2,", 6, "expected low..high"),
        ("x=1..2, 3..4", 9, "cannot follow one with a name"),
        ("3..4, x=1..2", 1, "give every interval a name, or none"),
        ("0..inf", 1, "expected low..high"),
        ("0.1...4", 4, "three dots can be read in two ways"),
        ("y=0..1, x= 1...4", 13, "three dots can be read in two ways"),
        ("x=0..1, y=0..1, x=2..3", 17, "'x' is given twice"),
    ],
)
def test_mistakes_in_domains_are_pointed_at(text, column, message):
    with pytest.raises(SpecError) as caught:
        parse_domain(text)
    first = str(caught.value).splitlines()[0]
    assert message in first
    assert first.endswith(f"(column {column})")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("symmetric", "symmetric"),
        ("simplex, _", ("simplex", None)),
        ("x = sphere, w=orthogonal", {"x": "sphere", "w": "orthogonal"}),
    ],
)
def test_constraints(text, expected):
    assert parse_constraints(text) == expected


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("x=symetric", 3, "did you mean 'symmetric'?"),
        ("sphere, x=simplex", 1, "give every constraint a name, or none"),
        ("", 1, "there is no constraint ''"),
    ],
)
def test_mistakes_in_constraints_are_pointed_at(text, column, message):
    with pytest.raises(SpecError, match=re.escape(message)) as caught:
        parse_constraints(text)
    assert str(caught.value).splitlines()[0].endswith(f"(column {column})")

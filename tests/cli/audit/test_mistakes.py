"""Mistakes in a command, and in the function that is audited: what `pairgrad audit` says."""

from __future__ import annotations

import json
import signal

import pytest

from tests.cli.audit.command import audit, quick


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("losses",), "'losses' names no function: write module:function or path/to/file.py:function, for example losses:function"),
        (("losses.good",), "for example losses:good"),
        (("losses.py",), "'losses.py' is a file: name a function in it, as in losses.py:Sine; it holds Sine, Step, bad"),
        (("losses:",), "names no function"),
        (("losess:good",), "no module named 'losess' in {folder} or among the installed packages (did you mean 'losses'?)"),
        (("lossy.py:good",), "no such file: lossy.py"),
        (("nowhere/losses.py:good",), "there is no folder {folder}/nowhere"),
        (("losses:godo",), "losses has no 'godo' (did you mean 'good'?); it holds Sine, Step, bad, good"),
        (("losses:net.forwards",), "losses.net has no 'forwards' (did you mean 'forward'?)"),
        (("signal:f",), "signal is the name of another module, {signal}: name the file, signal.py:function"),
        (("losses:number",), "number is not callable: it is 3 (int)"),
        (("losses:Plain",), "Plain is a class, neither a torch.nn.Module nor a torch.autograd.Function"),
        (("losses:Needs",), "Needs is made with arguments (dim, heads): make one in the module, for example net = Needs(...)"),
        (("losses:Sine.forward",), "one half of a torch.autograd.Function: audit Sine"),
        (("imports:f",), "cannot import imports: ModuleNotFoundError: No module named 'nowhere_at_all' (imports.py:2)"),
        (("deep:f",), "cannot import deep: ZeroDivisionError: division by zero (fails.py:3, in at_import)"),
        (("syntax:f",), "cannot import syntax: syntax.py:2: invalid syntax"),
        (("script:f",), "cannot import script: it ends the program when imported (script.py:2, code 3)"),
        (("losses:good", "--inputs", "rnadn(3)"), "--inputs: unknown name 'rnadn': did you mean 'randn'? (column 1)"),
        (
            ("losses:good", "--inputs", "eye(1e999)"),
            "pairgrad audit: --inputs: a number of elements must be a whole number from 0 to 268435456, got inf",
        ),
        (("losses:good", "--sweep", "x=[eye(1e999)]"), "pairgrad audit: --sweep: a number of elements must be a whole number"),
        (
            ("losses:good", "--inputs", "zeros(0, 9999999999999999999)"),
            "pairgrad audit: --inputs: a whole number must be below 2 to the 63 (column 10)",
        ),
        (("losses:good", "--domain", "4..1"), "--domain: low..high needs low < high, got low=4.0, high=1.0 (column 1)"),
        (("losses:ratio", "--inputs", "randn(3)"), "the inputs do not fit ratio(x, y, *, power=1): missing a required argument: 'y'"),
        (("losses:ratio", "--domain", "0..1"), "the inputs do not fit ratio(x, y, *, power=1): missing"),
        (("losses:ratio", "--domain", "0..1, _"), "--domain leaves an input out (_)"),
        (("losses:good", "--domain", "y=0..1"), "the inputs do not fit good(x, scale=1.0)"),
        (("losses:good", "--inputs", "randn(2)", "--domain", "z=0..1"), "domain names 'z', which is not differentiated"),
        (("losses:only", "--inputs", "randn(3), y=randn(3)"), "takes some inputs by position only"),
        (("losses:good", "--inputs", "3"), "inputs must hold at least one floating-point tensor"),
        (("losses:good", "--inputs", "1", "--inputs-from", "losses:x"), "give --inputs or --inputs-from, not both"),
        (("losses:good", "--inputs-from", "wrong_inputs"), "wrong_inputs must give a tensor, a tuple of arguments or a dict"),
        (("losses:good", "--inputs-from", "broken_inputs"), "broken_inputs() raised KeyError: 'no batch' (losses.py:"),
        (("losses:raises", "--inputs", "randn(3)"), "raises raised ArithmeticError: the user's own words (losses.py:{raises}, in raises)"),
        (("losses:raises_inside", "--inputs", "spd(3,3)"), "raises_inside raised _LinAlgError: linalg.cholesky"),
        (
            ("losses:no_tensor", "--inputs", "randn(3)"),
            "no_tensor must return at least one floating-point tensor with elements, got 3.0 (float)",
        ),
        (("losses:exits", "--inputs", "randn(3)"), "exits ends the program (sys.exit, code 5)"),
        (("losses:interrupts", "--inputs", "randn(3)"), "interrupts raised KeyboardInterrupt (losses.py:"),
        (("losses:later", "--inputs", "randn(3)"), "later is an async function: a call gives no tensors"),
        (("losses:yields", "--inputs", "randn(3)"), "yields is a generator function: a call gives no tensors"),
        (("losses:constant",), "constant() takes no arguments, so there is nothing to differentiate"),
        (("losses:good", "--inputs", "(" * 3000), "--inputs: too many brackets inside one another (column 33)"),
        (("losses:nan", "--inputs", "randn(3)"), "nan returns nothing but NaN at the inputs"),
        (("losses:good", "--effort", "slow"), "--effort must be one of 'quick', 'standard', 'thorough', got 'slow'"),
        (("losses:good", "--dtype", "int64"), "--dtype must be one of"),
        (("losses:good", "--intent", "none"), "--intent must be one of"),
        (("losses:good", "--format", "xml"), "--format must be one of"),
        (("losses:good", "--tolerance", "2"), "--tolerance must be a number from 0 to 1"),
        (("losses:good", "--seed", "-1"), "--seed must be an integer >= 0"),
        (("losses:good", "--timeout", "-1"), "--timeout must be a number of seconds"),
        (("losses:good", "--html", "out.txt"), "--html must be a file that ends in .html or .htm, got out.txt"),
        (("losses:good", "--json", "out.html"), "--json must be a file that ends in .json"),
        (("losses:good", "--json", "losses.py/out.json"), "cannot write losses.py/out.json: losses.py is not a folder"),
        (("losses:good", "--json", "folder.json"), "cannot write folder.json: it is a folder"),
        (("losses:good", "losses:bad", "--json", "out.json"), "--json must be a folder where there are several targets"),
    ],
)
def test_mistakes_are_explained(here, arguments, message):
    (here / "folder.json").mkdir()
    (here / "imports.py").write_text("import os\nimport nowhere_at_all\n")
    (here / "deep.py").write_text("import fails\n")
    (here / "fails.py").write_text("\ndef at_import():\n    return 1 / 0\n\nat_import()\n")
    (here / "syntax.py").write_text("def f(x):\n  return x +\n")
    (here / "script.py").write_text("import sys\nsys.exit(3)\n")
    (here / "signal.py").write_text("def f(x):\n  return x\n")
    raises = 1 + (here / "losses.py").read_text().splitlines().index('    raise ArithmeticError("the user\'s own words")')
    code, out, err = quick(*arguments) if "--effort" not in arguments else audit(*arguments)
    assert code == 2, out + err
    assert message.format(folder=here, raises=raises, signal=signal.__file__) in err
    assert err.splitlines()[-1].startswith("pairgrad audit: ") or "(column" in err
    assert "Traceback" not in err
    assert len(err.splitlines()) <= 16
    if arguments[-1] == "z=0..1":  # a mistake, not a beginning of an audit
        assert out == ""
        assert "until then" not in err


def test_without_inputs_an_example_is_given_for_the_signature(here):
    code, _, err = audit("losses:ratio")
    assert code == 2
    assert "ratio(x, y, *, power=1) needs inputs" in err
    assert 'pairgrad audit losses:ratio --inputs "x=randn(8), y=randn(8)"' in err
    assert quick("losses:ratio", "--inputs", "x=randn(8), y=randn(8)")[0] == 0  # the example is right
    assert '--inputs "x=randn(8)"' in audit("losses:Sine")[2]
    assert '--inputs "randn(8), randn(8)"' in audit("losses:only")[2]


def test_a_place_that_cannot_be_written_is_found_before_the_function_is_called(here):
    (here / "marks.py").write_text("open('called', 'w').close()\ndef f(x):\n    return x\n")
    assert audit("marks:f", "--inputs", "randn(2)", "--html", "losses.py/x.html")[0] == 2
    assert not (here / "called").exists()
    assert quick("marks:f", "--inputs", "randn(2)", "--html", "new/x.html")[0] == 0
    assert (here / "called").exists()
    assert (here / "new" / "x.html").exists()


def test_the_traceback_begins_at_the_users_frame(here):
    _, _, err = quick("losses:raises", "--inputs", "randn(2)")
    assert "--traceback shows the way there" in err
    _, _, err = quick("losses:raises", "--inputs", "randn(2)", "--traceback")
    lines = err[err.index("Traceback") :].splitlines()
    assert lines[1].strip().startswith(f'File "{here}/losses.py"')
    assert "ArithmeticError: the user's own words" in err


def test_a_function_that_raises_in_the_middle(here):
    code, out, _ = quick("losses:raises_later", "--inputs", "[0.3]", "--json", "report.json")
    assert code == 2, out
    assert "UNDECIDED raises_later" in out
    assert "the audit stopped while repeating calls: fn raises ArithmeticError: once too often" in out
    assert json.loads((here / "report.json").read_text())["complete"] is False

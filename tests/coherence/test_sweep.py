"""Sweeps over the configurations of a function."""

from __future__ import annotations

import json

import pytest
import torch

import pairgrad as pg
from pairgrad.coherence import SweepReport, configurations


class SquaredError(torch.autograd.Function):
    """Its backward takes every reduction for the mean, and cannot do three dimensions."""

    @staticmethod
    def forward(ctx, x, reduction="mean", scale=None):
        if reduction == "max":
            raise NotImplementedError("reduction='max' is not there yet")
        ctx.save_for_backward(x)
        ctx.scale = 1.0 if scale is None else scale
        losses = ctx.scale * x.square()
        return losses.mean() if reduction == "mean" else losses

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        if x.ndim == 3:
            raise RuntimeError("no three dimensions")
        return grad_output * 2 * ctx.scale * x / x.numel(), None, None


squared_error = SquaredError.apply


def by_name(report):
    return {row.name: row for row in report.rows}


def test_the_smallest_failing_configuration_comes_first_and_the_rule_is_said():
    report = pg.sweep(squared_error, shape=[(5, 4), (3,)], reduction=["mean", "none"], dtype=[torch.float64, torch.float32])
    assert not report.passed
    assert report.complete
    assert (report.total, len(report.rows), len(report.failing)) == (8, 8, 4)
    assert report.rows[0].configuration == {"shape": "(5, 4)", "reduction": "'none'", "dtype": "float64"}
    assert [row.result for row in report.rows] == ["fails"] * 4 + ["passes"] * 4
    assert report.rule == "it fails exactly where reduction is 'none'"
    text = str(report)
    assert text.startswith("FAIL SquaredError.apply: 4 fail, 4 pass of 8 configurations\nIt fails exactly where reduction is 'none'.")
    assert "(5, 4)  'none'" in text
    assert "is 0.05 x the true one" in text  # of the smallest one: 1 / 20


def test_of_equally_many_changes_the_fewest_elements_come_first():
    def wrong(x, y):
        return squared_error(x, "none") + y

    report = pg.sweep(wrong, shape=[[(), ()], [(9,), (9,)], [(2,), (2,)]], dtype=[torch.float64])
    assert [row.elements for row in report.failing] == [4, 18]  # one number is right


def test_a_configuration_that_the_forward_refuses_is_no_failure_and_one_that_the_backward_cannot_do_is():
    report = pg.sweep(squared_error, shape=[(3,), (2, 3, 4)], reduction=["mean", "max"], dtype=torch.float64)
    rows = by_name(report)
    assert rows["shape=(3,), reduction='mean', dtype=float64"].result == "passes"
    refused = rows["shape=(3,), reduction='max', dtype=float64"]
    assert (refused.result, refused.text) == ("refused", "raises NotImplementedError: reduction='max' is not there yet")
    broken = rows["shape=(2, 3, 4), reduction='mean', dtype=float64"]
    assert (broken.result, broken.text) == ("fails", "the forward runs, the backward raises RuntimeError: no three dimensions")
    assert rows["shape=(2, 3, 4), reduction='max', dtype=float64"].result == "refused"
    nothing = pg.sweep(squared_error, shape=[(3,)], reduction=["max"])
    assert not nothing.passed


def test_arguments_are_left_out_and_made_from_the_configuration():
    seen = []

    def loss(x, labels, weight=None, *, reduction="mean"):
        seen.append((x.shape, labels.shape, weight is None, reduction))
        return torch.nn.functional.cross_entropy(x, labels, weight, reduction=reduction)

    def made(shape):
        return torch.randn(shape), torch.randint(shape[1], shape[:1])

    weight = torch.rand(5)
    report = pg.sweep(loss, made, shape=[(4, 5), (1, 5)], weight=[..., weight], reduction=["sum", "none"], dtype=[torch.float64])
    assert report.passed, str(report)
    assert len(report.rows) == 8
    assert {(tuple(x), tuple(y), left_out, reduction) for x, y, left_out, reduction in seen} == {
        (shape, shape[:1], left_out, reduction) for shape in [(4, 5), (1, 5)] for left_out in (True, False) for reduction in ("sum", "none")
    }


@pytest.mark.parametrize(("grad", "names"), [(False, {"input 0"}), (True, {"input 0", "input 1"})])
def test_a_tensor_among_the_values_is_differentiated_where_it_is_marked(grad, names):
    scale = torch.rand(3, dtype=torch.float64, requires_grad=grad)
    report = pg.sweep(lambda x, scale: x.sin() * scale, lambda: torch.rand(3, dtype=torch.float64), scale=[scale])
    (row,) = report.rows
    assert {state.argument for state in row.report.states if state.argument.startswith("input") and state.order == 1} == names


def test_an_argument_of_a_function_that_takes_no_keywords_may_be_skipped():
    report = pg.sweep(squared_error, shape=[(3,)], scale=[2.0, 0.5])  # and `reduction`, which stands before it, has its default
    assert [row.result for row in report.rows] == ["passes", "passes"], str(report)


def test_inputs_do_not_depend_on_what_was_drawn_before():
    case = next(configurations(squared_error, shape=[(3,)]))
    torch.manual_seed(1)
    first = case.inputs.args[0]
    torch.manual_seed(2)
    assert torch.equal(case.inputs.args[0], first)


def test_when_time_is_up_every_value_was_tried_with_the_defaults_and_the_rest_is_named():
    report = pg.sweep(torch.sin, shape=[(k,) for k in range(1, 400)], dtype=[torch.float64, torch.float32], seconds=1.5)
    assert not report.complete
    assert report.total == 798
    assert 0 < len(report.rows) < 798
    assert max(row.changed for row in report.rows) == 1
    assert f"not reached, because time was up ({report.seconds:.3g} s): {798 - len(report.rows)}: {report.not_reached[0]}" in str(report)
    assert f"of {len(report.rows)} configurations reached, 798 in all" in report.headline


def test_options_of_the_audit_are_handed_on_and_the_function_comes_first():
    def scaled(x, tolerance):
        return tolerance * squared_error(x, "mean")

    report = pg.sweep(scaled, shape=(3,), tolerance=[0.5, 2.0], dtype=torch.float64, effort="standard", second_order=False)
    assert report.passed, str(report)
    assert {row.report.effort for row in report.rows} == {"standard"}
    assert report.factors["tolerance"] == ("0.5", "2.0")
    excused = pg.sweep(squared_error, shape=[(3,)], reduction=["none"], tolerance=0.9)
    assert excused.passed


def test_the_report_comes_back_from_json_and_has_pages(tmp_path):
    report = pg.sweep(squared_error, shape=[(3,), (2, 3, 4)], reduction=["mean", "none", "max"], dtype=torch.float64)
    again = SweepReport.from_dict(json.loads(report.to_json(tmp_path / "sweep.json")))
    assert str(again) == str(report)
    assert json.loads((tmp_path / "sweep.json").read_text())["schema"] == "pairgrad.sweep/1"
    index = report.to_html(tmp_path / "pages").read_text()
    assert len(list((tmp_path / "pages").iterdir())) == 1 + sum(row.report is not None for row in report.rows) == 3
    assert index.index("&#39;none&#39;") < index.index(">shape=(3,), reduction=&#39;mean&#39;")  # what fails comes first
    assert "the backward raises RuntimeError: no three dimensions" in index
    assert "raises NotImplementedError" in index


def test_configurations_are_test_cases():
    cases = list(configurations(squared_error, shape=[(3,), (4,)], reduction=["mean", "none"]))
    assert [str(case) for case in cases] == [
        "shape=(3,), reduction='mean'",
        "shape=(4,), reduction='mean'",
        "shape=(3,), reduction='none'",
        "shape=(4,), reduction='none'",
    ]
    assert pg.assert_coherent(squared_error, cases[0].inputs).passed
    with pytest.raises(AssertionError):
        pg.assert_coherent(squared_error, cases[2].inputs)
    first, second = cases[0].inputs.args[0], cases[0].inputs.args[0]
    assert torch.equal(first, second)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"shape": [(3,)], "reducton": ["mean"]},
            "reducton must be an argument of fn or of inputs (give a function that takes it): fn takes",
        ),
        ({"reduction": ["mean"]}, "inputs must be given unless shape is"),
        ({"shape": []}, "shape must be a list with at least one value"),
        ({}, "grid must have at least one name"),
        ({"shape": [(3,)], "seconds": -1}, "seconds must be a number above 0"),
        ({"shape": [(3,)], "progress": 3}, "progress must be a callable"),
    ],
)
def test_mistakes_are_told(arguments, message):
    with pytest.raises((TypeError, ValueError)) as told:
        pg.sweep(squared_error, **arguments)
    assert message in str(told.value)


def test_a_shape_that_is_none_is_told():
    report = pg.sweep(squared_error, shape=["four"])
    assert "shape must be a list of shapes such as (4, 5)" in report.rows[0].text

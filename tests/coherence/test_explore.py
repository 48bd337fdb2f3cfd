"""Which lines are looked along and what becomes of their readings, rule by rule, on readings that are made up. Whole audits are in test_audit.py."""

from __future__ import annotations

import dataclasses
import importlib
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
import torch

from pairgrad.coherence.explore import (
    EFFORTS,
    GROSS,
    Effort,
    GradientOf,
    Observation,
    Size,
    defect_size,
    groups,
    line_through,
    observe,
    observe_second,
    settled,
)
from pairgrad.coherence.limits import LADDER
from pairgrad.coherence.panel import noise_allowance
from pairgrad.coherence.path import Line, Pullable
from pairgrad.coherence.state import Reading
from pairgrad.coherence.subject import Subject
from tests.coherence.functions import doubles, points, sine_with
from tests.coherence.lines import number_line
from tests.coherence.readings import panel_of, seen

explore = importlib.import_module("pairgrad.coherence.explore")
NOBODY = cast(Pullable, None)  # a line is drawn without asking the callable
QUICK = EFFORTS["quick"]
NAMES = [f"x{i}" for i in range(30)]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# Observations and their sizes -------------------------------------------------------------------------------------------


def test_the_absolute_size_of_a_defect_is_that_along_the_line_over_the_step() -> None:
    assert seen("incoherent", panel=panel_of(defect=-0.5), scale=4.0).absolute == 0.125
    assert seen("incoherent", panel=panel_of(defect=-0.5)).absolute is None
    assert seen("incoherent").order == Observation("x", "x", seen("coherent").reading, cast(Line, None), None).order == 1


def test_a_defect_beside_a_state_is_said_to_be_near_it_unless_its_place_is_named() -> None:
    assert seen("incoherent", state="the inputs").place == "the inputs"
    for middle in (-1.0, 0.25, 1.0):
        assert seen("incoherent", state="the inputs", middle=middle).place == "a place near the inputs"
        assert seen("incoherent", state="x = 3", middle=middle).place == "x = 3"
    assert seen("incoherent", state="x = 3").place == "x = 3"


@pytest.mark.parametrize("record", [seen("coherent"), Size(0.1, 0.2, 0.3), QUICK], ids=lambda record: type(record).__name__)
def test_what_is_handed_round_cannot_be_edited(record: Any) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign"):
        setattr(record, dataclasses.fields(record)[0].name, None)
    assert (record == replace(record)) == (not isinstance(record, Observation))


def test_the_size_of_a_defect_is_a_root_mean_square_over_that_of_the_derivatives() -> None:
    """Along two lines: defects 3 and 4 (the gradient says 5 - 3 and 3 + 4 where the value has slopes of 5 and 3), differences 5 and 12."""
    lines = [
        seen("incoherent", panel=panel_of(defect=-3.0, slope=5.0, allowance=0.3), difference=5.0),
        seen("incoherent", panel=panel_of(defect=4.0, slope=3.0, allowance=0.4), difference=12.0),
    ]
    ignored = [seen("unresolved", panel=panel_of(defect=9.0), difference=9.0), seen("incoherent", panel=panel_of(), difference=None)]
    size = math.hypot(5, 7)
    found = defect_size([*lines, *ignored, seen("incoherent")])
    assert found.relative == pytest.approx(5 / size, rel=1e-15)
    assert found.error == pytest.approx(math.hypot(0.6, 0.8) / size, rel=1e-15)
    assert found.by_differences == pytest.approx(13 / size, rel=1e-15)


def test_the_size_of_the_gradient_counts_by_a_64th_where_its_parts_cancel_along_the_line() -> None:
    cancelled = panel_of(defect=0.25, slope=0.0, gradient=32.0)
    assert defect_size([seen("incoherent", panel=cancelled)]).relative == 0.5
    assert defect_size([seen("incoherent", panel=replace(cancelled, slope=0.75))]).relative == 0.25


def test_without_a_line_that_shows_a_defect_its_size_is_zero_and_nothing_is_known_of_it() -> None:
    assert defect_size([]) == defect_size([seen("coherent", panel=panel_of(defect=1.0))]) == Size(0.0, math.inf, 0.0)


# The noise of a state ---------------------------------------------------------------------------------------------------

LOUD = 2.0**-12
DRIFT = noise_allowance(LOUD)  # just what is allowed


def drifting(noise: float, verdict: str = "incoherent", drift: float = -DRIFT) -> Observation:
    return seen(verdict, panel=panel_of(noise=noise, drift=(0.0, drift, drift / 2)))


def verdicts(*observations: Observation) -> list[str]:
    return [observation.reading.verdict for observation in settled(list(observations))]


def test_a_defect_that_drowns_in_the_noise_of_another_line_is_unresolved() -> None:
    quiet = LOUD * (1 - 2.0**-50)
    clear = drifting(LOUD, "coherent")
    assert verdicts(drifting(0.0), clear) == ["unresolved", "coherent"]
    assert verdicts(drifting(0.0), drifting(quiet, "coherent")) == ["incoherent", "coherent"]
    assert verdicts(clear, drifting(0.0), drifting(0.0, "coherent")) == ["coherent", "unresolved", "coherent"]
    assert verdicts(drifting(quiet), drifting(LOUD), clear) == ["unresolved", "incoherent", "coherent"]
    assert verdicts(drifting(0.0, "kink"), seen("incoherent"), clear) == ["kink", "incoherent", "coherent"]


def test_the_noise_of_a_state_is_read_where_nothing_is_wrong_and_the_gradient_is_smooth() -> None:
    loud = 2 * LOUD
    rough = seen("coherent", panel=panel_of(noise=loud, quadrature=1.0, allowance=1.0))
    other = [drifting(loud, "incoherent"), drifting(loud, "kink"), seen("coherent"), rough]
    assert verdicts(drifting(0.0), *other)[0] == "incoherent"
    assert verdicts(drifting(0.0, drift=0.0))[0] == "incoherent"
    assert verdicts(drifting(0.0, drift=0.0), drifting(0.0, "coherent"))[0] == "incoherent"
    found = settled([drifting(0.0), drifting(loud, "coherent")])[0]
    assert found.reading.panel is not None
    assert (found.state, found.reading.panel.drift) == ("the inputs", (0.0, -DRIFT, -DRIFT / 2))


# How much is looked at --------------------------------------------------------------------------------------------------


def test_quick_is_half_of_standard_and_thorough_several_times_as_much() -> None:
    """ "Thorough looks at four times as many places", says the page on the auditor; "glance" is one line for each tensor, "whole" are two for all."""
    glance, quick, standard, thorough, whole = (EFFORTS[name] for name in ("glance", "quick", "standard", "thorough", "whole"))
    fields = ("relative", "even", "states", "tiles", "sweeps")
    ratios = {name: [getattr(effort, field) / getattr(standard, field) for field in fields] for name, effort in EFFORTS.items()}
    assert ratios["quick"] == [0.5] * 5
    assert ratios["thorough"] == [3, 3, 4, 4, 2]
    assert dataclasses.astuple(glance)[:5] == (1, 0, 1, 16, 0)
    assert dataclasses.astuple(whole)[:5] == (2, 0, 1, 16, 1)
    assert standard.tiles == 64
    assert [effort.separate for effort in (glance, quick, standard, thorough, whole)] == [12, 12, 12, 12, 1]
    assert len(EFFORTS) == 5


@pytest.mark.parametrize("dtype", LADDER)
def test_short_segments_are_powers_of_two_that_fall(dtype: torch.dtype) -> None:
    halves = explore._SHORT[dtype]
    assert max(halves) <= 0.5
    assert all(math.frexp(half)[0] == 0.5 for half in halves)
    assert list(halves) == sorted(set(halves), reverse=True)
    assert len(halves) > 2
    assert min(halves) > 2 * torch.finfo(dtype).eps


def test_each_tensor_is_moved_alone_and_then_all_of_them() -> None:
    assert groups(NAMES[:1]) == [("x0", [0])]
    assert groups(NAMES[:2]) == [("x0", [0]), ("x1", [1]), ("all tensors", [0, 1])]
    assert groups(NAMES[:2], together="all outputs")[-1] == ("all outputs", [0, 1])
    assert groups([]) == [("all tensors", [])]


def test_from_thirteen_tensors_on_they_share_lines() -> None:
    twelve = groups(NAMES[:12])
    assert [part[1] for part in twelve] == [*([i] for i in range(12)), list(range(12))]
    thirteen = groups(NAMES[:13])
    assert len(thirteen) == 13
    assert thirteen[0] == ("x0 and 1 more", [0, 12])
    assert thirteen[1] == ("x1", [1])
    many = groups(NAMES)
    assert many[0] == ("x0 and 2 more", [0, 12, 24])
    assert sorted(i for _, chunk in many[:-1] for i in chunk) == many[-1][1] == list(range(30))
    assert groups(NAMES[:3], 2) == [("x0 and 1 more", [0, 2]), ("x1", [1]), ("all tensors", [0, 1, 2])]
    assert groups(NAMES[:3], 1) == [("x0 and 2 more", [0, 1, 2])]


# One line ---------------------------------------------------------------------------------------------------------------


def direction(
    point: Sequence[torch.Tensor], moved: Sequence[int], seed: int = 0, **options: Any
) -> tuple[list[torch.Tensor], float | None]:
    line, step = line_through(NOBODY, tuple(point), moved, (doubles(1.0),), generator(seed), **({"relative": True} | options))
    return list(line.path.velocity(0.0)), step


def test_steps_are_random_eighths_of_each_size_from_five_to_twelve() -> None:
    x = points(400) * 100
    (velocity,), step = direction([x], [0])
    sizes = 2 ** torch.floor(torch.log2(x.abs()))
    assert set((8 * velocity.abs() / sizes).tolist()) == set(map(float, range(5, 13)))
    assert (velocity > 0).any()
    assert (velocity < 0).any()
    assert step is None


def test_two_coordinates_do_not_move_alike_on_every_line() -> None:
    drawn = {tuple(direction([doubles(1.0, 1.0)], [0], seed)[0][0].abs().tolist()) for seed in range(20)}
    assert len(drawn) > 10


def test_even_steps_go_by_the_root_mean_square_of_the_tensor_and_tell_their_own() -> None:
    x = doubles(3.0, -20.0, 0.0)  # root mean square 11.7
    (velocity,), step = direction([x], [0], relative=False)
    eighths = velocity.abs()
    assert set(eighths.tolist()) <= {float(k) for k in range(5, 13)}
    assert step == pytest.approx(math.sqrt(float(eighths.square().mean())), rel=1e-15)
    assert float(eighths.min()) < step < float(eighths.max())


@pytest.mark.parametrize("relative", [True, False])
def test_a_single_number_moves_by_the_power_of_two_below_its_size(relative: bool) -> None:
    (velocity,), step = direction([doubles(-0.3)], [0], relative=relative)
    assert velocity.abs().tolist() == [0.25]
    assert step == 0.25


def test_several_tensors_have_one_step_if_all_coordinates_move_alike() -> None:
    near, far = doubles(0.3), doubles(5.0)
    assert direction([near, near], [0, 1])[1] == 0.25
    assert direction([near, far], [0, 1])[1] is None
    assert direction([near, far], [1])[1] == 4.0
    assert direction([near, near], [])[1] is None


def test_coordinates_that_move_in_proportion_to_their_sizes_have_no_one_step() -> None:
    for seed in range(40):  # at some of which the largest of the steps is 1
        assert direction([doubles(1.0, 0.25)], [0], seed)[1] is None
        assert direction([doubles(1.0, 0.25, 0.5)], [0], seed)[1] is None


@pytest.mark.parametrize("relative", [True, False])
def test_one_coordinate_moves_alone_by_its_own_scale(relative: bool) -> None:
    x = doubles(0.3, 5.0, -0.7)
    for k, own in enumerate((0.25, 4.0, 0.5)):
        wanted = own if relative else 2.0
        (velocity,), step = direction([x], [0], coordinate=k, relative=relative)
        assert velocity.abs().tolist() == [wanted if i == k else 0.0 for i in range(3)]
        assert step == wanted


def test_a_coordinate_is_counted_along_the_rows_however_the_tensor_is_laid_out() -> None:
    x = doubles(1.0, 2.0, 4.0, 8.0).reshape(2, 2).t()
    for k, own in enumerate((1.0, 4.0, 2.0, 8.0)):
        (velocity,), step = direction([x], [0], coordinate=k)
        assert velocity.abs().flatten().tolist() == [own if i == k else 0.0 for i in range(4)]
        assert step == own


@pytest.mark.parametrize("size", [2.0**-700, 2.0**700])
def test_steps_whose_squares_leave_the_range_are_told(size: float) -> None:
    x = doubles(1.0, 2.0) * size
    assert direction([x], [0], coordinate=1)[1] == 2 * size
    assert direction([x[:1]], [0])[1] == size


def test_tensors_that_are_not_moved_stay_and_those_after_them_move() -> None:
    velocity, _ = direction([doubles(1.0, 2.0), doubles(4.0)], [1])
    assert velocity[0].tolist() == [0.0, 0.0]
    assert velocity[1].abs().tolist() == [4.0]


def test_signs_are_those_of_a_direction_that_is_given() -> None:
    towards = (doubles(0.5, -3.0, 0.0, 2.0, -1.0),)
    for seed in range(3):
        (velocity,), _ = direction([torch.ones(5, dtype=torch.float64)], [0], seed, towards=towards)
        assert velocity.sign().tolist() == [1, -1, 0, 1, -1]


def test_a_line_goes_through_the_state_and_knows_the_largest_of_its_numbers() -> None:
    point = (doubles(0.3, -6.0), doubles(4.0), torch.zeros(0, dtype=torch.float64))
    line, _ = line_through(NOBODY, point, [0], (doubles(1.0),), generator(), relative=True)
    assert line.reference == 6.0
    assert line.path.point(0.0)[0].tolist() == pytest.approx([0.3, -6.0], rel=1e-15)
    for small in ((doubles(0.3),), (doubles(1.5),), (torch.zeros(0, dtype=torch.float64),)):
        line, _ = line_through(NOBODY, small, [], (doubles(1.0),), generator(), relative=True)
        assert line.reference == (1.5 if small[0].tolist() == [1.5] else 1.0)


# All lines through a state ----------------------------------------------------------------------------------------------


class Asked:
    """Stands for `examine` or `read`: keeps what it was asked, answers what it was told."""

    def __init__(self, *answers: Reading) -> None:
        self.answers = list(answers) or [seen("coherent", panel=panel_of()).reading]
        self.lines: list[Line] = []
        self.middles: list[float] = []
        self.halves: list[tuple[float, ...]] = []

    def __call__(self, line: Line, middle: float, halves: tuple[float, ...]) -> Reading:
        self.lines.append(line)
        self.middles.append(middle)
        self.halves.append(halves)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    made = Asked()
    monkeypatch.setattr(explore, "examine", made)
    monkeypatch.setattr(explore, "read", made)
    return made


def looked(subject: Subject, effort: Effort = QUICK, seed: int = 0) -> list[Observation]:
    return list(observe(subject, subject.tensors, "the inputs", effort, generator(seed)))


def arguments(subject: Subject, effort: Effort = QUICK) -> list[str]:
    return [observation.argument for observation in looked(subject, effort)]


def moves(observation: Observation) -> list[list[float]]:
    """By how much each coordinate of each tensor moves."""
    return [velocity.abs().flatten().tolist() for velocity in observation.line.path.velocity(0.0)]


def sum_of(*tensors: torch.Tensor) -> torch.Tensor:
    return sum((tensor.sin().sum() for tensor in tensors), torch.zeros((), dtype=torch.float64))


MANY = doubles(0.3, 5.0, -0.7, 1.0, 2.0)
EFFORT = Effort(3, 2, 1, 1, 1)


def test_a_tensor_gets_its_relative_lines_and_then_its_even_ones(asked: Asked) -> None:
    found = looked(Subject(sum_of, MANY), EFFORT)
    assert [observation.argument for observation in found] == ["input 0"] * 5
    assert [observation.scale is None for observation in found] == [True] * 3 + [False] * 2
    assert all(observation.state == "the inputs" and observation.order == 1 for observation in found)
    assert [observation.line for observation in found] == asked.lines
    assert asked.middles == [0.0] * 5
    assert asked.halves == [LADDER[torch.float64]] * 5


@pytest.mark.parametrize("count", [2, 4])
def test_each_of_up_to_four_coordinates_gets_a_line_of_its_own_in_place_of_even_ones(count: int, asked: Asked) -> None:
    found = looked(Subject(sum_of, MANY[:count]), EFFORT)
    own = [0.25, 4.0, 0.5, 1.0][:count]
    assert [moves(observation)[0] for observation in found[:count]] == [
        [size if i == k else 0.0 for i in range(count)] for k, size in enumerate(own)
    ]
    assert [observation.scale for observation in found] == [*own, None, None, None]
    assert all(0 not in moves(observation)[0] for observation in found[count:])


@pytest.mark.parametrize(("outputs", "lines"), [(1, 1), (2, 2), (3, 3), (4, 3)])
def test_a_single_number_gets_a_line_for_each_number_of_the_outputs(outputs: int, lines: int, asked: Asked) -> None:
    found = looked(Subject(lambda x: x.sin().expand(outputs), MANY[:1]), EFFORT)
    assert [observation.scale for observation in found] == [0.25] * lines


def test_a_single_number_gets_a_line_whatever_the_effort(asked: Asked) -> None:
    nothing = Effort(0, 0, 1, 1, 1)
    assert len(looked(Subject(sum_of, MANY[:1]), nothing)) == 1
    assert looked(Subject(sum_of, MANY), nothing) == []


def test_even_lines_of_a_single_number_would_be_the_same_as_relative_ones(monkeypatch: pytest.MonkeyPatch, asked: Asked) -> None:
    drawn: list[bool] = []

    def draw(*given: Any, relative: bool, **options: Any) -> Any:
        drawn.append(relative)
        return line_through(*given, relative=relative, **options)

    monkeypatch.setattr(explore, "line_through", draw)
    looked(Subject(sum_of, MANY[:1]), EFFORT)
    looked(Subject(sum_of, MANY[:3]), EFFORT)
    assert drawn == [True] * 7


def test_all_tensors_together_get_one_relative_line(asked: Asked) -> None:
    found = looked(Subject(sum_of, (MANY, MANY[:1])), EFFORT)
    assert [observation.argument for observation in found] == ["input 0"] * 5 + ["input 1"] + ["all tensors"]
    assert [sum(map(sum, moves(observation)[1:])) > 0 for observation in found] == [False] * 5 + [True] * 2
    assert all(step > 0 for tensor in moves(found[-1]) for step in tensor)
    assert found[-1].scale is None


def test_all_of_two_single_numbers_get_one_line(asked: Asked) -> None:
    found = looked(Subject(lambda x, y: (x * y).expand(3), (MANY[:1], MANY[:1])), EFFORT)
    assert [observation.argument for observation in found] == ["input 0"] * 3 + ["input 1"] * 3 + ["all tensors"]
    assert [moves(observation) for observation in found[3:]] == [[[0.0], [0.25]]] * 3 + [[[0.25], [0.25]]]


def test_each_line_has_a_cotangent_of_its_own(asked: Asked) -> None:
    subject = Subject(torch.sin, MANY)
    found = looked(subject, EFFORT)
    cotangents = [tuple(observation.line.cotangent[0].tolist()) for observation in found]
    assert len(set(cotangents)) == 5
    assert [tuple(o.line.cotangent[0].tolist()) for o in looked(subject, EFFORT)] == cotangents
    assert tuple(looked(subject, EFFORT, seed=1)[0].line.cotangent[0].tolist()) != cotangents[0]


def outputs(count: int) -> Subject:
    return Subject(lambda x: tuple((k + 1) * x for k in range(count)), MANY)


def test_each_of_several_outputs_gets_a_line_that_moves_everything(asked: Asked) -> None:
    subject = Subject(lambda x, y: (x.sin(), x * y), (MANY, MANY))
    found = looked(subject, EFFORTS["glance"])[3:]
    through = ["all tensors, through output 0", "all tensors, through output 1", "all tensors, through all outputs"]
    assert [observation.argument for observation in found] == through
    assert [[bool(u.any()) for u in o.line.cotangent] for o in found] == [[True, False], [False, True], [True, True]]
    assert all(step > 0 for observation in found for tensor in moves(observation) for step in tensor)
    assert [observation.scale for observation in found] == [None] * 3
    assert asked.middles == [0.0] * 6
    assert asked.halves == [LADDER[torch.float64]] * 6
    assert [observation.line for observation in found] == asked.lines[3:]
    assert arguments(outputs(1), EFFORTS["glance"]) == ["input 0"]


def test_from_25_outputs_on_they_share_lines(asked: Asked) -> None:
    glance = EFFORTS["glance"]
    assert arguments(outputs(24), glance)[1:] == [f"all tensors, through output {k}" for k in range(24)]
    shared = arguments(outputs(25), glance)[1:]
    assert shared[:2] == ["all tensors, through output 0 and 1 more", "all tensors, through output 1"]
    assert len(shared) == 24


def test_steps_through_outputs_are_relative(asked: Asked) -> None:
    subject = Subject(lambda x: (x.sin(), x.cos()), doubles(0.3, 1e6))
    for observation in looked(subject, EFFORTS["glance"])[3:]:
        small, large = moves(observation)[0]
        assert small < 0.4
        assert large > 2.0**18


# All tensors of a model at once -----------------------------------------------------------------------------------------

WHOLE = EFFORTS["whole"]


def test_whole_moves_all_tensors_along_the_signs_of_the_gradient_and_along_random_ones(asked: Asked) -> None:
    subject = Subject(lambda x, y: (x.sin() * y).sum(), (points(40), points(40, seed=1)))
    found = looked(subject, replace(WHOLE, relative=3))
    assert [observation.argument for observation in found] == ["all tensors, along the gradient", "all tensors", "all tensors"]
    gradient = subject.pull(subject.tensors, (torch.ones((), dtype=torch.float64),)).gradients
    alike = [all(torch.equal(v.sign(), g.sign()) for v, g in zip(o.line.path.velocity(0.0), gradient, strict=True)) for o in found]
    assert alike == [True, False, False]
    assert all(step > 0 for observation in found for tensor in moves(observation) for step in tensor)
    assert all(observation.scale is None for observation in found)
    assert asked.middles == [0.0] * 3
    assert asked.halves == [explore._SHORT[torch.float64]] * 3
    assert len(looked(subject, replace(WHOLE, relative=1))) == 1
    assert len(looked(subject, WHOLE)) == 2


def test_whole_moves_each_coordinate_in_proportion_to_its_size(asked: Asked) -> None:
    for observation in looked(Subject(sum_of, (doubles(0.3, 1e6), doubles(2.0)))):
        small, large = moves(observation)[0]
        assert small < 0.4 or large == 0 or small == 0
    for observation in looked(Subject(sum_of, (doubles(0.3, 1e6), doubles(2.0))), WHOLE):
        small, large = moves(observation)[0]
        assert small < 0.4
        assert large > 2.0**18


def test_a_model_of_one_tensor_and_other_numbers_of_groups_get_lines_as_usual(asked: Asked) -> None:
    assert arguments(Subject(sum_of, MANY), WHOLE) == ["input 0"] * 2
    two = Subject(sum_of, (MANY, MANY))
    assert arguments(two, WHOLE) == ["all tensors, along the gradient", "all tensors"]
    assert arguments(two, replace(WHOLE, separate=2)) == ["input 0"] * 2 + ["input 1"] * 2 + ["all tensors"]
    assert arguments(two, replace(WHOLE, separate=3)) == ["input 0"] * 2 + ["input 1"] * 2 + ["all tensors"]


@pytest.mark.parametrize(
    ("verdicts", "lengths"),
    [
        (["coherent"], [4]),
        (["incoherent"], [4]),
        (["unresolved", "coherent"], [4, 3]),
        (["unresolved", "unresolved", "incoherent"], [4, 3, 2]),
        (["unresolved"] * 4, [4, 3, 2]),
    ],
)
def test_shorter_segments_are_read_while_the_longer_ones_leave_it_open(verdicts: list[str], lengths: list[int], asked: Asked) -> None:
    asked.answers = [seen(verdict).reading for verdict in verdicts]
    found = looked(Subject(sum_of, (MANY, MANY)), replace(WHOLE, relative=1))
    assert [len(halves) for halves in asked.halves] == lengths
    short = explore._SHORT[torch.float64]
    assert asked.halves == [short[len(short) - length :] for length in lengths]
    assert asked.middles == [0.0] * len(lengths)
    assert [observation.reading.verdict for observation in found] == [verdicts[len(lengths) - 1]]


# The gradient as a callable ---------------------------------------------------------------------------------------------


def test_the_gradient_of_a_subject_is_a_function_of_the_point_and_of_the_cotangent() -> None:
    """x^2 y with the cotangent u and the weights (2, 3): u (2 2 x y + 3 x^2), here at x = 3, y = 5, u = 7."""
    subject = Subject(lambda x, y: x * x * y, (doubles(3.0), doubles(5.0)))
    gradient = GradientOf(subject, (doubles(2.0), doubles(3.0)))
    point = (doubles(3.0), doubles(5.0), doubles(7.0))
    assert [output.item() for output in gradient.outputs_at(point)] == [7 * (60 + 27)]
    found = gradient.pull(point, (torch.ones((), dtype=torch.float64),))
    assert [output.item() for output in found.outputs] == [7 * (60 + 27)]
    assert [part.item() for part in found.gradients] == [7 * (20 + 18), 7 * 12, 60 + 27]


def test_second_order_lines_move_each_argument_and_then_grad_output(asked: Asked) -> None:
    subject = Subject(lambda x, y: (x.sin() * y, x.exp()), (MANY, MANY))
    found = list(observe_second(subject, subject.tensors, EFFORT, generator()))
    assert [observation.argument for observation in found] == ["input 0"] * 3 + ["input 1"] * 3 + ["grad_output"] * 3
    assert [[any(tensor) for tensor in moves(observation)] for observation in found] == (
        [[True, False, False, False]] * 3 + [[False, True, False, False]] * 3 + [[False, False, True, True]] * 3
    )
    assert {(o.state, o.order, o.scale) for o in found} == {("the inputs", 2, None)}
    assert asked.middles == [0.0] * 9
    assert asked.halves == [LADDER[torch.float64]] * 9
    assert {o.line.cotangent[0].item() for o in found} == {1.0}


@pytest.mark.parametrize(("relative", "lines"), [(0, 2), (1, 2), (2, 2), (3, 3)])
def test_second_order_takes_two_lines_at_least(relative: int, lines: int, asked: Asked) -> None:
    subject = Subject(torch.sin, MANY)
    found = list(observe_second(subject, subject.tensors, Effort(relative, 0, 1, 1, 0), generator()))
    assert [observation.argument for observation in found] == ["input 0"] * lines + ["grad_output"] * lines


@pytest.mark.parametrize("size", [0.03125, 8.0, 2.0**-700, 2.0**700])
def test_weights_of_the_gradient_have_the_size_of_the_tensor(size: float, asked: Asked) -> None:
    """Root mean square of (1, 7) is 5; that of zeros counts as 1."""
    subject = Subject(sum_of, (doubles(1.0, 7.0) * size, doubles(0.0, 0.0)))
    for observation in observe_second(subject, subject.tensors, QUICK, generator()):
        first, second = cast(GradientOf, observation.line.subject).weights
        assert first.abs().tolist() == pytest.approx([5 * size] * 2, rel=1e-15)
        assert second.abs().tolist() == [1.0, 1.0]
        assert observation.line.largest == pytest.approx(max(5 * size, 1.0), rel=1e-15)


def test_steps_of_second_order_are_relative(asked: Asked) -> None:
    subject = Subject(sum_of, doubles(0.3, 1e6))
    small, large = moves(next(iter(observe_second(subject, subject.tensors, QUICK, generator()))))[0]
    assert small < 0.4
    assert large > 2.0**18


@pytest.mark.parametrize(
    ("verdict", "defect", "in_x", "in_cotangent"),
    [
        ("incoherent", 0.0999, "incoherent", "unresolved"),
        ("incoherent", 0.1, "incoherent", "incoherent"),
        ("coherent", 0.0999, "coherent", "coherent"),
        ("coherent", 0.5, "coherent", "coherent"),
        ("kink", 0.0, "kink", "kink"),
    ],
)
def test_only_a_missing_part_is_a_defect_in_grad_output(
    verdict: str, defect: float, in_x: str, in_cotangent: str, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked.answers = [seen(verdict, panel=panel_of(defect=defect)).reading]
    monkeypatch.setattr(explore, "_in_steps", lambda line, found: False)
    subject = Subject(torch.sin, MANY)
    found = list(observe_second(subject, subject.tensors, QUICK, generator()))
    assert [observation.reading.verdict for observation in found] == [in_x] * 2 + [in_cotangent] * 2
    assert GROSS == 0.1


@pytest.mark.parametrize(
    ("allowance", "steps", "dtype", "verdict"),
    [
        (1e-6, False, torch.float64, "incoherent"),
        (1e-6, True, torch.float64, "unresolved"),
        (0.0026, False, torch.float64, "unresolved"),  # the limit is twice the allowance, half of the size 1: a hundredth of the defect
        (0.0024, False, torch.float64, "incoherent"),
        (1e-6, True, torch.float32, "unresolved"),
        (1e-6, True, torch.bfloat16, "incoherent"),
    ],
)
def test_a_second_derivative_is_missing_only_where_its_size_is_certain_and_short_segments_lack_it_too(
    allowance: float, steps: bool, dtype: torch.dtype, verdict: str, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked.answers = [seen("incoherent", panel=panel_of(defect=0.5, allowance=allowance)).reading]
    monkeypatch.setattr(explore, "_in_steps", lambda line, found: steps)
    subject = Subject(torch.sin, MANY.to(dtype))
    found = list(observe_second(subject, subject.tensors, QUICK, generator()))
    assert {observation.reading.verdict for observation in found if observation.argument != "grad_output"} == {verdict}


def test_a_subtle_defect_of_a_second_derivative_need_not_be_known_well(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explore, "_in_steps", lambda line, found: False)
    subject = Subject(torch.sin, MANY)
    for defect, verdict in ((9e-7, "incoherent"), (1.1e-6, "unresolved")):
        asked.answers = [seen("incoherent", panel=panel_of(defect=defect, allowance=0.05 * defect)).reading]
        found = list(observe_second(subject, subject.tensors, QUICK, generator()))
        assert {observation.reading.verdict for observation in found if observation.argument != "grad_output"} == {verdict}


def test_what_is_right_on_a_short_segment_moves_in_steps() -> None:
    large, small = (seen("incoherent", panel=panel_of(defect=defect)).reading for defect in (0.5, 1e-17))
    assert explore._in_steps(number_line(torch.sin), large)
    assert explore._in_steps(number_line(lambda x: (x - 2.0**-9).relu()), large)  # a kink beside the place, and nothing at the place
    assert not explore._in_steps(number_line(torch.sin), small)  # no short segment could see that
    assert not explore._in_steps(number_line(sine_with(lambda x: 1.5).apply), large)

"""Every realization through the tests that pairgrad.testing offers to everybody."""

from __future__ import annotations

import torch

import pairgrad as pg
from pairgrad.coherence import LogRange
from pairgrad.testing import CoherenceTests

F64, F32 = torch.float64, torch.float32


class RealizationTests(CoherenceTests):
    """The value of a potential. The audit has to see down to its floors, 2^-40 and 2^-17 of the gradient; twice that where float32 is short of digits."""

    realization: str
    dim = 16
    limit = {F64: 1e-12, F32: 2e-5}
    second_order = "right"
    left_out = {"test_compiled": "test_compile.py generates code too"}
    nan = "value and gradient"

    @property
    def function(self):
        return pg.potential(self.dim, self.realization).value

    def states(self):
        return {"moderate": torch.tensor([3.0, 20.0]), "large": torch.tensor([60.0, 400.0])}


class TestPaired(RealizationTests):
    realization = "paired"
    left_out = {}
    domain = LogRange(1e-2, 1e5)
    # The documented accuracy (tests/tolerances.py), and the rounding of the product with grad_output.
    accuracy = {F64: 1.2e-15 + 1.2e-16, F32: 4e-7 + 6e-8}

    def reference(self, x):
        return pg.potential(self.dim, "reference").difference(torch.zeros_like(x), x)


class TestArFr(RealizationTests):
    realization = "arfr"


class TestScott(RealizationTests):
    realization = "scott"


class TestConsistent(RealizationTests):
    realization = "consistent"


class TestLogBessel(RealizationTests):
    realization = "log-bessel"
    states = {"moderate": torch.tensor([3.0, 20.0])}
    limit = {F64: 1e-12, F32: 1e-3}  # the slope is a difference of logarithms of size x: a few x u of it are noise


class TestReference(RealizationTests):
    realization = "reference"
    left_out = {"test_compiled": "balls are Python objects", "test_vmap": "balls are Python objects"}


class TestOriginal(RealizationTests):
    realization = "original"
    expected = "incoherent"  # by 8e-4 of the gradient at 20, in dimension 16


class TestLogMiller(RealizationTests):
    realization = "log-miller"
    expected = "incoherent"


def test_no_realization_is_left_out():
    expected = {cls.realization: cls.expected for cls in RealizationTests.__subclasses__()}
    assert expected == {r.name: None if r.coherent else "incoherent" for r in pg.realizations()}

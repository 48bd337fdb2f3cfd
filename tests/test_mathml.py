"""Formulas of the documentation: primes at full size, functions apart from their arguments, and nothing else changed."""

from __future__ import annotations

import pytest

pytest.importorskip("latex2mathml")

from docs.mathml import formula, on_page_content


@pytest.mark.parametrize(
    ("latex", "part"),
    [
        ("F'", '<mrow><mi>F</mi><mo lspace="0" rspace="0">\u2032</mo></mrow>'),
        ("F''", "\u2033</mo></mrow>"),
        (r"\Phi_\nu'", '<mrow><msub><mi>\u03a6</mi><mi>\u03bd</mi></msub><mo lspace="0" rspace="0">\u2032</mo></mrow>'),
        (r"\nu\log x", '<mi>log</mi><mspace width="0.1667em" /><mi>x</mi>'),
        (r"\log(x)", '<mi>log</mi><mo stretchy="false">(</mo>'),
        ("x^2", "<msup><mi>x</mi><mn>2</mn></msup>"),
    ],
)
def test_parts(latex: str, part: str) -> None:
    found = formula(latex, "inline")
    assert part in found
    assert found.startswith('<math xmlns="http://www.w3.org/1998/Math/MathML" display="inline">')


def test_a_page_keeps_what_is_no_formula() -> None:
    page = r'<p>a <span class="arithmatex">\(x&lt;1\)</span> b</p><div class="arithmatex">\[y\]</div>'
    found = on_page_content(page)
    assert found.startswith("<p>a <math")
    assert found.count("<math") == 2
    assert "<mo>&lt;</mo>" in found
    assert 'display="block"' in found

"""Two hostile arguments at once, drawn by Hypothesis: the second must not get past the check of the first."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.hostile.calls import ENTRIES
from tests.hostile.engine import judged, one_at_a_time

CALLS = {entry.name: entry for entry in ENTRIES if len(entry.arguments) > 1}
VALUES = {name: list(one_at_a_time(entry)) for name, entry in CALLS.items()}
SETTINGS = {"deadline": None, "database": None, "derandomize": True, "suppress_health_check": list(HealthCheck)}


def _check(data: st.DataObject) -> None:
    entry = CALLS[data.draw(st.sampled_from(sorted(CALLS)), label="call")]
    values = VALUES[entry.name]
    first, second = (values[data.draw(st.integers(0, len(values) - 1), label="value")] for _ in range(2))
    found = judged(entry, dict([first, second]))
    assert found is None, f"{entry.name}, {first[0]} = {first[1].name}, {second[0]} = {second[1].name}: {found}"


@settings(max_examples=50, **SETTINGS)
@given(st.data())
def test_two_arguments(data: st.DataObject) -> None:
    _check(data)


@pytest.mark.slow
@settings(max_examples=4000, **SETTINGS)
@given(st.data())
def test_many_pairs(data: st.DataObject) -> None:
    _check(data)

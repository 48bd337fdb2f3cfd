"""Every public callable with one argument replaced by every hostile value of its kind: refused in our own words, or taken and right."""

import pytest

from tests.hostile.calls import ENTRIES
from tests.hostile.engine import Entry, judged, one_at_a_time, run

EVERY = 10  # of the hostile values of an entry, one in so many is in the default run; another one in the next entry


def _check(entry: Entry, every: int, first: int) -> None:
    valid = run(entry, entry.valid())
    assert valid.error is None or isinstance(valid.error, entry.errors), f"the valid call fails: {valid.error!r}"
    complaints = []
    for name, hostile in list(one_at_a_time(entry))[first % every :: every]:
        found = judged(entry, {name: hostile})
        if found is not None:
            complaints.append(f"{name} = {hostile.name}: {found}")
    assert not complaints, "\n".join([f"{entry.name}, {len(complaints)} complaints", *complaints])


@pytest.mark.parametrize("place", range(len(ENTRIES)), ids=lambda place: ENTRIES[place].name)
def test_one_argument(place: int) -> None:
    _check(ENTRIES[place], EVERY, place)


@pytest.mark.slow
@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_one_argument_everything(entry: Entry) -> None:
    _check(entry, 1, 0)


def test_entries_have_names_of_their_own() -> None:
    assert len({entry.name for entry in ENTRIES}) == len(ENTRIES)

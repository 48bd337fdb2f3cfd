"""Every public callable with one argument replaced by every hostile value of its kind: refused in our own words, or taken and right."""

import pytest

from tests.hostile.calls import ENTRIES
from tests.hostile.engine import Entry, judged, one_at_a_time, run

# Entries that share their checks with others of the default run, or take their time.
LONG = (
    "certify",
    "VMFMixture.fit_predict",
    "VMFMixture.partial_fit",
    "VMFMixture.score",
    "VMFMixture.score_samples",
    "VMFMixture.predict_proba",
    "VMFMixture.aic",
    "VMFMixture.bic",
    "ProCoLoss.rows",
    "ProCoLoss.forward({'dtype': torch.float64})",
    "ProCoLoss.forward({'normalize': False})",
    "ProCoLoss.forward({'geometry': 'expanded', 'score': 'before-update'})",
    "TemperatureLogitAdjust.forward(probabilities)",
    "Potential.defect",
    "Potential.derivative",
    "Potential.curvature",
    "Potential.complement",
    "Potential.deficit",
    "Potential.secant",
    "Potential.difference",
    "VonMisesFisher.rsample",
    "PATTLoss",
)


def _marked(entry: Entry) -> object:
    return pytest.param(entry, marks=pytest.mark.slow) if entry.name in LONG else entry


@pytest.mark.parametrize("entry", [_marked(entry) for entry in ENTRIES], ids=lambda entry: entry.name)
def test_one_argument(entry: Entry) -> None:
    valid = run(entry, entry.valid())
    assert valid.error is None or isinstance(valid.error, entry.errors), f"the valid call fails: {valid.error!r}"
    complaints = []
    for name, hostile in one_at_a_time(entry):
        found = judged(entry, {name: hostile})
        if found is not None:
            complaints.append(f"{name} = {hostile.name}: {found}")
    assert not complaints, "\n".join([f"{entry.name}, {len(complaints)} complaints", *complaints])


def test_every_long_entry_exists() -> None:
    assert set(LONG) <= {entry.name for entry in ENTRIES}
    assert len({entry.name for entry in ENTRIES}) == len(ENTRIES)

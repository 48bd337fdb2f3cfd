"""The auditor's first patients: the realizations of the potential, at the magnitudes the paper prints."""

import pytest
import torch

import pairgrad as pg
from pairgrad.coherence import LogRange, Subject, component

D = torch.float64


def audited(realization, dim, x, dtype=D, **options):
    return pg.audit(pg.potential(dim=dim, realization=realization).value, torch.tensor(x, dtype=dtype), **options)


@pytest.mark.parametrize(
    ("dim", "x", "printed"),
    [(512, 392.0 * 255, 2.55e-3), (128, 4032.0, 1.57e-2), (128, 606.0, 4e-9)],
    ids=["p=512, r/nu=392", "p=128, x=4032", "p=128, x=606"],
)
def test_original_is_incoherent_by_what_the_paper_says(dim, x, printed):
    report = audited("original", dim, x, consequences=False)
    assert report.verdict == "incoherent"
    (finding,) = [finding for finding in report.findings if finding.kind == "defect"]
    digits = 0.005 if printed > 1e-3 else 0.1  # the last one is given as "about 4e-9"
    assert finding.numbers["absolute"] == pytest.approx(printed, rel=digits)
    # and by the realization's own account of itself
    own = float(pg.potential(dim=dim, realization="original").defect(torch.tensor(x, dtype=D)))
    assert finding.numbers["absolute"] == pytest.approx(abs(own), rel=1e-3)
    assert report.defect_error < 1e-3 * report.defect


@pytest.mark.parametrize("realization", ["consistent", "arfr", "paired", "scott"])
@pytest.mark.parametrize(("dim", "x"), [pytest.param(128, x, marks=pytest.mark.slow) for x in (606.0, 4032.0)] + [(512, 392.0 * 255)])
@pytest.mark.parametrize(("dtype", "limit"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_coherent_realizations(realization, dim, x, dtype, limit):
    report = audited(realization, dim, x, dtype, second_order=dim < 512)  # twice through 500 steps takes half a minute
    assert report.verdict == "coherent", str(report)
    assert report.limit <= limit, str(report)


@pytest.mark.slow
def test_regions_of_original():
    """Incoherent from about r = 450 on in float64; the slope is clipped from r = 2717.9 on."""
    report = pg.audit(pg.potential(dim=128, realization="original").value, domain=LogRange(200, 5000), effort="quick", consequences=False)
    coherent, rising, *_, clipped = report.regions["input 0"]
    assert [coherent.verdict, rising.verdict, clipped.verdict] == ["coherent", "incoherent", "incoherent"]
    assert 400 < coherent.high < 500
    assert clipped.low == pytest.approx(2717.9, abs=0.1)


def two_class(realization):
    """The construction of app:curl-proof: unit directions e1 and e2, concentrations 4032 and 8064, at the origin."""
    state = pg.ClassState(torch.eye(2, 128, dtype=D), torch.tensor([4032.0, 8064.0], dtype=D))
    labels = torch.tensor([0])
    return Subject(lambda f: pg.vmf_cross_entropy(f, labels, state, 1.0, realization=realization), torch.zeros(1, 128, dtype=D))


def test_two_class_field_from_supplied_gradients_only():
    first, second = torch.eye(2, 128, dtype=D)
    found = component(two_class("original"), first, second)
    assert f"{found.value:.5e}" == "-1.93915e-03"
    assert found.significant
    control = component(two_class("consistent"), first, second)
    assert not control.significant
    assert abs(control.value) <= control.error < 1e-8


@pytest.mark.slow
def test_loss_with_the_original_realization_is_located():
    subject = two_class("original")
    report = pg.audit(subject.fn, subject.tensors, effort="quick")
    assert report.verdict == "incoherent"
    kinds = {finding.kind: finding for finding in report.findings}
    assert kinds["field"].severity == "warning"
    assert "cross_entropy.py" in kinds["node"].where

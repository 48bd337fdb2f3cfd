"""Feature calibration: the formula written out, both accumulations, saving and loading."""

import copy
import io
import math

import pytest
import torch
from torch import nn

from pairgrad.ood import FORMS, FeatureCalibration, energy

K, P = 4, 7
PRIOR = [50.0, 30.0, 15.0, 5.0]


def classifier(dtype=torch.float64):
    return nn.Linear(P, K, dtype=dtype)


def pairs(count, dtype=torch.float64):
    """Batches of different sizes, so that a mean over samples and one over batches differ."""
    for number in range(count):
        b, m = 3 + number, 9 - number % 5
        yield (
            torch.randn(b, P, dtype=dtype).relu() + 0.1,
            torch.randint(K, (b,)),
            torch.randn(m, P, dtype=dtype).relu(),
            torch.randint(K, (m,)),
        )


def difference(layer, f, y, g, yhat):
    """d of one pair, sample by sample."""
    pi = [n / sum(PRIOR) for n in PRIOR]
    rows = layer.weight.detach()
    inside = sum(f[i] * rows[y[i]] / pi[y[i]] for i in range(len(f))) / len(f)
    return inside - sum(g[j] * rows[yhat[j]] / pi[yhat[j]] for j in range(len(g))) / len(g)


def scaled(total):
    return 2 * (total - total.min()) / (total.max() - total.min())


def test_mean_over_batches():
    layer, batches = classifier(), list(pairs(5))
    calibration = FeatureCalibration(layer.weight, layer.bias, PRIOR).fit(batches)
    expected = scaled(sum(difference(layer, *batch) for batch in batches) / 5)
    torch.testing.assert_close(calibration.scale, expected, rtol=1e-13, atol=1e-13)
    assert (calibration.scale.min().item(), calibration.scale.max().item()) == (0, 2)
    assert int(calibration.pairs) == 5


@pytest.mark.parametrize("count", [1, 2, 12])
def test_released_recursion(count):
    """Plain S <- t S + d, which is finite in float64 for a dozen pairs."""
    layer, batches = classifier(), list(pairs(count))
    plain = torch.zeros(P, dtype=torch.float64)
    for t, batch in enumerate(batches):
        plain = t * plain + difference(layer, *batch)
    calibration = FeatureCalibration(layer.weight, layer.bias, PRIOR, accumulation="released").fit(batches)
    torch.testing.assert_close(calibration.scale, scaled(plain), rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(calibration.total * math.factorial(count - 1), plain, rtol=1e-13, atol=1e-10 * plain.abs().max().item())
    mean = FeatureCalibration(layer.weight, layer.bias, PRIOR).fit(batches)
    assert torch.allclose(calibration.scale, mean.scale) == (count <= 2)  # two pairs weigh the same


def test_released_stays_finite_where_the_recursion_overflows():
    """300 pairs: the recursion passes 3e38 near t = 35 and 1e308 near t = 170. In exact arithmetic only the first twenty matter to float64."""
    layer, few = classifier(torch.float32), list(pairs(25, torch.float32))
    long = FeatureCalibration(layer.weight, layer.bias, PRIOR, accumulation="released")
    long.fit([*few, *few * 11])
    assert int(long.pairs) == 300
    assert bool(long.scale.isfinite().all())
    short = FeatureCalibration(layer.weight, layer.bias, PRIOR, accumulation="released").fit(few)
    assert torch.equal(long.scale, short.scale)
    plain = torch.zeros(P)
    for t, batch in enumerate([*few, *few * 11]):
        plain = t * plain + difference(layer, *batch).float()
    assert not bool(plain.isfinite().any())


def test_pseudo_labels_from_logits_or_from_the_classifier():
    layer = classifier()
    f, y, g, _ = next(pairs(1))
    logits = layer(g).detach()
    by_label, by_logits, by_itself = (FeatureCalibration(layer.weight, layer.bias, PRIOR) for _ in range(3))
    by_label.fit([(f, y, g, logits.argmax(1))])
    by_logits.fit([(f, y, g, logits)])
    by_itself.fit([(f, y, g)])
    assert torch.equal(by_label.total, by_logits.total)
    assert torch.equal(by_label.total, by_itself.total)
    with torch.no_grad():
        other = FeatureCalibration(layer.weight, layer.bias, PRIOR).fit([(f, y, g, logits.argmin(1))])
    assert not torch.equal(by_label.total, other.total)


@pytest.mark.parametrize("bias", [True, False])
def test_logits_and_score(bias):
    layer = nn.Linear(P, K, bias=bias)
    calibration = FeatureCalibration.of(layer, PRIOR).fit(pairs(3, torch.float32))
    f = torch.randn(6, P)
    expected = (f * calibration.scale) @ layer.weight.T + (layer.bias if bias else 0)
    torch.testing.assert_close(calibration.logits(f), expected)
    assert torch.equal(calibration(f), calibration.logits(f))
    assert torch.equal(calibration.score(f), energy(calibration.logits(f)))
    assert calibration.score(f).dtype == torch.float32
    assert calibration.logits(f.half()).dtype == torch.float32


def test_counts_and_frequencies_do_alike():
    layer, batches = classifier(), list(pairs(2))
    counts = FeatureCalibration(layer.weight, layer.bias, torch.tensor(PRIOR, dtype=torch.int64)).fit(batches)
    shares = FeatureCalibration(layer.weight, layer.bias, [0.5, 0.3, 0.15, 0.05]).fit(batches)
    torch.testing.assert_close(counts.scale, shares.scale)
    assert counts.prior.sum().item() == pytest.approx(1)
    uniform = FeatureCalibration(layer.weight, layer.bias, [1] * K).fit(batches)
    assert not torch.allclose(counts.scale, uniform.scale)


def test_forms():
    assert FORMS["paper"] == ("mean", "train")
    assert FORMS["released"] == ("released", "test")
    assert [FeatureCalibration.of(classifier(), PRIOR, form=form).accumulation for form in FORMS] == ["mean", "released"]
    with pytest.raises(ValueError, match="form must be one of 'paper', 'released', got 'mean'"):
        FeatureCalibration.of(classifier(), PRIOR, form="mean")
    with pytest.raises(TypeError):
        FORMS["other"] = FORMS["paper"]


def test_saved_and_loaded():
    layer, batches = classifier(), list(pairs(4))
    whole = FeatureCalibration(layer.weight, layer.bias, PRIOR, accumulation="released").fit(batches)
    half = FeatureCalibration(layer.weight, layer.bias, PRIOR, accumulation="released").fit(batches[:2])
    file = io.BytesIO()
    torch.save(half.state_dict(), file)
    file.seek(0)
    again = FeatureCalibration(torch.zeros(K, P, dtype=torch.float64), torch.zeros(K), [1] * K, accumulation="released")
    again.load_state_dict(torch.load(file))
    f = torch.randn(3, P, dtype=torch.float64)
    assert again.fitted
    assert torch.equal(again.score(f), half.score(f))
    for batch in batches[2:]:
        again.update(*batch)
    assert torch.equal(again.finish().scale, whole.scale)  # taken up where it was left
    assert torch.equal(copy.deepcopy(whole).score(f), whole.score(f))
    again.load_state_dict(FeatureCalibration(layer.weight, layer.bias, PRIOR).state_dict())
    assert not again.fitted


def test_the_classifier_is_copied():
    layer = classifier()
    calibration = FeatureCalibration.of(layer, PRIOR).fit(pairs(1))
    f = torch.randn(2, P, dtype=torch.float64)
    before = calibration.logits(f)
    with torch.no_grad():
        layer.weight.zero_()
        assert layer.bias is not None
        layer.bias.zero_()
    assert torch.equal(calibration.logits(f), before)
    assert not before.requires_grad


def test_not_fitted():
    calibration = FeatureCalibration.of(classifier(), PRIOR)
    f = torch.randn(2, P, dtype=torch.float64)
    with pytest.raises(RuntimeError, match="not fitted"):
        calibration.logits(f)
    with pytest.raises(RuntimeError, match="no pair of batches"):
        calibration.finish()
    calibration.fit(pairs(1))
    calibration.update(*next(pairs(1)))
    assert not calibration.fitted
    with pytest.raises(RuntimeError, match="not fitted"):
        calibration.score(f)
    calibration.finish().reset()
    assert not calibration.fitted
    assert int(calibration.pairs) == 0
    assert bool((calibration.total == 0).all())
    assert "pairs=0, fitted=False" in repr(calibration)


def test_fit_starts_anew():
    batches = list(pairs(2))
    calibration = FeatureCalibration.of(classifier(), PRIOR).fit(batches)
    first = calibration.scale.clone()
    assert torch.equal(calibration.fit(batches).scale, first)
    assert int(calibration.pairs) == 2


def test_a_constant_vector_is_refused():
    calibration = FeatureCalibration.of(classifier(), PRIOR)
    f, y, _, _ = next(pairs(1))
    calibration.update(f, y, f, y)
    with pytest.raises(ValueError, match=r"all 7 dimensions have the value 0, .* may be the same"):
        calibration.finish()


def test_precision_of_the_sum_survives_half():
    calibration = FeatureCalibration.of(classifier(torch.float32), PRIOR)
    f, y, g, yhat = next(pairs(1, torch.float32))
    calibration.update(f, y, g, yhat)
    total, prior = calibration.total.clone(), calibration.prior.clone()
    for move in ("half", "float", "bfloat16", "double"):
        getattr(calibration, move)()
        assert torch.equal(calibration.total, total)
        assert torch.equal(calibration.prior, prior)
    assert calibration.weight.dtype == torch.float64


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({0: torch.zeros(0, P)}, ValueError, "id_features must have shape .* at least one row"),
        ({0: torch.zeros(3, P + 1)}, ValueError, r"id_features must have shape \(batch, dim=7\)"),
        ({0: [[0.0]]}, TypeError, "id_features"),
        ({1: torch.tensor([0, 1])}, ValueError, r"id_labels must be integers of shape \(3,\)"),
        ({1: torch.tensor([0, 1, K])}, ValueError, "id_labels must lie between 0 and 3, got 0 to 4"),
        ({1: torch.tensor([0, 1, -1])}, ValueError, "id_labels must lie between 0 and 3"),
        ({1: torch.randn(3, K)}, ValueError, "id_labels must be integers"),
        ({1: [0, 1, 2]}, TypeError, "id_labels must be a tensor"),
        ({2: torch.zeros(2, P - 1)}, ValueError, "outlier_features"),
        ({3: torch.randn(9, K + 1)}, ValueError, r"outlier_labels must have shape \(9, 4\) if they are logits"),
        ({3: torch.tensor([True] * 9)}, ValueError, "outlier_labels must be integers"),
        ({0: torch.full((3, P), math.inf)}, ValueError, "must be finite"),
        ({2: torch.full((9, P), math.nan)}, ValueError, "must be finite"),
    ],
)
def test_batches_that_are_refused(change, error, says):
    calibration = FeatureCalibration.of(classifier(), PRIOR).fit(pairs(1))
    before = copy.deepcopy(calibration.state_dict())
    batch = list(next(pairs(1)))
    for position, value in change.items():
        batch[position] = value
    with pytest.raises(error, match=says):
        calibration.update(*batch)
    assert all(torch.equal(value, before[name]) for name, value in calibration.state_dict().items())
    assert calibration.fitted


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((torch.zeros(K), None, PRIOR), "weight must have shape"),
        ((torch.zeros(K, 1), None, PRIOR), "weight must have shape"),
        ((torch.zeros(K, P), torch.zeros(K + 1), PRIOR), "bias must have one entry for each of the 4 rows"),
        ((torch.zeros(K, P), None, PRIOR[:3]), "prior must be 4 positive numbers"),
        ((torch.zeros(K, P), None, [1, 2, 0, 3]), "prior must be 4 positive numbers"),
        ((torch.zeros(K, P), None, [1, 2, math.inf, 3]), "prior must be 4 positive numbers"),
    ],
)
def test_classifiers_that_are_refused(arguments, says):
    with pytest.raises(ValueError, match=says):
        FeatureCalibration(*arguments)


def test_the_accumulation_is_checked():
    with pytest.raises(ValueError, match="accumulation must be one of 'mean', 'released', got 'sum'"):
        FeatureCalibration(torch.zeros(K, P), None, PRIOR, accumulation="sum")

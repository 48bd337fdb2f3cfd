"""The adapters to OpenOOD and pytorch-ood: their interfaces and directions, with stand-ins for the libraries and without them."""

import importlib
import sys
import types
from abc import ABC, abstractmethod

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from pairgrad.ood import FeatureCalibration, energy, max_logit, msp

K, P = 3, 6
ADAPTERS = {"openood": "pairgrad.integrations.openood", "pytorch_ood": "pairgrad.integrations.pytorch_ood"}
SCORES = {"msp": msp, "energy": energy, "max-logit": max_logit}


class Net(nn.Module):
    """As OpenOOD's networks: logits, or logits and features; dropout tells whether it is in evaluation mode."""

    def __init__(self):
        super().__init__()
        self.body, self.drop, self.fc = nn.Linear(4, P), nn.Dropout(0.5), nn.Linear(P, K)

    def features(self, x):
        return self.drop(self.body(x).relu())

    def forward(self, x, return_feature=False):
        features = self.features(x)
        return (self.fc(features), features) if return_feature else self.fc(features)


def loader(count, label=None, batch=5):
    labels = torch.arange(count) % K if label is None else torch.full((count,), label)
    data = TensorDataset(torch.randn(count, 4), labels)
    return DataLoader(
        data,
        batch_size=batch,
        collate_fn=lambda rows: {"data": torch.stack([x for x, _ in rows]), "label": torch.stack([y for _, y in rows])},
    )


@pytest.fixture
def load(monkeypatch):
    """An adapter imported anew, beside a stand-in of its library or in its absence."""

    def fresh(name, classes):
        package = {"openood": "openood", "pytorch_ood": "pytorch_ood"}[name]
        module = {"openood": "openood.postprocessors", "pytorch_ood": "pytorch_ood.api"}[name]
        monkeypatch.setitem(sys.modules, package, types.ModuleType(package) if classes else None)
        if classes:
            monkeypatch.setitem(sys.modules, module, types.ModuleType(module))
            for made in classes:
                setattr(sys.modules[module], made.__name__, made)
        monkeypatch.delitem(sys.modules, ADAPTERS[name], raising=False)
        adapter = importlib.import_module(ADAPTERS[name])
        monkeypatch.delitem(sys.modules, ADAPTERS[name])
        return adapter

    return fresh


class BasePostprocessor:
    def __init__(self, config):
        self.config = config


class Detector(ABC):
    def __call__(self, *args, **kwargs):
        return self.predict(*args, **kwargs)

    @abstractmethod
    def predict(self, x): ...


class LogitsDetector(Detector):
    pass


class FeaturesDetector(Detector):
    pass


@pytest.mark.parametrize("classes", [(), (BasePostprocessor,)])
def test_openood_scores(load, classes):
    adapter, net = load("openood", classes), Net().eval()
    x = torch.randn(7, 4)
    for name, score in SCORES.items():
        postprocessor = adapter.OODPostprocessor(name, config="kept")
        assert isinstance(postprocessor, classes or object)
        assert postprocessor.config == "kept"
        postprocessor.setup(net, {}, {})
        predictions, confidences = postprocessor.postprocess(net, x)
        assert torch.equal(predictions, net(x).argmax(1))
        assert torch.equal(confidences, -score(net(x)))
        assert not confidences.requires_grad
    assert torch.equal(adapter.OODPostprocessor(temperature=3.0).postprocess(net, x)[1], -energy(net(x), 3.0))
    assert not adapter.OODPostprocessor().APS_mode  # the evaluator asks, and would search for hyperparameters
    assert adapter.OODPostprocessor().hyperparam_search_done


def test_openood_inference(load, capsys):
    adapter, net, batches = load("openood", ()), Net().eval(), loader(12)
    postprocessor = adapter.OODPostprocessor("msp")
    x = torch.cat([batch["data"] for batch in batches])
    for progress in (False, True):
        predictions, confidences, labels = postprocessor.inference(net, batches, progress)
        assert np.array_equal(predictions, net(x).argmax(1).numpy())
        np.testing.assert_allclose(confidences, -msp(net(x)).detach().numpy(), rtol=1e-5)
        assert labels.tolist() == [i % K for i in range(12)]
        assert predictions.dtype == labels.dtype == np.dtype(int)
    with pytest.raises(ValueError, match="at least one batch"):
        postprocessor.inference(net, [])


def test_openood_watches_with_tqdm_if_there_is_one(load, monkeypatch):
    adapter, seen = load("openood", ()), []
    fake = types.ModuleType("tqdm")
    vars(fake)["tqdm"] = lambda batches: seen.append("bar") or batches
    monkeypatch.setitem(sys.modules, "tqdm", fake)
    adapter.OODPostprocessor().inference(Net().eval(), loader(5), progress=False)
    assert seen == []
    adapter.OODPostprocessor().inference(Net().eval(), loader(5), progress=True)
    assert seen == ["bar"]
    monkeypatch.setitem(sys.modules, "tqdm", None)
    assert len(adapter.OODPostprocessor().inference(Net().eval(), loader(5))[0]) == 5


def test_openood_fits_the_calibration_in_setup(load):
    adapter, net = load("openood", ()), Net()
    inside, outside = loader(20), loader(10, label=-1)
    calibration = FeatureCalibration.of(net.fc, [5, 3, 2])
    postprocessor = adapter.OODPostprocessor("calibrated", calibration=calibration)
    net.train()
    postprocessor.setup(net, {"train": inside}, {"val": outside})
    assert net.training  # as it was
    assert int(calibration.pairs) == 2  # the shorter loader has two batches

    net.eval()
    by_hand = FeatureCalibration.of(net.fc, [5, 3, 2])
    for first, second in zip(inside, outside, strict=False):
        by_hand.update(net.features(first["data"]), first["label"], net.features(second["data"]), net(second["data"]))
    assert torch.equal(calibration.scale, by_hand.finish().scale)

    x = torch.randn(6, 4)
    predictions, confidences = postprocessor.postprocess(net, x)
    features = net.features(x)
    assert torch.equal(predictions, by_hand.logits(features).argmax(1))
    assert torch.equal(confidences, -by_hand.score(features))
    postprocessor.setup(net, {}, {})  # fitted: nothing is asked for
    assert int(calibration.pairs) == 2


def test_openood_says_what_is_missing(load):
    adapter, net = load("openood", ()), Net().eval()
    calibration = FeatureCalibration.of(net.fc, [5, 3, 2])
    for score, given in [("calibrated", None), ("energy", calibration)]:
        with pytest.raises(ValueError, match="calibration must be given with score 'calibrated' and with no other"):
            adapter.OODPostprocessor(score, calibration=given)
    with pytest.raises(ValueError, match="score must be one of"):
        adapter.OODPostprocessor("mls")
    postprocessor = adapter.OODPostprocessor("calibrated", calibration=calibration)
    with pytest.raises(KeyError, match="ood_loader_dict must have the entry 'val'"):
        postprocessor.setup(net, {"train": loader(5)}, {"near": {}})
    with pytest.raises(KeyError, match="id_loader_dict must have the entry 'train'"):
        postprocessor.setup(net, {}, {"val": loader(5)})
    assert not net.training
    with pytest.raises(RuntimeError, match="not fitted"):
        postprocessor.postprocess(net, torch.randn(2, 4))


@pytest.mark.parametrize("classes", [(), (Detector,), (Detector, LogitsDetector, FeaturesDetector)])
def test_pytorch_ood_scores(load, classes):
    adapter, net = load("pytorch_ood", classes), Net().eval()
    x = torch.randn(7, 4)
    for name, score in SCORES.items():
        detector = adapter.ScoreDetector(net, name)
        assert isinstance(detector, LogitsDetector if len(classes) == 3 else classes or object)
        assert detector.fit(None) is detector
        assert detector.fit_features(None, None) is detector
        assert torch.equal(detector(x), score(net(x)))
        assert torch.equal(detector.predict_features(net(x)), score(net(x)))
    assert torch.equal(adapter.ScoreDetector(net, temperature=2.0).predict(x), energy(net(x), 2.0))
    assert not adapter.ScoreDetector(None).requires_fit
    with pytest.raises(ValueError, match="model must be given"):
        adapter.ScoreDetector(None).predict(x)
    with pytest.raises(ValueError, match="score must be one of 'msp', 'energy', 'max-logit', got 'calibrated'"):
        adapter.ScoreDetector(net, "calibrated")


@pytest.mark.parametrize("classes", [(), (Detector,), (Detector, LogitsDetector, FeaturesDetector)])
def test_pytorch_ood_calibration(load, classes):
    adapter, net = load("pytorch_ood", classes), Net().eval()
    x, y = torch.randn(30, 4), torch.arange(30) % (K + 1) - 1  # -1 is an outlier
    batches = DataLoader(TensorDataset(x, y), batch_size=7)
    detector = adapter.CalibratedDetector(net.features, FeatureCalibration.of(net.fc, [5, 3, 2]))
    assert isinstance(detector, FeaturesDetector if len(classes) == 3 else classes or object)
    assert detector.requires_fit
    with pytest.raises(RuntimeError, match="not fitted"):
        detector(x)
    assert detector.fit(batches) is detector

    features = net.features(x).detach()
    by_hand = FeatureCalibration.of(net.fc, [5, 3, 2]).fit([(features[y >= 0], y[y >= 0], features[y < 0])])
    torch.testing.assert_close(detector.calibration.scale, by_hand.scale)
    torch.testing.assert_close(detector(x), by_hand.score(features))
    torch.testing.assert_close(detector.predict_features(features), by_hand.score(features))
    fitted = adapter.CalibratedDetector(None, FeatureCalibration.of(net.fc, [5, 3, 2])).fit_features(features, y)
    assert torch.equal(fitted.predict_features(features), by_hand.score(features))
    assert torch.equal(adapter.CalibratedDetector(None, by_hand).predict_features(features), by_hand.score(features))


def test_pytorch_ood_says_what_is_missing(load):
    adapter, net = load("pytorch_ood", ()), Net().eval()
    detector = adapter.CalibratedDetector(None, FeatureCalibration.of(net.fc, [5, 3, 2]))
    z = torch.randn(4, P)
    for labels, count in [([0, 1, 2, 0], 0), ([-1, -2, -1, -1], 4)]:
        with pytest.raises(ValueError, match=rf"labels of both kinds, got {count} outliers \(labels < 0\) of 4"):
            detector.fit_features(z, torch.tensor(labels))
    with pytest.raises(ValueError, match="one label for each of the 4 features"):
        detector.fit_features(z, torch.tensor([0, -1]))
    for call, argument in [("fit", []), ("predict", torch.randn(2, 4))]:
        with pytest.raises(ValueError, match=f"encoder must be given to {call} from inputs, got None: call {call}_features"):
            getattr(detector, call)(argument)
    with pytest.raises(ValueError, match="at least one batch"):
        adapter.CalibratedDetector(net.features, detector.calibration).fit([])


def test_scores_point_the_way_of_each_library(load):
    """A sure sample has the higher confidence in OpenOOD and the lower outlier score in pytorch-ood."""
    net, openood, pytorch_ood = nn.Identity(), load("openood", ()), load("pytorch_ood", ())
    logits = torch.tensor([[9.0, 0.0], [0.1, 0.0]])
    for name in SCORES:
        sure, unsure = openood.OODPostprocessor(name).postprocess(net, logits)[1]
        assert sure > unsure
        sure, unsure = pytorch_ood.ScoreDetector(net, name)(logits)
        assert sure < unsure

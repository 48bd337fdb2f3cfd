"""Detectors for pytorch-ood. They need no pytorch-ood themselves, and are of its classes when it is installed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from pairgrad.ground.checks import describe, one_of
from pairgrad.integrations import base_class
from pairgrad.ood import FeatureCalibration, energy, max_logit, msp

SCORES = ("msp", "energy", "max-logit")


class _StandIn:
    def __call__(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        return self.predict(*args, **kwargs)  # pyright: ignore[reportAttributeAccessIssue]


def _base(*names: str) -> Any:
    """The first of these classes that pytorch-ood has, from 0.4 on one for each kind of detector; a stand-in without pytorch-ood."""
    for name in names:
        try:
            return base_class(name, ("pytorch_ood.api",), "pytorch-ood")
        except (ImportError, AttributeError):
            continue
    return _StandIn


class ScoreDetector(_base("LogitsDetector", "Detector")):
    """OOD-ness from the logits of a model. Nothing is fitted.

    Args:
        model: from inputs to logits (B, K); None if only `predict_logits` is called. It is called as it is: switch it to evaluation mode.
        score: `"msp"`, `"energy"` or `"max-logit"`.
        temperature: of `"energy"`.
    """

    requires_fit = False

    def __init__(self, model: nn.Module | None, score: str = "energy", *, temperature: float = 1.0) -> None:
        super().__init__()
        self.model = model
        self.score = one_of("score", score, SCORES)
        self.temperature = temperature

    def fit(self, data_loader: Any = None) -> ScoreDetector:
        """Nothing to do."""
        return self

    def fit_features(self, z: Any = None, y: Any = None) -> ScoreDetector:
        """Nothing to do."""
        return self

    def predict(self, x: torch.Tensor) -> torch.Tensor:
        """OOD-ness of inputs, (B,)."""
        if self.model is None:
            raise ValueError("model must be given to predict from inputs, got None: call predict_logits")
        return self.predict_logits(self.model(_moved(x, self.model)))

    def predict_logits(self, logits: torch.Tensor) -> torch.Tensor:
        """OOD-ness of logits (B, K): (B,)."""
        if self.score == "energy":
            return energy(logits, self.temperature)
        return (msp if self.score == "msp" else max_logit)(logits)

    def predict_features(self, z: torch.Tensor) -> torch.Tensor:
        """As `predict_logits`, which it was called before pytorch-ood 0.4."""
        return self.predict_logits(z)


class CalibratedDetector(_base("FeaturesDetector", "Detector")):
    """OOD-ness from calibrated features. In what it is fitted on, a negative label marks an outlier, as pytorch-ood has it.

    All samples make one pair of batches, so both accumulations give the same. To fit on many pairs, fit the calibration itself and give it here.

    Args:
        encoder: from inputs to features (B, p); None if only features are given. It is called as it is: switch it to evaluation mode.
        calibration: fitted, or to be fitted here.
    """

    requires_fit = True

    def __init__(self, encoder: Callable[[torch.Tensor], torch.Tensor] | None, calibration: FeatureCalibration) -> None:
        super().__init__()
        self.encoder = encoder
        self.calibration = calibration

    @torch.no_grad()
    def fit(self, data_loader: Iterable[Any]) -> CalibratedDetector:
        """Fit on all samples of a loader of (inputs, labels), outliers among them."""
        encoder = self._encoder("fit")
        batches = [(encoder(_moved(x, encoder)), y) for x, y in data_loader]
        if not batches:
            raise ValueError("data_loader must yield at least one batch, got none")
        return self.fit_features(torch.cat([z for z, _ in batches]), torch.cat([y for _, y in batches]))

    def fit_features(self, z: torch.Tensor, y: torch.Tensor) -> CalibratedDetector:
        """Fit on features (N, p) and labels (N,), outliers (labels < 0) among them."""
        z, y = _moved(z, self.calibration), _moved(y, self.calibration)
        if y.shape != z.shape[:1]:
            raise ValueError(f"y must have one label for each of the {z.shape[0]} features, got {describe(y)}")
        outlier = y < 0
        if bool(outlier.all()) or not bool(outlier.any()):
            raise ValueError(
                f"y must hold labels of both kinds, got {int(outlier.sum())} outliers (labels < 0) of {y.numel()}: "
                "a calibration compares ID samples with outliers"
            )
        self.calibration.fit([(z[~outlier], y[~outlier], z[outlier])])
        return self

    def predict(self, x: torch.Tensor) -> torch.Tensor:
        """OOD-ness of inputs, (B,)."""
        encoder = self._encoder("predict")
        return self.predict_features(encoder(_moved(x, encoder)))

    def predict_features(self, z: torch.Tensor) -> torch.Tensor:
        """OOD-ness of features (B, p): (B,)."""
        return self.calibration.score(_moved(z, self.calibration))

    def _encoder(self, what: str) -> Callable[[torch.Tensor], torch.Tensor]:
        if self.encoder is None:
            raise ValueError(f"encoder must be given to {what} from inputs, got None: call {what}_features")
        return self.encoder


def _moved(tensor: torch.Tensor, owner: Any) -> torch.Tensor:
    """On the device of a module; where it is if that has no tensors, or is a plain function."""
    tensors = [*owner.parameters(), *owner.buffers()] if isinstance(owner, nn.Module) else []
    return tensor.to(tensors[0].device) if tensors else tensor

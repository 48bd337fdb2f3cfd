"""A postprocessor for OpenOOD. It needs no OpenOOD itself, and is one of its postprocessors when it is installed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from pairgrad.ground.checks import one_of
from pairgrad.ground.devices import HOST
from pairgrad.integrations import base_class
from pairgrad.ood import FeatureCalibration, energy, max_logit, msp

SCORES = ("msp", "energy", "max-logit", "calibrated")


class _StandIn:
    def __init__(self, config: Any) -> None:
        self.config = config


try:
    _BasePostprocessor: Any = base_class("BasePostprocessor", ("openood.postprocessors",), "openood")
except ImportError:  # OpenOOD asks for its own base class, but then it is not there to ask
    _BasePostprocessor = _StandIn


class OODPostprocessor(_BasePostprocessor):
    """The scores of `pairgrad.ood` as OpenOOD wants them: a confidence, higher for in-distribution.

    The confidence is minus the OOD-ness. For `"msp"` it is therefore the maximum softmax probability minus 1, in the same order and without the rounding
    that makes confident samples equal.

    Args:
        score: `"msp"`, `"energy"`, `"max-logit"` or `"calibrated"`.
        temperature: of `"energy"`.
        calibration: for `"calibrated"`. One that is not fitted yet is fitted in `setup`, on pairs of a batch of `id_loader_dict["train"]` and a batch of
            `ood_loader_dict["val"]`, until the shorter loader ends. The paper and the released code draw the ID samples balanced over the classes: give
            the loader such a sampler (`class_balanced_indices`), or fit beforehand.
        config: kept, as in OpenOOD; nothing reads it.

    Networks are called as OpenOOD's are: `net(data)` returns logits, `net(data, return_feature=True)` logits and features. Batches are mappings with
    "data" and "label", and are moved to the device of the network.
    """

    APS_mode = False  # no hyperparameter is searched for
    hyperparam_search_done = True

    def __init__(
        self, score: str = "energy", *, temperature: float = 1.0, calibration: FeatureCalibration | None = None, config: Any = None
    ) -> None:
        super().__init__(config)
        self.score = one_of("score", score, SCORES)
        if (self.score == "calibrated") != (calibration is not None):
            raise ValueError(f"calibration must be given with score 'calibrated' and with no other, got {calibration!r} with {score!r}")
        self.temperature = temperature
        self.calibration = calibration

    def setup(self, net: nn.Module, id_loader_dict: Mapping[str, Any], ood_loader_dict: Mapping[str, Any]) -> None:
        """Fit the calibration, if there is one that is not fitted. The network is in evaluation mode meanwhile."""
        if self.calibration is None or self.calibration.fitted:
            return
        device, training = _device(net), net.training
        net.eval()
        try:
            pairs = _pairs(net, _loader(id_loader_dict, "train", "id"), _loader(ood_loader_dict, "val", "ood"), device)
            self.calibration.to(device).fit(pairs)
        finally:
            net.train(training)

    @torch.no_grad()
    def postprocess(self, net: nn.Module, data: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Predicted labels and confidences of one batch, (B,) each."""
        if self.calibration is not None:
            logits = self.calibration.logits(net(data, return_feature=True)[1])
            return logits.argmax(dim=1), -energy(logits)
        logits = net(data)
        scores = {"msp": msp, "energy": lambda z: energy(z, self.temperature), "max-logit": max_logit}[self.score](logits)
        return logits.argmax(dim=1), -scores

    def inference(self, net: nn.Module, data_loader: Iterable[Any], progress: bool = True) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Predicted labels, confidences and labels of a whole loader, as arrays; with a progress bar if tqdm is installed."""
        device = _device(net)
        predictions, confidences, labels = [], [], []
        for batch in _watched(data_loader) if progress else data_loader:
            prediction, confidence = self.postprocess(net, batch["data"].to(device))
            predictions.append(prediction.cpu())
            confidences.append(confidence.cpu())
            labels.append(batch["label"].cpu())
        if not labels:
            raise ValueError("data_loader must yield at least one batch, got none")
        return torch.cat(predictions).numpy().astype(int), torch.cat(confidences).numpy(), torch.cat(labels).numpy().astype(int)


@torch.no_grad()
def _pairs(net: nn.Module, inside: Iterable[Any], outside: Iterable[Any], device: torch.device) -> Iterator[tuple[torch.Tensor, ...]]:
    for id_batch, ood_batch in zip(inside, outside, strict=False):
        _, features = net(id_batch["data"].to(device), return_feature=True)
        logits, outliers = net(ood_batch["data"].to(device), return_feature=True)
        yield features, id_batch["label"].to(device), outliers, logits


def _loader(loaders: Mapping[str, Any], key: str, side: str) -> Any:
    if key not in loaders:
        raise KeyError(f"{side}_loader_dict must have the entry {key!r} to fit the calibration, got {sorted(loaders)}: fit it beforehand")
    return loaders[key]


def _device(net: nn.Module) -> torch.device:
    tensor = next(iter([*net.parameters(), *net.buffers()]), None)
    return HOST if tensor is None else tensor.device


def _watched(batches: Iterable[Any]) -> Iterable[Any]:
    try:
        from tqdm import tqdm
    except ImportError:
        return batches
    return tqdm(batches)

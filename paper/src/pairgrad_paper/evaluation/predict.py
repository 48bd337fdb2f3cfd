"""Outputs of a network for a set of images."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import torch

from pairgrad.ground import integer_at_least
from pairgrad_paper.augment import Pipeline, sample_keys
from pairgrad_paper.data import ArrayImages, Images
from pairgrad_paper.models import Network
from pairgrad_paper.training.batches import finished

_READERS = 8  # threads that decode image files; Pillow releases the interpreter's lock


class Predicted(NamedTuple):
    """On the CPU."""

    logits: torch.Tensor  # (N, K)
    features: torch.Tensor  # (N, width), the classifier's input


@torch.no_grad()
def predict(
    network: Network,
    images: Images,
    view: Pipeline,
    *,
    indices: torch.Tensor | None = None,
    seed: int = 0,
    batch_size: int = 500,
    tick: Callable[[int], object] | None = None,
) -> Predicted:
    """Logits and backbone features in evaluation mode; afterwards every part of the network is in the mode it was in.

    Args:
        network: on its device and in its dtype.
        images: what to look at. view: the pipeline, whose chance, if it has any, depends on `seed` and on the place among the indices.
        indices: which of them, in which order; None: all. batch_size: that go through the network at once.
        tick: is called with the number of images of every batch that is done.
    """
    size = integer_at_least("batch_size", batch_size, 1)
    parameter = next(network.parameters())
    chosen = torch.arange(len(images)) if indices is None else indices
    if not len(chosen):
        raise ValueError(f"images must hold at least one image to look at, got none of the {len(images)} of {images.name}")
    training = {part: part.training for part in network.modules()}
    network.eval()
    logits, features = [], []
    try:
        for tensors, keys in _read(images, chosen, view, seed, size):
            outputs = network(finished(view, tensors, keys, images, parameter.device).to(parameter.dtype))
            logits.append(outputs.logits.cpu())
            features.append(outputs.backbone.cpu())
            if tick is not None:
                tick(len(tensors))
    finally:
        for part, mode in training.items():
            part.training = mode
    return Predicted(torch.cat(logits), torch.cat(features))


def _read(images: Images, chosen: torch.Tensor, view: Pipeline, seed: int, batch_size: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    keys = sample_keys(seed, 0, torch.arange(len(chosen)), "evaluation")
    if isinstance(images, ArrayImages):
        for start in range(0, len(chosen), batch_size):
            part = slice(start, start + batch_size)
            yield images.batch(chosen[part]), keys[part]
        return
    with ThreadPoolExecutor(_READERS) as readers:
        for start in range(0, len(chosen), batch_size):
            part = slice(start, start + batch_size)
            pairs = zip(chosen[part].tolist(), keys[part].tolist(), strict=True)
            read = readers.map(lambda pair: view.prepare(images.image(pair[0]), pair[1]), pairs)
            yield torch.stack(list(read)), keys[part]

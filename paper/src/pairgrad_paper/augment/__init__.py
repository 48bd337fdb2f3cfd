"""Augmentation as a function of an image and a key: a sample has the same bits in every batch, and so do the branches of a fork.

`step` says what a step is; `steps`, `sizing` and `policies` are made of `operations`, `colour`, `warp` and `resample`; `draws` gives their random numbers
from keys; `pipeline` puts steps together, `catalogue` names those of the host systems, `host` says how these differ.
"""

from pairgrad_paper.augment.catalogue import PIPELINES, pipeline
from pairgrad_paper.augment.draws import sample_keys
from pairgrad_paper.augment.pipeline import Pipeline
from pairgrad_paper.augment.policies import AutoAugmentCIFAR10, RandAugment
from pairgrad_paper.augment.sizing import CentreCrop, RandomCrop, RandomResizedCrop, Resize
from pairgrad_paper.augment.step import Step
from pairgrad_paper.augment.steps import Affine, ColorJitter, Cutout, Grayscale, HorizontalFlip, Noise, Normalize

__all__ = [
    "PIPELINES",
    "Affine",
    "AutoAugmentCIFAR10",
    "CentreCrop",
    "ColorJitter",
    "Cutout",
    "Grayscale",
    "HorizontalFlip",
    "Noise",
    "Normalize",
    "Pipeline",
    "RandAugment",
    "RandomCrop",
    "RandomResizedCrop",
    "Resize",
    "Step",
    "pipeline",
    "sample_keys",
]

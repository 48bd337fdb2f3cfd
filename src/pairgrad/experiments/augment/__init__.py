"""Augmentation as a function of an image and a key: a sample has the same bits in every batch, and so do the branches of a fork."""

from pairgrad.experiments.augment.catalogue import PIPELINES, pipeline
from pairgrad.experiments.augment.draws import sample_keys
from pairgrad.experiments.augment.pipeline import Pipeline
from pairgrad.experiments.augment.policies import AutoAugmentCIFAR10, RandAugment
from pairgrad.experiments.augment.sizing import CentreCrop, RandomCrop, RandomResizedCrop, Resize
from pairgrad.experiments.augment.step import Step
from pairgrad.experiments.augment.steps import Affine, ColorJitter, Cutout, Grayscale, HorizontalFlip, Noise, Normalize

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

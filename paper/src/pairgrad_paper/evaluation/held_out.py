"""Which images a network is judged by."""

from __future__ import annotations

from pairgrad_paper.data import Benchmark, Images
from pairgrad_paper.recipes import Recipe


def held_out(benchmark: Benchmark, recipe: Recipe) -> Images:
    """What accuracy is measured on, and the in-distribution side of detection: the test part, or what the system's published protocol has instead.

    The paper evaluates PATT on ImageNet-LT with the validation list of 20,000 pictures; ProCo's code evaluates with the test list of 50,000.
    """
    if _wants_validation(benchmark, recipe) and benchmark.validation is not None:
        return benchmark.validation
    return benchmark.test


def held_out_note(benchmark: Benchmark, recipe: Recipe) -> str:
    """What of it is not as published; empty if nothing."""
    if not _wants_validation(benchmark, recipe) or "validation" in held_out(benchmark, recipe).name:
        return ""
    return f"the paper evaluates PATT on the validation list of ImageNet-LT, which is missing: {benchmark.test.name} is in its place"


def _wants_validation(benchmark: Benchmark, recipe: Recipe) -> bool:
    return benchmark.name == "imagenet-lt" and recipe.loss.method == "patt"

"""Other people's names and conventions over our losses."""

from pairgrad.compat import proco
from pairgrad.compat.checkpoint import EstimatorState, ProCoState, read_proco_checkpoint
from pairgrad.compat.conventions import MetricLearningLoss, TimmLoss

__all__ = ["EstimatorState", "MetricLearningLoss", "ProCoState", "TimmLoss", "proco", "read_proco_checkpoint"]

"""OOD-ness from logits: higher means more out-of-distribution, as everywhere in this package.

Logits have classes along the last dimension, in any floating dtype; float16 and bfloat16 are computed, and returned, in float32.
"""

from __future__ import annotations

from typing import Any

import torch

from pairgrad.ground.checks import computing_dtype, describe, floating_tensor, on_device, real_number


def msp(logits: torch.Tensor) -> torch.Tensor:
    r"""One minus the maximum softmax probability, \(\sum_{k \ne k^*} p_k\) with \(k^*\) the most probable class.

    The probabilities of the other classes are summed instead of subtracting the largest from 1. So confident samples keep their order: float32 rounds a
    largest probability within 3e-8 of 1 to 1, whereas this sum resolves differences down to about 1e-38 (1e-308 in float64).

    Args:
        logits: (..., K).

    Returns:
        (...), between 0 and 1 - 1/K.

    Examples:
        >>> msp(torch.tensor([[20.0, 0.0], [30.0, 0.0]]))
        tensor([2.0612e-09, 9.3576e-14])
    """
    z = _logits(logits)
    top, index = z.max(dim=-1, keepdim=True)
    others = (z - top).exp().scatter(-1, index, 0.0).sum(dim=-1)
    return others / (1 + others)


def energy(logits: torch.Tensor, temperature: float = 1.0) -> torch.Tensor:
    r"""The energy \(-T \log \sum_k e^{z_k / T}\); with T = 1 the score of PATT and PASCL.

    Args:
        logits: (..., K).
        temperature: T > 0.

    Returns:
        (...).

    Examples:
        >>> energy(torch.tensor([[2.0, 2.0]]))
        tensor([-2.6931])
    """
    temperature = _positive("temperature", temperature)
    z = _logits(logits)
    return -torch.logsumexp(z, dim=-1) if temperature == 1 else -temperature * torch.logsumexp(z / temperature, dim=-1)


def max_logit(logits: torch.Tensor) -> torch.Tensor:
    """Minus the largest logit, the limit of `energy` at temperature 0.

    Args:
        logits: (..., K).

    Returns:
        (...).
    """
    return -_logits(logits).amax(dim=-1)


def vmf(scores: torch.Tensor, log_prior: torch.Tensor | None = None) -> torch.Tensor:
    r"""\(-\log \sum_k \pi_k e^{q_k}\) of von Mises-Fisher class scores q, such as those a class-bank loss trains with.

    Args:
        scores: q, (..., K).
        log_prior: log pi, (K,); without it every class counts alike, and the result is `energy(scores)`.

    Returns:
        (...).
    """
    q = _logits(scores, "scores")
    if log_prior is None:
        return -torch.logsumexp(q, dim=-1)
    prior = floating_tensor("log_prior", log_prior)
    if prior.shape != q.shape[-1:]:
        raise ValueError(f"log_prior must have one entry for each of the {q.shape[-1]} classes of scores, got {describe(prior)}")
    on_device("log_prior", prior, q.device, "scores are", "it")
    return -torch.logsumexp(q + prior.to(q), dim=-1)


def _logits(logits: Any, name: str = "logits") -> torch.Tensor:
    z = floating_tensor(name, logits)
    if z.dim() == 0 or z.shape[-1] == 0:
        raise ValueError(f"{name} must have the classes along the last dimension, shape (..., K) with K >= 1, got {describe(z)}")
    return z.to(computing_dtype(name, z.dtype))


def _positive(name: str, value: Any) -> float:
    return real_number(name, value, "a finite number > 0, from 1e-30 to 1e30", lambda number: 1e-30 <= number <= 1e30, kind=ValueError)

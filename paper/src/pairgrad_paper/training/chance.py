"""The state of every random number generator that a network may draw from."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch


def seed_all(seed: int) -> None:
    """Give every global generator a state that follows from the seed."""
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    random.seed(seed)


def random_state() -> dict[str, Any]:
    """Of torch on the CPU and on GPUs, of numpy and of Python."""
    algorithm, words, position, has_gauss, gauss = np.random.get_state()  # noqa: NPY002 (the global generator is what others may draw from)
    version, numbers, spare = random.getstate()
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "numpy": {
            "algorithm": algorithm,
            "words": torch.from_numpy(np.asarray(words).astype(np.int64)),
            "position": int(position),
            "has_gauss": int(has_gauss),
            "gauss": float(gauss),
        },
        "python": {"version": version, "numbers": torch.tensor(numbers, dtype=torch.int64), "spare": spare},
    }


def restore_random_state(state: dict[str, Any]) -> None:
    """Puts back what `random_state` gave; the generators of CUDA only where there are as many devices."""
    torch.set_rng_state(state["torch"].cpu())
    if state["cuda"] and len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all([one.cpu() for one in state["cuda"]])
    known = state["numpy"]
    words = known["words"].cpu().numpy().astype(np.uint32)
    np.random.set_state((known["algorithm"], words, known["position"], known["has_gauss"], known["gauss"]))  # noqa: NPY002
    known = state["python"]
    random.setstate((known["version"], tuple(known["numbers"].tolist()), known["spare"]))

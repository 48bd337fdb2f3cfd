"""How much longer `import pairgrad` takes than `import torch`, each in a fresh interpreter."""

from __future__ import annotations

import statistics
import subprocess
import sys
from dataclasses import dataclass

from benchmarks.timing import Samples

MODULES = ("torch", "pairgrad")
_PROGRAM = "import time; start = time.perf_counter(); import {module}; print(time.perf_counter() - start)"


@dataclass(frozen=True)
class ImportTimes:
    samples: dict[str, Samples]

    @property
    def ratio(self) -> float:
        """Median over the rounds of the time of pairgrad over that of torch in the same round."""
        torch_seconds, pairgrad_seconds = (self.samples[module].seconds for module in MODULES)
        return statistics.median(ours / base for base, ours in zip(torch_seconds, pairgrad_seconds, strict=True))


def import_seconds(module: str) -> float:
    """Seconds of one import, without the start of the interpreter."""
    program = _PROGRAM.format(module=module)
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return float(finished.stdout)


def import_times(rounds: int = 7) -> ImportTimes:
    """One round imports each module once, in turn; a first round, which fills the file cache, is not counted."""
    samples = {module: Samples() for module in MODULES}
    for i in range(rounds + 1):
        for module in MODULES:
            seconds = import_seconds(module)
            if i:
                samples[module].seconds.append(seconds)
    return ImportTimes(samples)


def main() -> None:
    """Prints the medians and the ratio."""
    times = import_times()
    for module, samples in times.samples.items():
        print(f"import {module}: {samples.median:.3f} s")
    print(f"ratio: {times.ratio:.3f}")


if __name__ == "__main__":
    main()

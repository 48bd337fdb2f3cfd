"""The data of the experiments: loaders for the original distributions, and one data set that needs no download.

- `load` gives a `benchmark` by name; `sources` has the OOD sets, `long_tail` the imbalance.
- `noise` stands in for images that are not there.
- `cifar`, `digits`, `listed` (images in folders, by `manifests`), `arrays` (saved by the user) and `pictures` read; `files` checks what is read against its
  published hash; `images` is what all of them hand on.
"""

from pairgrad_paper.data.benchmark import Benchmark, OODSource
from pairgrad_paper.data.files import DataError, FileFact
from pairgrad_paper.data.images import ArrayImages, FileImages, Images
from pairgrad_paper.data.load import BENCHMARKS, load_benchmark
from pairgrad_paper.data.long_tail import long_tail_counts, long_tail_indices
from pairgrad_paper.data.noise import noise

__all__ = [
    "BENCHMARKS",
    "ArrayImages",
    "Benchmark",
    "DataError",
    "FileFact",
    "FileImages",
    "Images",
    "OODSource",
    "load_benchmark",
    "long_tail_counts",
    "long_tail_indices",
    "noise",
]

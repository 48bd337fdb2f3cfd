"""The networks of the experiments: backbones, projection heads and classifiers, put together by `build`.

`network` builds; `residual` and `small` are backbones.
"""

from pairgrad_paper.models.network import BACKBONES, CLASSIFIERS, Network, Outputs, build

__all__ = ["BACKBONES", "CLASSIFIERS", "Network", "Outputs", "build"]

"""torchcomp: compressors and limiters, whose gain is smoothed by a recursion with an attack and a release."""

import os

from census.package import Package

os.environ.setdefault("NUMBA_NUM_THREADS", "1")  # a call on a few numbers would otherwise wait for its threads

package = Package("torchcomp", "0.2.1", family="wavelets and signal processing", group="signals", modules=["torchcomp"])


def noise(*shape):
    """Ordinary numbers in float64."""
    import torch

    return torch.randn(*shape, dtype=torch.float64)


def rates(batch):
    """Attack and release between zero and one."""
    import torch

    return torch.rand(batch, dtype=torch.float64) * 0.5 + 0.3, torch.rand(batch, dtype=torch.float64) * 0.2 + 0.05


@package.case(effort="quick", seconds=60)
def core():
    from torchcomp.core import compressor_core

    return compressor_core, (noise(2, 7), noise(2), *rates(2))


@package.case(effort="quick", seconds=60)
def core_without_the_initial_state():
    import torch
    from torchcomp.core import compressor_core

    attack, release = rates(2)
    start = torch.ones(2, dtype=torch.float64)
    return lambda x, a, r: compressor_core(x, start, a, r), (noise(2, 7), attack, release)


@package.case(effort="quick", seconds=60)
def core_of_the_release_alone():
    from torchcomp.core import compressor_core

    x, start, (attack, release) = noise(2, 7), noise(2), rates(2)
    return compressor_core, (x, start, attack, release.requires_grad_())


@package.case(effort="quick", seconds=60)
def core_with_a_constant_signal():
    import torch
    from torchcomp.core import compressor_core

    return compressor_core, (torch.ones(1, 5, dtype=torch.float64), torch.ones(1, dtype=torch.float64), *rates(1))


@package.case(effort="quick", seconds=60)
def compressor_expander():
    import torch
    from torchcomp import compexp_gain

    level = torch.rand(2, 8, dtype=torch.float64) * 0.8 + 0.1
    number = lambda value: torch.full((2,), value, dtype=torch.float64)  # noqa: E731

    def gain(level, threshold, ratio, attack, release):
        return compexp_gain(level, threshold, ratio, number(-40.0), number(0.5), attack, release)

    return gain, (level, number(-8.0), number(3.0), *rates(2))


@package.case(effort="quick", seconds=60)
def limiter():
    import torch
    from torchcomp import limiter_gain

    signal = noise(2, 8)
    return limiter_gain, (signal, torch.full((2,), -6.0, dtype=torch.float64), *rates(2))


@package.case(effort="quick", seconds=60)
def average():
    import torch
    from torchcomp import avg

    return avg, (noise(2, 6), torch.rand(2, dtype=torch.float64) * 0.5 + 0.3)

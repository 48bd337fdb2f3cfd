"""torchlpc: all-pole filters with coefficients that change from sample to sample."""

import os

from census.package import Package

os.environ.setdefault("NUMBA_NUM_THREADS", "1")  # a call on a few numbers would otherwise wait for its threads

package = Package(
    "torchlpc",
    "0.6",
    family="wavelets and signal processing",
    group="signals",
    modules=["torchlpc"],
    note="0.6 is the newest release with a wheel; later ones are compiled at installation. RecurrenceCUDA needs a GPU.",
)


def noise(*shape):
    """Ordinary numbers in float64."""
    import torch

    return torch.randn(*shape, dtype=torch.float64)


@package.case(effort="quick", seconds=60)
def second_order_filter():
    from torchlpc import sample_wise_lpc

    return sample_wise_lpc, (noise(2, 6), 0.3 * noise(2, 6, 2), noise(2, 2))


@package.case(effort="quick", seconds=60)
def filter_without_initial_conditions():
    from torchlpc import sample_wise_lpc

    return lambda x, a: sample_wise_lpc(x, a), (noise(2, 6), 0.3 * noise(2, 6, 3))


@package.case(effort="quick", seconds=60)
def signal_shorter_than_the_filter():
    from torchlpc import sample_wise_lpc

    return sample_wise_lpc, (noise(1, 2), 0.3 * noise(1, 2, 4), noise(1, 4))


@package.case(effort="quick", seconds=60)
def signal_of_one_sample():
    from torchlpc import sample_wise_lpc

    return sample_wise_lpc, (noise(2, 1), 0.3 * noise(2, 1, 2), noise(2, 2))


@package.case(effort="quick", seconds=60)
def constant_coefficients():
    from torchlpc import sample_wise_lpc

    return lambda x, a: sample_wise_lpc(x, a[:, None].expand(-1, x.shape[1], -1)), (noise(2, 6), 0.3 * noise(2, 2))


@package.case(effort="quick", seconds=60)
def initial_conditions_alone():
    from torchlpc import sample_wise_lpc

    return sample_wise_lpc, (noise(1, 5), 0.3 * noise(1, 5, 2), noise(1, 2).requires_grad_())


@package.case(effort="quick", seconds=60)
def complex_filter():
    import torch
    from torchlpc import sample_wise_lpc

    def filtered(x, a, zi):
        return torch.view_as_real(sample_wise_lpc(*map(torch.view_as_complex, (x, a, zi))))

    return filtered, (noise(1, 5, 2), 0.3 * noise(1, 5, 2, 2), noise(1, 2, 2))

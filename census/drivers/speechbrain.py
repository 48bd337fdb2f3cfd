"""speechbrain: speech processing."""

from census.package import Package

package = Package(
    "speechbrain",
    "1.1.2",
    family="losses and metric learning",
    group="vision",
    modules=["speechbrain"],
    note="The kernels of the transducer loss run in Numba's simulator of CUDA (NUMBA_ENABLE_CUDASIM=1).",
)


def _without_torchaudio():
    import sys
    from unittest import mock

    for name in ("torchaudio", "torchaudio.compliance", "torchaudio.compliance.kaldi"):  # compiled for CUDA, and nothing here needs it
        sys.modules.setdefault(name, mock.MagicMock(__version__="2.11.0"))


def _transducer(reduction, *, ragged=False, batch=2):
    import os

    os.environ["NUMBA_ENABLE_CUDASIM"] = "1"
    _without_torchaudio()
    import torch
    from speechbrain.integrations.numba.transducer_loss import Transducer

    times, labels, classes = 2, 1, 3
    targets = torch.tensor([[1], [2]], dtype=torch.int32)[:batch]
    spans = torch.tensor([2, 1 if ragged else 2], dtype=torch.int32)[:batch]
    lengths = torch.tensor([1, 1], dtype=torch.int32)[:batch]
    scores = torch.randn(batch, times, labels + 1, classes, dtype=torch.float64)
    return lambda x: Transducer.apply(x.log_softmax(-1), targets, spans, lengths, 0, reduction), scores


@package.case("transducer loss, mean", seconds=120)
def transducer_mean():
    return _transducer("mean")


@package.case("transducer loss, unreduced, of ragged lengths", seconds=120)
def transducer_ragged():
    return _transducer("none", ragged=True)


@package.case("transducer loss, sum of one utterance", seconds=120)
def transducer_sum():
    return _transducer("sum", batch=1)


def _quaternion(frozen):
    _without_torchaudio()
    import torch
    from speechbrain.nnet.quaternion_networks.q_ops import QuaternionLinearCustomBackward

    weights = [torch.randn(2, 3, dtype=torch.float64).requires_grad_() for _ in range(4)]
    x = torch.randn(5, 8, dtype=torch.float64).requires_grad_()
    if frozen:
        return lambda x, *w: QuaternionLinearCustomBackward.apply(x, *w, torch.zeros(12, dtype=torch.float64)), (x, *weights)
    return QuaternionLinearCustomBackward.apply, (x, *weights, torch.randn(12, dtype=torch.float64).requires_grad_())


@package.case("quaternion linear layer, bias held fixed at zero")
def quaternion():
    return _quaternion(True)


@package.case("quaternion linear layer")
def quaternion_bias():
    return _quaternion(False)


@package.case(
    "vector quantization",
    intent="straight-through",
    why_intended="speechbrain.lobes.models.PIQ: straight-through estimation of the gradient for the VQ operation (arXiv 1711.00937)",
)
def quantization():
    _without_torchaudio()
    import torch
    from speechbrain.lobes.models.PIQ import VectorQuantizationStraightThrough

    codebook = torch.randn(6, 3, dtype=torch.float64)
    labels = torch.tensor([0.0, 1.0])
    x = torch.randn(2, 2, 2, 3, dtype=torch.float64)
    return lambda x: VectorQuantizationStraightThrough.apply(x, codebook, labels, 2, False, 2)[0], x


@package.case("codebook of vector quantization")
def codebook():
    _without_torchaudio()
    import torch
    from speechbrain.lobes.models.PIQ import VectorQuantizationStraightThrough

    labels = torch.tensor([0.0, 1.0])
    x = torch.randn(2, 2, 2, 3, dtype=torch.float64)
    return lambda codes: VectorQuantizationStraightThrough.apply(x, codes, labels, 2, True, 2)[0], torch.randn(6, 3, dtype=torch.float64)


@package.case("scaled gradient", intent="scaling", why_intended="speechbrain.lobes.models.beats.GradMultiply: scales gradients by a factor")
def scaled():
    _without_torchaudio()
    import torch
    from speechbrain.lobes.models.beats import GradMultiply

    return lambda x: GradMultiply.apply(x, 0.1), torch.randn(3, 4, dtype=torch.float64)


package.finding(
    "speechbrain-transducer-scale",
    kind="gradient",
    where="speechbrain/integrations/numba/transducer_loss.py:228",
    what="The value of the transducer loss is divided by the number of frames, and by the batch with reduction='mean'; the gradient is divided by neither.",
    size="a factor of the number of frames times the batch size",
    cases=["transducer loss, mean", "transducer loss, sum of one utterance", "transducer loss, unreduced, of ragged lengths"],
    known="https://github.com/speechbrain/speechbrain/issues/875",
)
package.finding(
    "speechbrain-transducer-second-backward",
    kind="edits or keeps state",
    where="speechbrain/integrations/numba/transducer_loss.py:304",
    what="The backward multiplies the gradient that it keeps by grad_output in place, so that a second backward through the same graph multiplies again.",
    size="a factor of grad_output",
    cases=["transducer loss, unreduced, of ragged lengths"],
)
package.finding(
    "speechbrain-quaternion-weights",
    kind="missing gradient",
    where="speechbrain/nnet/quaternion_networks/q_ops.py:154",
    what="The second, third and fourth weight get no gradient unless the first one asks for one, and second derivatives leave the weights out.",
    size="all of the gradient",
    cases=["quaternion linear layer, bias held fixed at zero", "quaternion linear layer"],
)
package.finding(
    "speechbrain-quaternion-frozen-bias",
    kind="value",
    where="speechbrain/nnet/quaternion_networks/q_ops.py:86",
    what="The bias is added only if it requires a gradient, so that freezing a trained bias changes the value.",
    size="the whole bias",
    cases=["quaternion linear layer"],
)

"""fla-core: the kernels of flash-linear-attention, in Triton's interpreter."""

from census.package import Package

package = Package(
    "fla-core",
    "0.6.0",
    family="Triton kernels",
    group="triton",
    modules=["fla"],
    note="Kernels run in Triton's interpreter and in float32, at short sequences of one head; the kernels in chunks take long there and were not called.",
)

FAST = {"triton": True, "second_order": False, "seconds": 30}


def _x(*shape):
    import torch

    return torch.randn(*shape)


@package.case("l2norm, one row of zeros", **FAST)
def l2norm_zero():
    from fla.modules.l2norm import l2norm

    x = _x(3, 8)
    x[1] = 0
    return l2norm, x


@package.case("rms_norm_gated", **FAST)
def rms_norm_gated():
    from fla.modules.fused_norm_gate import rms_norm_gated

    return lambda x, g, w: rms_norm_gated(x, g, w, None), (_x(3, 8), _x(3, 8), _x(8))


@package.case("swiglu", triton=True, seconds=30)
def swiglu():
    from fla.modules.activations import swiglu

    return swiglu, (_x(2, 8), _x(2, 8))


@package.case("fused_recurrent_hgrn", **FAST)
def hgrn():
    import torch
    from fla.ops.hgrn import fused_recurrent_hgrn

    return lambda x, g: fused_recurrent_hgrn(x, torch.nn.functional.logsigmoid(g))[0], (_x(1, 4, 4), _x(1, 4, 4))


@package.case("fused_recurrent_gla, initial and final state", **FAST)
def gla():
    import torch
    from fla.ops.gla import fused_recurrent_gla

    def states(q, k, v, g, h):
        return fused_recurrent_gla(q, k, v, torch.nn.functional.logsigmoid(g), initial_state=h, output_final_state=True)

    return states, (_x(1, 3, 1, 4), _x(1, 3, 1, 4), _x(1, 3, 1, 4), _x(1, 3, 1, 4), _x(1, 1, 4, 4))

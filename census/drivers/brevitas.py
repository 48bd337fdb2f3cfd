"""brevitas: straight-through building blocks of quantisers, and quantisers with learned scales."""

from census.package import Package

package = Package(
    "brevitas",
    "0.13.4",
    family="quantised networks",
    group="neurons",
    modules=["brevitas"],
    note="Every Function but AbsBinarySignGradFn is documented as straight-through with respect to its first argument, and as having no "
    "gradient with respect to bounds.",
)

DOCUMENTED = "straight-through by its docstring: brevitas.ops.autograd_ste_ops"

_STEPS = ["round", "ceil", "floor", "round_to_zero", "dpu_round", "binary_sign", "ternary_sign"]


def _declare(called):
    def make():
        import torch
        from brevitas.ops import autograd_ste_ops

        return getattr(autograd_ste_ops, f"{called}_ste_impl"), torch.randn(3, 5, dtype=torch.float64) * 2

    package.case(f"{called}_ste", intent="straight-through", why_intended=DOCUMENTED)(make)


for _called in _STEPS:
    _declare(_called)


def _numbers():
    import torch

    return torch.randn(3, 5, dtype=torch.float64) * 1.5


@package.case("scalar_clamp_ste", intent="clamped-straight-through", why_intended=DOCUMENTED)
def scalar_clamp():
    from brevitas.ops.autograd_ste_ops import scalar_clamp_ste_impl

    return lambda x: scalar_clamp_ste_impl(x, -1.0, 0.7), _numbers()


@package.case("scalar_clamp_min_ste", intent="clamped-straight-through", why_intended=DOCUMENTED)
def scalar_clamp_min():
    from brevitas.ops.autograd_ste_ops import scalar_clamp_min_ste_impl

    return lambda x: scalar_clamp_min_ste_impl(x, -0.3), _numbers()


@package.case("tensor_clamp_ste", intent="clamped-straight-through", why_intended=DOCUMENTED)
def tensor_clamp():
    import torch
    from brevitas.ops.autograd_ste_ops import tensor_clamp_ste_impl

    low, high = -torch.rand(5, dtype=torch.float64), torch.rand(5, dtype=torch.float64)
    return lambda x: tensor_clamp_ste_impl(x, low, high), _numbers().requires_grad_()


@package.case("tensor_clamp_ste: bounds")
def tensor_clamp_bounds():
    import torch
    from brevitas.ops.autograd_ste_ops import tensor_clamp_ste_impl

    low, high = -torch.rand(5, dtype=torch.float64), torch.rand(5, dtype=torch.float64)
    return tensor_clamp_ste_impl, (_numbers().clamp(-0.05, 0.05) + _numbers(), low, high)


@package.case("tensor_clamp_ste_, in place", intent="clamped-straight-through", why_intended=DOCUMENTED)
def tensor_clamp_in_place():
    import torch
    from brevitas.ops.autograd_ste_ops import tensor_clamp_ste_impl_

    low, high = -torch.rand(5, dtype=torch.float64), torch.rand(5, dtype=torch.float64)
    return lambda x: tensor_clamp_ste_impl_(x.clone(), low, high), _numbers().requires_grad_()


@package.case()
def abs_binary_sign_grad():
    import torch
    from brevitas.ops.autograd_ste_ops import abs_binary_sign_grad_impl

    return abs_binary_sign_grad_impl, torch.tensor([0.5, -1.2, 2.0, -0.3, 0.0], dtype=torch.float64)


@package.case("StochasticRoundSte", intent="straight-through", why_intended="its name: brevitas.core.function_wrapper.stochastic_round")
def stochastic_round():
    from brevitas.core.function_wrapper.stochastic_round import StochasticRoundSte

    return lambda x: StochasticRoundSte(seed=0)(x), _numbers()


def _quantiser():
    from brevitas.core.bit_width import BitWidthConst
    from brevitas.core.function_wrapper import Identity
    from brevitas.core.quant import IntQuant, RescalingIntQuant
    from brevitas.core.restrict_val import FloatRestrictValue
    from brevitas.core.scaling import IntScaling, ParameterScaling
    from brevitas.core.zero_point import ZeroZeroPoint

    return RescalingIntQuant(
        int_quant=IntQuant(signed=True, narrow_range=True, input_view_impl=Identity()),
        scaling_impl=ParameterScaling(1.0, (1,), restrict_scaling_impl=FloatRestrictValue()),
        int_scaling_impl=IntScaling(signed=True, narrow_range=True),
        zero_point_impl=ZeroZeroPoint(),
        bit_width_impl=BitWidthConst(4),
    ).double()


@package.case("RescalingIntQuant: learned scale, inputs beyond the range")
def rescaling_scale():
    import torch
    from torch.func import functional_call

    quantiser = _quantiser()
    x = torch.randn(3, 5, dtype=torch.float64)
    x = x.sign() * (x.abs() + 3)
    return lambda v: functional_call(quantiser, {"scaling_impl.value": v}, (x,))[0], torch.tensor(
        [1.3], dtype=torch.float64
    ).requires_grad_()


@package.case(
    "RescalingIntQuant: input", intent="straight-through", why_intended="documented as straight-through: brevitas.core.quant.IntQuant"
)
def rescaling_input():
    quantiser = _quantiser()
    for parameter in quantiser.parameters():
        parameter.requires_grad_(False)
    return lambda x: quantiser(x)[0], (_numbers() * 0.25).requires_grad_()


package.finding(
    "brevitas-tensor-clamp-bounds",
    kind="missing gradient",
    where="brevitas/ops/autograd_ste_ops.py:122",
    what="tensor_clamp_ste supplies no gradient for its bounds, and passes that of clamped elements on to its first argument.",
    size="the whole gradient of the bounds",
    cases=["tensor_clamp_ste: bounds"],
    documented="docstring of TensorClampSteFn: the gradient with respect to min_val and max_val is always None",
)

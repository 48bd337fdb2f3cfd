"""BoTorch: Bayesian optimization."""

from census.package import Package

package = Package("botorch", "0.18.1", family="Gaussian processes and probability", group="probability", modules=["botorch"])

STRAIGHT = "botorch/utils/rounding.py: 'functions using straight through gradient estimators'"


@package.case(intent="straight-through", why_intended=STRAIGHT)
def rounding():
    import torch
    from botorch.utils.rounding import RoundSTE

    return RoundSTE.apply, torch.tensor([0.3, 1.8, -2.2], dtype=torch.float64)


@package.case(intent="straight-through", why_intended=STRAIGHT)
def one_hot_argmax():
    import torch
    from botorch.utils.rounding import OneHotArgmaxSTE

    return OneHotArgmaxSTE.apply, torch.randn(2, 4, dtype=torch.float64)


@package.case()
def log_areas():
    """The fused kernel, which is compiled at its first use, of a batch of points and cells."""
    import torch
    from botorch.acquisition.multi_objective import logei

    logei._try_load_fused_kernel()
    objectives, lower = torch.randn(2, 3, 2, 2, dtype=torch.float64), torch.randn(4, 2, dtype=torch.float64) - 1
    upper = lower + torch.rand(4, 2, dtype=torch.float64) + 0.5
    return lambda o: logei._FusedLogAreas.apply(o, lower, upper, 0.05, 0.1), objectives


@package.case()
def log_areas_of_batched_unbounded_cells():
    import torch
    from botorch.acquisition.multi_objective import logei

    logei._try_load_fused_kernel()
    objectives, lower = torch.randn(2, 3, 1, 3, dtype=torch.float64), torch.randn(2, 4, 3, dtype=torch.float64) - 1
    upper = lower + torch.rand(2, 4, 3, dtype=torch.float64) + 0.5
    upper[:, 0] = float("inf")
    return lambda o: logei._FusedLogAreas.apply(o, lower, upper, 1e-3, 1e-2), objectives


@package.case()
def log_areas_of_equal_points():
    import torch
    from botorch.acquisition.multi_objective import logei

    logei._try_load_fused_kernel()
    lower = torch.zeros(3, 2, dtype=torch.float64)
    objectives = torch.tensor([[[[0.4, 0.9], [0.4, 0.9]], [[-0.5, 1.2], [0.0, 0.3]]]], dtype=torch.float64)
    return lambda o: logei._FusedLogAreas.apply(o, lower, lower + torch.tensor([1.0, 2.0], dtype=torch.float64), 0.05, 0.1), objectives


package.finding(
    "botorch-log-areas-second-derivative",
    kind="second derivative",
    where="botorch/acquisition/multi_objective/logei.py:157",
    what="The fused kernel's gradient comes without a graph, so that its second derivative is zero, without an error.",
    size="the whole second derivative",
    cases=["log areas", "log areas of batched unbounded cells", "log areas of equal points"],
)

"""e3nn: neural networks that are equivariant under Euclidean motions."""

from census.package import Package

package = Package(
    "e3nn",
    "0.6.0",
    family="geometry and pose",
    group="geometry",
    modules=["e3nn"],
    tests=["tests/math/soft_unit_step_test.py"],
    test_options=["-c", "setup.cfg", "--rootdir=.", "--confcutdir=."],
)


@package.case(seconds=30)
def soft_unit_step():
    import torch
    from e3nn.math import soft_unit_step

    return soft_unit_step, torch.tensor([-1.0, 0.05, 0.3, 1.0, 4.0], dtype=torch.float64)


@package.case("soft_unit_step around 0", seconds=20)
def _zero():
    import torch
    from e3nn.math import soft_unit_step

    return soft_unit_step, torch.tensor([-1e-3, 0.0, 2e-3, 1e-2], dtype=torch.float64)


@package.case("soft_unit_step of a number whose square underflows", effort="quick", seconds=20)
def _underflow():
    import torch
    from e3nn.math import soft_unit_step

    return soft_unit_step, torch.tensor([1e-23, 0.5])


@package.case(seconds=30)
def soft_one_hot_linspace():
    import torch
    from e3nn.math import soft_one_hot_linspace

    return lambda x: soft_one_hot_linspace(x, 0.0, 2.0, 5, basis="smooth_finite", cutoff=True), torch.tensor(
        [0.1, 0.53, 1.7], dtype=torch.float64
    )


@package.case(seconds=20)
def soft_one_hot_linspace_without_cutoff():
    import torch
    from e3nn.math import soft_one_hot_linspace

    return lambda x: soft_one_hot_linspace(x, 0.0, 2.0, 4, basis="smooth_finite", cutoff=False), torch.tensor(
        [[0.1], [1.2]], dtype=torch.float64
    )


package.finding(
    "e3nn-underflow",
    kind="gradient at special states",
    where="e3nn/math/_soft_unit_step.py:21",
    what="For positive x whose square underflows, below 2.6e-23 in float32, the gradient is 0 / 0, which is nan; the true one is 0.",
    size="nan instead of 0",
    cases=["soft_unit_step of a number whose square underflows"],
)

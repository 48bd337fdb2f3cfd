"""odl: operators of inverse problems, which a Function makes available to torch."""

from census.package import Package

package = Package("odl", "1.0.0", family="wavelets and signal processing", group="signals", modules=["odl"])


def noise(*shape):
    """Ordinary numbers in float64."""
    import torch

    return torch.randn(*shape, dtype=torch.float64)


def applied(operator):
    """The operator as a function of a tensor."""
    from odl.contrib.torch import OperatorFunction

    return lambda x: OperatorFunction.apply(operator, x)


def matrix():
    """Two rows of three."""
    import numpy as np

    return np.array([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]])


@package.case(effort="quick", seconds=25)
def matrix_operator():
    import odl

    return applied(odl.MatrixOperator(matrix())), noise(3)


@package.case(effort="quick", seconds=25, second_order=False)
def matrix_operator_of_a_batch():
    import odl

    return applied(odl.MatrixOperator(matrix())), noise(2, 2, 3)


@package.case(effort="quick", seconds=25)
def matrix_operator_between_weighted_spaces():
    import odl

    return applied(odl.MatrixOperator(matrix(), domain=odl.rn(3, weighting=2.0), range=odl.rn(2, weighting=5.0))), noise(3)


@package.case(effort="quick", seconds=25)
def squared_norm():
    import odl

    return applied(odl.functionals.L2NormSquared(odl.rn(3))), noise(3)


@package.case(effort="quick", seconds=25)
def squared_norm_with_weights():
    import odl

    return applied(odl.functionals.L2NormSquared(odl.rn(3, weighting=[1.0, 2.0, 3.0]))), noise(3)


@package.case(effort="quick", seconds=25)
def squared_norm_of_a_discretized_function():
    import odl

    return applied(odl.functionals.L2NormSquared(odl.uniform_discr(0, 1, 4))), noise(4)


@package.case(effort="quick", seconds=25)
def derivative_of_a_discretized_function():
    import odl

    return applied(odl.PartialDerivative(odl.uniform_discr(0, 1, 5), 0, method="forward", pad_mode="symmetric")), noise(5)


@package.case(effort="quick", seconds=25, second_order=False)
def central_derivative():
    import odl

    return applied(odl.PartialDerivative(odl.uniform_discr(0, 1, 5), 0, method="central", pad_mode="constant")), noise(2, 5)


@package.case(effort="quick", seconds=25)
def laplacian():
    import odl

    return applied(odl.Laplacian(odl.uniform_discr([0, 0], [1, 2], (3, 4)))), noise(3, 4)


@package.case(effort="quick", seconds=25)
def power_operator():
    import odl

    return applied(odl.PowerOperator(odl.rn(3), 3)), noise(3)


@package.case(effort="quick", seconds=25)
def resizing_operator():
    import odl

    return applied(odl.ResizingOperator(odl.uniform_discr(0, 1, 4), ran_shp=(7,), pad_mode="symmetric")), noise(4)


@package.case(effort="quick", seconds=25, second_order=False)
def module_of_a_matrix_operator():
    import odl
    from odl.contrib.torch import OperatorModule

    return OperatorModule(odl.MatrixOperator(matrix())), noise(2, 3)


package.finding(
    "odl-array-weighting",
    kind="gradient in a configuration",
    where="odl/contrib/torch/operator.py:324",
    what="The backward multiplies by the ratio of the weights of domain and range only where they are constants; arrays of weights count as one, so that "
    "gradients of functionals on such spaces lack them.",
    size="factors of the weights",
    cases=["squared norm with weights"],
)
package.finding(
    "odl-matrix-weighting",
    kind="gradient in a configuration",
    where="odl/contrib/torch/operator.py:327",
    what="The backward multiplies by the ratio of the weights of domain and range, which belongs to adjoints in weighted spaces; that of MatrixOperator is the "
    "transposed matrix without weights.",
    size="a factor of the ratio of the weights, here 0.4",
    cases=["matrix operator between weighted spaces"],
)
package.finding(
    "odl-functional-in-float32",
    kind="value",
    where="odl/contrib/torch/operator.py:239",
    what="The value of a functional becomes a tensor of torch's default dtype: for float64 arguments it is rounded to float32.",
    size="6e-8 of the value",
    cases=["squared norm", "squared norm of a discretized function"],
)
package.finding(
    "odl-second-derivative",
    kind="second derivative",
    where="odl/contrib/torch/operator.py:374",
    what="The backward returns a gradient that is not connected to the input, so that second derivatives lack that of the operator, without an error.",
    size="all of the operator's second derivative",
    cases=[
        "squared norm",
        "squared norm of a discretized function",
        "power operator",
        "matrix operator",
        "derivative of a discretized function",
        "laplacian",
        "resizing operator",
    ],
)

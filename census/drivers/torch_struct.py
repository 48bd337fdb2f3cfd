"""torch-struct: distributions over structures, and the semirings they are summed in."""

from census.package import Package

package = Package(
    "torch-struct", "0.5", family="sorting, sparse attention and discrete choice", group="attention", modules=["torch_struct"]
)


def _x(*shape):
    import torch

    return torch.randn(*shape, dtype=torch.float64)


@package.case("SparseMaxSemiring.sum")
def sparse_max():
    from torch_struct.semirings import SparseMaxSemiring

    return SparseMaxSemiring.sum, _x(3, 6)


@package.case("linear chain, marginals in the sparsemax semiring")
def chain_marginals():
    from torch_struct import LinearChain
    from torch_struct.semirings import SparseMaxSemiring

    return lambda x: LinearChain(SparseMaxSemiring).marginals(x), _x(1, 3, 2, 2)


@package.case("CheckpointSemiring.matmul")
def checkpoint():
    from torch_struct.semirings import CheckpointSemiring, LogSemiring

    return CheckpointSemiring(LogSemiring, 1).matmul, (_x(2, 3, 4), _x(2, 4, 2))


@package.case("CheckpointSemiring.matmul, one matrix for the whole batch")
def checkpoint_broadcast():
    from torch_struct.semirings import CheckpointSemiring, LogSemiring

    return CheckpointSemiring(LogSemiring, 1).matmul, (_x(2, 3, 4), _x(1, 4, 2))


@package.case("CheckpointSemiring.matmul, second factor fixed")
def checkpoint_fixed():
    from torch_struct.semirings import CheckpointSemiring, LogSemiring

    return CheckpointSemiring(LogSemiring, 1).matmul, (_x(2, 3, 4).requires_grad_(), _x(2, 4, 2))


@package.case("CheckpointShardSemiring.matmul")
def shard():
    from torch_struct.semirings import CheckpointShardSemiring, LogSemiring

    return CheckpointShardSemiring(LogSemiring, 10).matmul, (_x(5, 3, 4), _x(5, 4, 2))


@package.case("CheckpointShardSemiring.matmul, one matrix for the whole batch")
def shard_broadcast():
    from torch_struct.semirings import CheckpointShardSemiring, LogSemiring

    return CheckpointShardSemiring(LogSemiring, 10).matmul, (_x(2, 3, 3, 4), _x(1, 3, 4, 1))


@package.case("CheckpointShardSemiring.matmul, a single row")
def shard_row():
    from torch_struct.semirings import CheckpointShardSemiring, LogSemiring

    return CheckpointShardSemiring(LogSemiring, 4).matmul, (_x(7, 1, 3), _x(7, 3, 2))


@package.case("linear chain, partition in the sampling semiring")
def chain_sampled():
    from torch_struct import LinearChain
    from torch_struct.semirings import SampledSemiring

    return lambda x: LinearChain(SampledSemiring).sum(x), _x(1, 3, 2, 2)


package.finding(
    "torch-struct-sparsemax-value",
    kind="value",
    where="torch_struct/semirings/sparse_max.py:26",
    what="The value of the sparsemax semiring is w.x - |w|; the supplied gradient w belongs to w.x - |w|^2 / 2, the maximum that defines sparsemax.",
    size="22% of the gradient",
    cases=["SparseMaxSemiring.sum"],
)
package.finding(
    "torch-struct-sparsemax-marginals",
    kind="second derivative",
    where="torch_struct/semirings/sparse_max.py:32",
    what="The gradient is computed from a saved tensor that is cut off from the potentials, so marginals in the sparsemax semiring carry no "
    "gradient; they depend on the potentials.",
    size="all of the gradient of the marginals",
    cases=["linear chain, marginals in the sparsemax semiring"],
)
package.finding(
    "torch-struct-checkpoint-second-derivative",
    kind="second derivative",
    where="torch_struct/semirings/checkpoint.py:35",
    what="The backward differentiates the recomputed product without create_graph, so its result is a constant for second derivatives, and "
    "no error is raised where other terms depend on the same arguments.",
    size="all of the second derivative of the product",
    cases=["CheckpointSemiring.matmul", "CheckpointSemiring.matmul, one matrix for the whole batch"],
)
package.finding(
    "torch-struct-checkpoint-one-argument",
    kind="missing gradient",
    where="torch_struct/semirings/checkpoint.py:35",
    what="The backward asks for the gradients of both factors, and raises an error if one of them needs none.",
    size="an error in place of the gradient",
    cases=["CheckpointSemiring.matmul, second factor fixed"],
)
package.finding(
    "torch-struct-shard-sum",
    kind="missing gradient",
    where="torch_struct/semirings/checkpoint.py:187",
    what="The gradient of a factor is summed over its dimensions of size 1; where it has none the list of dimensions is empty, which torch "
    "reads as all dimensions, and the backward raises an error.",
    size="an error in place of the gradient",
    cases=[
        "CheckpointShardSemiring.matmul",
        "CheckpointShardSemiring.matmul, one matrix for the whole batch",
        "CheckpointShardSemiring.matmul, a single row",
    ],
)
package.finding(
    "torch-struct-sampled",
    kind="gradient",
    where="torch_struct/semirings/sample.py:36",
    what="Each backward draws a structure and supplies its indicator; the gradient is the mean of many draws.",
    size="one gradient for a single draw",
    cases=["linear chain, partition in the sampling semiring"],
    documented='docstring of SampledSemiring: "Gradients" give sample',
)

"""torchmd-net: TensorNet and its operators in Warp, which also run on a CPU."""

from census.package import Package

package = Package("torchmd-net", "3.1.0", family="graph networks", group="probability", modules=["torchmdnet"])


def normal(*shape):
    """Random numbers in float64."""
    import torch

    return torch.randn(*shape, dtype=torch.float64)


def graph(nodes=4):
    """The sorted forms of a small directed graph that the message passing operators take."""
    import torch
    from torchmdnet.extensions.warp_ops import graph_transform

    index = torch.tensor([[0, 1, 1, 2, 3, 3, 0], [1, 0, 2, 1, 0, 3, 2]], dtype=torch.int32)
    return graph_transform(index, nodes)


@package.case()
def compose_tensor():
    from torchmdnet.extensions.warp_ops import fn_compose_tensor

    return fn_compose_tensor, (normal(3, 1, 2), normal(3, 3, 2), normal(3, 5, 2))


@package.case()
def decompose_tensor():
    from torchmdnet.extensions.warp_ops import fn_decompose_tensor

    return fn_decompose_tensor, normal(3, 3, 3, 2)


@package.case()
def tensor_norm3():
    from torchmdnet.extensions.warp_ops import fn_tensor_norm3

    return fn_tensor_norm3, normal(3, 3, 3, 2)


@package.case()
def tensor_matmul_o3():
    from torchmdnet.extensions.warp_ops import fn_tensor_matmul_o3_3x3

    return fn_tensor_matmul_o3_3x3, (normal(2, 3, 3, 2), normal(2, 3, 3, 2))


@package.case()
def tensor_matmul_so3():
    from torchmdnet.extensions.warp_ops import fn_tensor_matmul_so3_3x3

    return fn_tensor_matmul_so3_3x3, (normal(2, 3, 3, 2), normal(2, 3, 3, 2))


@package.case()
def message_passing():
    from torchmdnet.extensions.warp_ops import fn_message_passing

    parts = graph()
    return lambda x, y, z, w: fn_message_passing(x, y, z, w, *parts), (normal(4, 1, 2), normal(4, 3, 2), normal(4, 5, 2), normal(7, 3, 2))


@package.case()
def radial_message_passing():
    from torchmdnet.extensions.warp_ops import fn_radial_message_passing

    row_data, _, row_indptr, *_ = graph()
    return lambda r, w: fn_radial_message_passing(r, w, row_data, row_indptr), (normal(7, 3), normal(7, 3, 2))


def neighbours(strategy, *, periodic=False, loop=False, transpose=True):
    """A case of the neighbour list: distances and their vectors."""
    import torch
    from torchmdnet.extensions.ops import get_neighbor_pairs_kernel

    batch, box = torch.tensor([0, 0, 0, 0, 1, 1]), torch.eye(3, dtype=torch.float64) * 6

    def distances(positions):
        made = get_neighbor_pairs_kernel(strategy, positions, batch, box, periodic, 0.0, 2.5, 40, loop, transpose, 64)
        return made[1], made[2]

    return distances, normal(6, 3)


@package.case()
def neighbours_by_brute_force():
    return neighbours("brute")


@package.case()
def neighbours_by_brute_force_with_loops():
    return neighbours("brute", loop=True, periodic=True)


@package.case()
def neighbours_by_cells():
    return neighbours("cell", periodic=True, transpose=False)


package.finding(
    "torchmd-net-tensor-norm3-second-derivative",
    kind="accuracy",
    where="torchmdnet/extensions/warp_kernels/tensor_norm3.py:176",
    what="In float64 the kernel of the second derivative has the constants 2/3 and 4/3 in single precision, because Warp divides literals in single precision.",
    size="6e-9 of the second derivative",
    cases=["tensor norm3"],
)

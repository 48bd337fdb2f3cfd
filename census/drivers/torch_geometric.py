"""PyTorch Geometric: graph neural networks."""

from census.package import Package

package = Package(
    "torch-geometric",
    "2.8.1",
    family="graph networks",
    group="probability",
    modules=["torch_geometric"],
)


def edges(*, undirected=False, by="row"):
    """A small graph, sorted."""
    import torch
    from torch_geometric import EdgeIndex

    if undirected:
        pairs = torch.tensor([[0, 0, 1, 1, 2, 2], [1, 2, 0, 2, 0, 1]])
        return EdgeIndex(pairs.flip(0) if by == "col" else pairs, sparse_size=(3, 3), is_undirected=True, sort_order=by)
    pairs = torch.tensor([[0, 0, 1, 3, 3, 3], [1, 4, 0, 0, 2, 4]])
    order = pairs[1].argsort(stable=True) if by == "col" else slice(None)
    return EdgeIndex(pairs[:, order], sparse_size=(4, 5), sort_order=by)


@package.case()
def sparse_product():
    import torch

    index = edges()
    return lambda x: index.matmul(x), torch.randn(5, 3)


@package.case()
def sparse_product_with_values():
    import torch

    index, values = edges(), torch.randn(6, dtype=torch.float64)
    return lambda x: index.matmul(x, input_value=values), torch.randn(5, 3, dtype=torch.float64)


@package.case()
def sparse_product_with_values_that_vary():
    import torch

    index = edges()
    return lambda x, v: index.matmul(x, input_value=v), (torch.randn(5, 3, dtype=torch.float64), torch.randn(6, dtype=torch.float64))


@package.case()
def sparse_product_transposed():
    import torch

    index, values = edges(by="col"), torch.randn(6, dtype=torch.float64)
    return lambda x: index.matmul(x, input_value=values, transpose=True), torch.randn(4, 3, dtype=torch.float64)


@package.case()
def sparse_mean():
    import torch

    index, values = edges(), torch.randn(6, dtype=torch.float64)
    return lambda x: index.matmul(x, input_value=values, reduce="mean"), torch.randn(5, 3, dtype=torch.float64)


@package.case()
def sparse_mean_transposed():
    import torch
    from torch_geometric import EdgeIndex

    index = EdgeIndex([[3, 0, 1, 2], [0, 1, 1, 3]], sparse_size=(4, 4), sort_order="col")
    return lambda x: index.matmul(x, reduce="mean", transpose=True), torch.randn(4, 3)


@package.case()
def sparse_product_of_an_undirected_graph():
    import torch

    index, values = edges(undirected=True), torch.randn(6)
    return lambda x: index.matmul(x) + index.matmul(x, input_value=values), torch.randn(3, 2)


@package.case()
def sparse_product_transposed_of_an_undirected_graph():
    import torch

    # its pairs are sorted by column
    index, values = edges(undirected=True, by="col"), torch.randn(6)
    return lambda x: index.matmul(x, transpose=True) + index.matmul(x, input_value=values, transpose=True), torch.randn(3, 2)


@package.case()
def sparse_cross_entropy():
    import torch
    from torch_geometric.utils.cross_entropy import sparse_cross_entropy

    labels = torch.tensor([[0, 0, 1, 3], [1, 2, 0, 1]])
    return lambda x: sparse_cross_entropy(x, labels), torch.randn(4, 3, dtype=torch.float64)


@package.case()
def sparse_cross_entropy_with_weights():
    import torch
    from torch_geometric.utils.cross_entropy import sparse_cross_entropy

    labels, weights = torch.tensor([[0, 0, 1, 3], [1, 2, 0, 1]]), torch.tensor([0.5, 1.5, 2.0, 0.0], dtype=torch.float64)
    return lambda x: sparse_cross_entropy(x, labels, weights), torch.randn(4, 3, dtype=torch.float64)


@package.case()
def sparse_cross_entropy_with_negative_weights():
    import torch
    from torch_geometric.utils.cross_entropy import sparse_cross_entropy

    labels, weights = torch.tensor([[0, 0, 1, 3], [1, 2, 0, 1]]), torch.tensor([0.5, -1.5, 2.0, -0.4], dtype=torch.float64)
    return lambda x: sparse_cross_entropy(x, labels, weights), torch.randn(4, 3, dtype=torch.float64)


@package.case()
def sparse_product_transposed_of_a_square_matrix():
    import torch
    from torch_geometric import EdgeIndex

    index = EdgeIndex([[3, 0, 1, 2], [0, 1, 1, 3]], sparse_size=(4, 4), sort_order="col")
    values = torch.randn(4, dtype=torch.float64)
    return lambda x: index.matmul(x, input_value=values, transpose=True), torch.randn(4, 3, dtype=torch.float64)


@package.case()
def reversible_block():
    """Two groups of channels, with a linear layer each; the input is rebuilt in the backward."""
    import torch
    from torch_geometric.nn import GroupAddRev

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(2, 2, dtype=torch.float64))

        def reset_parameters(self):
            """Nothing to do."""

        def forward(self, x, edge_index):
            return torch.tanh(x @ self.weight)

    block = GroupAddRev(Layer(), num_groups=2)
    pairs = torch.tensor([[0, 1], [1, 2]])

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.block = block

        def forward(self, x):
            return self.block(x * 1.0, pairs)  # the block frees what it gets

    return Block(), torch.randn(3, 4, dtype=torch.float64)


package.finding(
    "torch-geometric-edge-index-matmul-transposed-backward",
    kind="missing gradient",
    where="torch_geometric/edge_index.py:1890",
    what="The backward of EdgeIndex.matmul with transpose=True raises for a matrix that is not square: "
    "it reverses the size of the matrix, which is right without transpose only.",
    size="no gradient at all",
    cases=["sparse product transposed"],
)
package.finding(
    "torch-geometric-reversible-second-derivative",
    kind="second derivative",
    where="torch_geometric/nn/models/rev_gnn.py:72",
    what="The gradient that a reversible block supplies is a constant to autograd and is not marked once_differentiable: second derivatives leave "
    "the block out, silently where another term of the loss keeps a graph.",
    size="all of the block's part",
    cases=["reversible block"],
)

"""Cross-entropy of vMF scores without a (batch, classes) matrix: loss and feature gradient in one pass over tiles of classes.

- `plan`: what is fixed before a pass: lengths of series, sizes of tiles.
- `arithmetic`: the formulas of a potential for a tile on the host.
- `tiles`: the sums over a tile, and the loss and gradient that they give.
- `targets`: what the loss of a row is: a label, with weights and smoothing, or probabilities.
- `views`: one batch against fixed classes, or several views against a bank that each of them updates; eagerly.
- `compiled`: the same passes through torch.compile.
- `triton`: the same passes in kernels of Triton: `triton_loss` has those of the loss, `triton_bank` that of the bank. Only these two import triton.
- `execution`: lists all executions by name.
- `autograd`: losses with gradients that are known already.
"""

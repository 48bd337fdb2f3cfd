"""The auditor beside `torch.autograd.gradcheck`, on torch's own functions, and what it costs: `python -m benchmarks.auditor`.

The pages docs/auditor-comparison.md and docs/auditor-library.md are written by it.

`comparison` (over the zoo of the tests; `as_jax` hands it to JAX), `library` (over torch), `cost`, `recording` (docs/auditor-recording.md), `example` (the
picture in the docs) and `kernels` (Triton kernels of other libraries in the interpreter).
"""

"""Training runs: `record`, with `tape` and `step` (the loss computed again); `monitor` watches a long run."""

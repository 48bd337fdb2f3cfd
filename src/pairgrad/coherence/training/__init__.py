"""Training runs: `record`, with `recorder` (which visits are kept), `tape` and `step` (the loss computed again); `monitor` watches a long run."""

"""What is audited: `subject` (a callable with its arguments), `jax_functions` (from JAX), `intent` (what is declared), `domain` (where to look)."""

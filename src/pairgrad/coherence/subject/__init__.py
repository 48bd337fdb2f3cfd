"""What is audited: `subject` (a callable with its arguments), `signature` (what it takes), `configurations` (of a sweep), `backward` (its gradients),
`settings` (of torch, put back), `sparse` (arguments), `jax_functions` (from JAX), `intent` (what is declared), `domain` and `constraint` (where to look),
`curves` (how one argument moves), `autocast` (as it was).
"""

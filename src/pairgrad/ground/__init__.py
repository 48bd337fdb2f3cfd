"""What every other part stands on: arithmetics, dtypes and checks. Imports torch and numpy, nothing of ours.

`arithmetic` (floats, mpmath, balls), `balls`, `quadrature`, `certificate` (what a statement about an error is), `checks` (of arguments), `files`,
`compilation`.
"""

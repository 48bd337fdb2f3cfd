"""Mutation testing: small mistakes are put into the numeric core and into the auditor, and the tests must notice each of them.

`python -m tests.mutation run` makes the mutants (with the operators of cosmic-ray) and runs the tests against them; docs/mutation-testing.md says how.
"""

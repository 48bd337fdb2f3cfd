"""The tests of pairgrad, laid out like src/pairgrad; CONTRIBUTING.md says what stands where.

For all of them: `truth` (ball arithmetic), `dual` (formulas that differentiate themselves), `tolerances`. Tests import helpers, never other tests.
"""

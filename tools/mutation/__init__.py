"""Mutation testing: puts small mistakes into the source and counts, per file, how many the tests notice.

`settings` reads the folders from pyproject.toml, `mutants` lists the mistakes (operators of cosmic-ray), `trials` runs tests against one of them in a forked
process, `results` remembers outcomes from run to run, and `page` writes the counts into docs/mutation-testing.md. Start it with `python -m tools.mutation run`.
"""

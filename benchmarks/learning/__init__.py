"""What a learning step costs: `python -m benchmarks.learning` measures it and writes docs/learning-benchmarks.md.

- Who takes part: `contestants`, `contender`, `library` (ours), `plain` (torch), `floor`, on one `workload` by `step`.
- Measuring: `run`, `session`, `rounds`, `worker`, `device`, `memory`, `allocator`, `growth`.
- The page: `record`, `goals`, `published`, `tables`, `figure`, `report`.
- Accuracy, commands of their own: `accuracy` with `exact`; `certificates` with `certified_states`.
"""

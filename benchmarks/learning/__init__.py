"""What a learning step costs: `python -m benchmarks.learning` measures it and writes docs/learning-benchmarks.md."""

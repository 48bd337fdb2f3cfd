"""The benchmarks in their smallest size: that they run, count right and write what they measured."""

"""Does a backward that is not the derivative of its forward change what is learned? `python -m benchmarks.matter` writes docs/does-it-matter.md.

`arms` are the pairs of a value and a supplied slope that are compared. Experiments, made of `trial`s: `one` (a single concentration), `optimizers` (line
searches and trust regions), `regression` (directions with their own concentrations, simulated and of words), `classes` (of newsgroup posts) and
`autoencoder`. `page` and `figure` are made of their results, by means over `seeds`.
"""

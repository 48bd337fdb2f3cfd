"""Tests of pairgrad.potentials, by property: accuracy, coherence, edges, limits, inheritance. `literal` is the recurrence as the paper prints it."""

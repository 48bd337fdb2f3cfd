"""Tools for developing pairgrad that are not part of it: `mutation` testing."""

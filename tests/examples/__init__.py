"""The examples in their smallest size."""

"""Tests of the development tools in `tools`."""

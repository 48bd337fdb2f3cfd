"""Bridges from the public ProCo code to ours."""

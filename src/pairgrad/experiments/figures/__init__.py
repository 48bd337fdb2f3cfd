"""Figures: each module computes a table and draws it."""

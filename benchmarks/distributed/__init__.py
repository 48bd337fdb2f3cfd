"""Losses on several ranks: time, bytes on the wire and memory, beside what the planner says."""

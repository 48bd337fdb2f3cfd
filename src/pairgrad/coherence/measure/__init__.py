"""What is measured: `path`, `panel` (work and energy) and `differences` at one place, `state` (both together), `second` and `structure` (what needs no
derivative); `explore` (lines through states), `scan` (intervals) and `straight` (straight-through estimators) at many. `limits` has the constants.
"""

"""What is measured: `path`, `panel` (work and energy) and `differences` at one place, `slope` at the state itself, `state` (all of them together), `gradient`
(how far off it is), `second` and `structure` (what needs no derivative), with `layouts`; `transforms` (forward mode and vmap), `compiled` and `precision` (half
precision) beside the eager function in its own dtype and in float64; `explore` (lines through states), `scan` (intervals) and `straight`
(straight-through estimators) at many. `limits` has the constants.
"""

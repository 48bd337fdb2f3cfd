"""What follows from it.

`evidence` gathers what was seen, `conclusions` draws findings and verdict, `hints` guesses at causes,
`excuses` weighs what was declared, `verdict` has the words.
"""

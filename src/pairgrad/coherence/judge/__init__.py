"""What follows from it: `conclusions` draws findings and verdict, `excuses` weighs what was declared, `verdict` has the words."""

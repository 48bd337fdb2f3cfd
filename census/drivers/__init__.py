"""One module for each package, with its `package`: how its functions are called, and what was found."""

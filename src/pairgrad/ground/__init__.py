"""What every other part stands on: arithmetics, dtypes and checks. Imports torch and numpy, nothing of ours."""

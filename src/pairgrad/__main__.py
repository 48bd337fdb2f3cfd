"""`python -m pairgrad`, which torchrun needs: `torchrun --nproc-per-node 2 -m pairgrad train ...`."""

from pairgrad.cli import main

if __name__ == "__main__":
    main()

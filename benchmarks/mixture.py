"""What an EM iteration of a mixture costs beside the two matrix products in it: `python -m benchmarks.mixture [--write]`.

An iteration is an E-step and an M-step, as in `VMFMixture.fit`. The products are X C' (rows with directions) and R' X (shares with rows), each as one
call on all rows. All take turns in one process, and the ratio is that of their medians.
"""

from __future__ import annotations

import argparse
import platform
from pathlib import Path

import torch

from benchmarks.timing import Call, Measurement, Samples, interleaved
from pairgrad.mixture.em import E_STEPS, Maximiser, Parameters
from pairgrad.mixture.rows import DenseRows
from pairgrad.mixture.runs import Iterations
from pairgrad.potentials import potential

PAGE = Path(__file__).resolve().parent.parent / "docs" / "mixture-benchmarks.md"
GOAL = 1.6
BASES = ("two products", "in chunks")


def iteration(rows: DenseRows, start: Parameters, e_step: str) -> Call:
    """A call that makes one EM iteration from the same parameters each time."""
    maximiser = Maximiser(potential(dim=rows.features), tied=False, cap=1e5)
    steps = Iterations(maximiser, rows, None, e_step, max_iter=1, tol=0.0, min_weight=0.0, chunk_size=None)
    generator = torch.Generator().manual_seed(0)

    def call() -> None:
        scores = steps.scores(start)
        expectation = steps.expectation(scores, generator)
        scores.rounding()
        maximiser(expectation.statistics, start)

    return call


def products(values: torch.Tensor, directions: torch.Tensor, *, whole: bool) -> Call:
    """A call that makes the two products: of the whole matrix, or of the chunks that an iteration takes, with nothing between them."""
    rows, columns = DenseRows(values), directions.to(values.dtype).t()
    size = rows.count if whole else rows.chunk_rows(columns.shape[1], None)

    def call() -> None:
        for start in range(0, rows.count, size):
            stop = min(start + size, rows.count)
            rows.sums(start, stop, rows.products(start, stop, columns))

    return call


def measure(count: int, features: int, components: int, dtype: torch.dtype, repeats: int) -> dict[str, Samples]:
    generator = torch.Generator().manual_seed(0)
    means = torch.nn.functional.normalize(torch.randn(components, features, generator=generator, dtype=torch.float64))
    labels = torch.randint(components, (count,), generator=generator)
    values = means[labels].to(dtype) + torch.randn(count, features, generator=generator, dtype=dtype) / features**0.5
    rows = DenseRows(torch.nn.functional.normalize(values))
    start = Parameters(
        torch.full((components,), 1 / components, dtype=torch.float64), means, torch.full((components,), float(features)).double()
    )
    plain = {name: products(rows.values, means, whole=name == BASES[0]) for name in BASES}
    calls = {**plain, **{e_step: iteration(rows, start, e_step) for e_step in E_STEPS}}
    samples = {name: Samples() for name in calls}
    interleaved({name: Measurement(call, repeats, 2) for name, call in calls.items()}, samples)
    return samples


def table(count: int, features: int, components: int, repeats: int) -> str:
    lines = [f"| dtype | {' | '.join((*BASES, *E_STEPS))} |", "|---|---|---|---|---|---|"]
    for dtype in (torch.float32, torch.float64):
        samples = measure(count, features, components, dtype, repeats)
        base = samples[BASES[0]].median
        cells = [f"{1000 * samples[name].median:.0f} ms, **{samples[name].median / base:.2f}**" for name in (*BASES, *E_STEPS)]
        lines.append(f"| {str(dtype).removeprefix('torch.')} | {' | '.join(cells)} |")
    return "\n".join(lines)


def page(arguments: argparse.Namespace) -> str:
    sizes = f"n = {arguments.n} rows in p = {arguments.dim} dimensions with k = {arguments.components} components"
    setting = f"{arguments.repeats} interleaved repetitions, threads: {torch.get_num_threads()}, torch {torch.__version__.split('+')[0]}, {platform.machine()}"
    return f"""# What an EM iteration costs

One iteration of [`VMFMixture`][pairgrad.VMFMixture] on {sizes}, beside the two matrix
products in it: of all rows at once, and in the chunks that an iteration takes. Medians of {setting}; in bold, the ratio to the
two products, whose goal is at most {GOAL}.

{table(arguments.n, arguments.dim, arguments.components, arguments.repeats)}

Rows are taken in chunks whose scores stay in a cache: the second product finds its rows there, and everything between the products stays there.
Written by `python -m benchmarks.mixture --write`.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=100_000)
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--components", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--write", action="store_true", help=f"write docs/{PAGE.name}")
    arguments = parser.parse_args()
    text = page(arguments)
    print(text)
    if arguments.write:
        PAGE.write_text(text)


if __name__ == "__main__":
    main()

"""Our Triton kernels, compiled for GPUs that are not there.

    python -m tests.device.triton_ahead results.json [how a case begins ...]

This needs a process without `TRITON_INTERPRET`, in which @triton.jit would make functions that cannot be compiled; `compiled` starts one. A kernel that
shall be compiled has an entry for each of its configurations in `cases`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.device import usage

ROOT = Path(__file__).parents[2]
TARGETS = {"sm_80": ("cuda", 80, 32), "sm_90": ("cuda", 90, 32), "sm_100": ("cuda", 100, 32), "gfx942": ("hip", "gfx942", 64)}


class Case(NamedTuple):
    """One configuration of a kernel."""

    name: str  # as the results name it
    kernel: Any  # what @triton.jit has made
    types: dict[str, str]  # of the arguments that are not constants, by name: "*fp32", "*i64", "i32", "fp32"
    constants: dict[str, Any]  # compile-time constants, and integers that are 1, which Triton takes for constants
    options: dict[str, Any]  # num_warps, num_stages ...
    targets: tuple[str, ...] = tuple(TARGETS)
    aligned: tuple[str, ...] = ()  # integers that are multiples of 16, as sizes and strides often are; addresses always are


def cases() -> Iterator[Case]:
    """Every kernel with the tiles that it takes by default: what is added here is compiled and tested."""
    yield from _bank_cases()
    yield from _loss_cases()


# Rows, classes, dimension, and length of the features over the temperature; None: of any length, for which the kernels take logarithms.
SIZES = (
    ("paper", 64, 1000, 1024, 10.01),
    ("many", 2048, 100_000, 512, None),
    ("many 128", 256, 10**6, 128, 10.01),
    ("many 32", 256, 10**5, 32, None),
)


def _loss_cases() -> Iterator[Case]:
    """The streamed loss at the paper's size, whose tiles are for few rows, and at sizes with tiles for many: with logarithms, as for features of any length,
    and in small dimensions, where polynomials are longest.
    """
    import torch

    import pairgrad as pg
    from pairgrad.losses.fused import triton_loss
    from pairgrad.losses.fused.triton import MAX_DIM, potential_numbers, tiles_for
    from pairgrad.potentials import kernels

    tensors = ("RATES", "CONCENTRATION", "PRIOR", "SEEN_RATES", "SEEN_CONCENTRATION", "SEEN_ROWS", "TOP", "TOTAL", "PULL", "PUSH")
    pointers = dict.fromkeys(tensors, "*fp32") | dict.fromkeys(("LABELS", "SEEN_LABELS", "SEEN_SLOTS"), "*i64")
    sizes = dict.fromkeys(("views", "batch", "dim", "seen", "view_stride", "row_stride", "class_stride"), "i32") | {"temperature": "fp32"}
    aligned = ("batch", "dim", "seen", "per_part", "view_stride", "row_stride", "class_stride")
    nothing = dict.fromkeys(("SEEN_ROWS", "SEEN_RATES", "SEEN_CONCENTRATION", "SEEN_LABELS", "SEEN_SLOTS", "ENTRIES"))
    for size, rows, num_classes, dim, reach in SIZES:
        pot = pg.potential(dim)
        terms = kernels.series_terms(pot, reach, torch.float32)
        shared = {"POTENTIAL": triton_loss.packed(*potential_numbers(pot, terms)), "NORMALIZE": True, "GRADIENT": True}
        shared["ON_DEVICE"] = False
        for target in TARGETS:
            generation = int(target[3:]) // 10 if target.startswith("sm_") else None
            amd = generation is None
            tiles = tiles_for(rows, num_classes, generation)
            kinds = (("tf32", "fp32", True), ("float32", "fp32", True), ("bf16", "bf16", False))
            for products, dtype, seen in kinds:
                constants = {**shared, "PRODUCTS": ("ieee" if amd else "3xtf32") if products == "float32" else "tf32", "WEIGHTS": None}
                constants |= {"SAMPLES": tiles.samples, "CLASSES": tiles.classes, "DEPTH": tiles.depth}
                constants |= {} if seen else {name: value for name, value in nothing.items() if name != "ENTRIES"}
                types = {**pointers, **sizes, "FEATURES": f"*{dtype}", "ROWS": f"*{dtype}", "num_classes": "i32", "per_part": "i32"}
                types = {name: kind for name, kind in types.items() if name not in constants}
                name = f"{size} sweep {products}"
                yield Case(
                    name, triton_loss.sweep, types, constants, tiles.options(generation, dtype != "fp32", terms is None), (target,), aligned
                )
        more = dict.fromkeys(("HARD", "COUNTED", "LINEAR_SCORE", "LINEAR_WEIGHT", "LINEAR_PULL", "LINEAR_PUSH", "ENTRIES"))
        constants, options = triton_loss.finish_options(dim)
        types = {**pointers, **dict.fromkeys(("FEATURES", "ROWS", "LOSS", "NORMALISER", "GRADIENTS"), "*fp32"), **sizes}
        types |= {"parts": "i32", "share_of_row": "fp32"}
        types = {name: kind for name, kind in types.items() if name not in ("SEEN_LABELS", "SEEN_SLOTS")}
        yield Case(f"{size} finish", triton_loss.finish, types, {**shared, **more, **constants, "PARTS": 64}, options, aligned=aligned)
    constants, options = triton_loss.finish_options(MAX_DIM)
    more |= {"LINEAR_SCORE": None}
    yield Case("widest finish", triton_loss.finish, types, {**shared, **more, **constants, "PARTS": 64}, options, aligned=aligned)


def _bank_cases() -> Iterator[Case]:
    from pairgrad.losses.fused import triton_bank

    state = dict.fromkeys(("sums_ptr", "compensation_ptr", "concentrations_ptr", "rates_ptr"), "*fp32")
    state |= dict.fromkeys(("counts_ptr", "norms_ptr"), "*fp64") | dict.fromkeys(("labels_ptr", "slots_ptr"), "*i64")
    state |= dict.fromkeys(("touched_rows_ptr", "touched_rates_ptr", "touched_concentration_ptr"), "*fp32")
    sizes = dict.fromkeys(("num_views", "batch", "dim", "num_classes", "view_stride", "sample_stride"), "i32")
    ones = {"coordinate_stride": 1, "label_stride": 1}
    choices = (
        (128, "bf16", True),
        (512, "fp32", True),
        (1024, "fp32", True),
        (1024, "bf16", False),
        (4096, "fp32", True),
        (8192, "fp32", True),
    )
    for dim, features, unit in choices:
        tiles, options = triton_bank.launch(dim)
        constants = {**ones, "UNIT": unit, "UNBIASED": not unit, "CAP": 1e5, "DECAY": 1.0, **tiles}
        types = {**state, "views_ptr": f"*{features}", **sizes}
        name = f"bank {dim} {features} {'unit' if unit else 'raw'}"
        yield Case(name, triton_bank.bank_update, types, constants, options, aligned=("batch", "dim", "view_stride", "sample_stride"))
    tiles, options = triton_bank.launch(33)
    constants = {
        **dict.fromkeys(("num_views", "batch", "num_classes", "sample_stride"), 1),
        "UNIT": True,
        "UNBIASED": True,
        "CAP": 0.3,
        "DECAY": 0.9,
        **tiles,
    }
    types = {**state, "views_ptr": "*fp16", **dict.fromkeys(("dim", "coordinate_stride", "label_stride"), "i32"), "view_stride": "i64"}
    yield Case("bank of one sample in another order", triton_bank.bank_update, types, constants, options)


def compiled(folder: Path, *names: str) -> list[dict[str, Any]]:
    """What every case takes on every target: `case`, `target`, `shared` (bytes of a block), and what `usage` reads. In one new process.

    Args:
        names: how the names of the wanted cases begin; none: all cases.
    """
    results = folder / "triton_ahead.json"
    variables = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    variables |= {"TRITON_CACHE_DIR": str(folder / "triton"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", "-m", "tests.device.triton_ahead", str(results), *names]
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True)
    assert not done.returncode, done.stderr[-4000:]
    return json.loads(results.read_text())


def _compiled(case: Case, target: str) -> dict[str, Any]:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names = case.kernel.arg_names
    missing = set(names) ^ (case.types.keys() | case.constants.keys())
    assert not missing, f"{case.name}: types and constants must name the arguments of the kernel, and differ in {missing}"
    signature = {name: case.types.get(name, "constexpr") for name in names}
    aligned = {(names.index(name),): [["tt.divisibility", 16]] for name in names if signature[name][0] == "*" or name in case.aligned}
    source = ASTSource(case.kernel, signature, {(names.index(name),): value for name, value in case.constants.items()}, aligned)
    binary = triton.compile(source, target=GPUTarget(*TARGETS[target]), options=case.options)
    found = usage.of_cubin(binary.asm["cubin"]) if "cubin" in binary.asm else usage.of_amdgcn(binary.asm["amdgcn"])
    return {"case": case.name, "target": target, "warps": binary.metadata.num_warps, "shared": binary.metadata.shared, **found}


def table(found: list[dict[str, Any]]) -> Iterator[str]:
    """Lines of Markdown: registers of a thread, warps and shared memory of a block."""
    yield "| kernel | " + " | ".join(TARGETS) + " |"
    yield "|---" * (1 + len(TARGETS)) + "|"
    for name in dict.fromkeys(entry["case"] for entry in found):
        cells = []
        for target in TARGETS:
            here = [entry for entry in found if (entry["case"], entry["target"]) == (name, target)]
            cells.append("".join(f"{entry['reg']}, {entry['warps']}, {entry['shared'] / 1024:.0f} KiB" for entry in here) or "-")
        yield f"| {name} | " + " | ".join(cells) + " |"


def main(results: str, *names: str) -> None:
    """Write the list of all that was compiled, and print it as a table."""
    wanted = [case for case in cases() if not names or case.name.startswith(names)]
    found = [_compiled(case, target) for case in wanted for target in case.targets]
    Path(results).write_text(json.dumps(found, indent=1))
    print("\n".join(table(found)))


if __name__ == "__main__":
    main(*sys.argv[1:])

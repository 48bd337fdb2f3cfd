"""Our Triton kernels compile for GPUs that are not there, with everything in registers. Exact for the pinned Triton."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from tests.device import triton_ahead

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed: pip install -e '.[dev]' on Linux"
)


AT_THE_PAPER = ("paper", "bank 1024 fp32")
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "gpu.md"


@pytest.fixture(scope="module")
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What kernels take on every target."""
    return triton_ahead.compiled(tmp_path_factory.mktemp("ahead"), *request.param)


which = pytest.mark.parametrize(
    "found", [pytest.param(AT_THE_PAPER, id="at the paper's size"), pytest.param((), id="all", marks=pytest.mark.slow)], indirect=True
)


@which
def test_every_kernel_compiles_for_every_target_without_spills(found: list[dict[str, Any]]) -> None:
    """Nothing goes to memory. What AMD's compiler calls spilled scalar registers are lanes of vector registers."""
    assert {entry["target"] for entry in found} == {"sm_80", "sm_90", "sm_100", "gfx942"}
    spilled = [entry for entry in found if any(entry.get(name) for name in ("stack", "local", "vgpr_spills"))]
    assert not spilled, spilled


@which
def test_two_blocks_of_a_kernel_fit_on_one_multiprocessor_of_an_h100(found: list[dict[str, Any]]) -> None:
    for entry in found:
        if entry["target"] == "sm_90" and entry["warps"] <= 8:
            registers = -(-entry["reg"] // 8) * 8 * 32 * entry["warps"]  # given to a warp in units of 256
            assert 2 * registers <= 2**16, entry
            assert 2 * (entry["shared"] + 1024) <= 228 * 1024, entry


@which
def test_a_sweep_is_one_wave_on_amd(found: list[dict[str, Any]]) -> None:
    """It reads what it has written. NVIDIA's barrier orders that between warps; Triton's barrier for AMD waits for shared memory alone."""
    assert {entry["warps"] for entry in found if "sweep" in entry["case"] and entry["target"] == "gfx942"} == {1}


@pytest.mark.slow
@pytest.mark.parametrize("found", [()], indirect=True)
def test_the_page_has_what_was_compiled(found: list[dict[str, Any]]) -> None:
    page = PAGE.read_text().splitlines()
    lines = [line for line in triton_ahead.table(found) if line.startswith(("| paper", "| many", "| bank 1024"))]
    assert lines
    assert [line for line in lines if line not in page] == []

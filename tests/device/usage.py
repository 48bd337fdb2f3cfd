"""What a compiled kernel takes: read from its binary, without a GPU."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

_AMD = {
    "vgpr_count": "reg",
    "vgpr_spill_count": "vgpr_spills",
    "sgpr_spill_count": "sgpr_spills",
    "private_segment_fixed_size": "stack",
}


def of_cubin(cubin: bytes) -> dict[str, int]:
    """Registers, bytes of stack and bytes of local memory of a thread on an NVIDIA GPU. Without local arrays, a stack is what was spilled."""
    import triton

    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        text = subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    found = {name.lower(): int(number) for name, number in re.findall(r"(REG|STACK|LOCAL):(\d+)", text)}
    assert found.keys() == {"reg", "stack", "local"}, text
    return found


def of_amdgcn(assembly: str) -> dict[str, int]:
    """Registers, bytes of stack and spilled registers of a thread on an AMD GPU, from the metadata at the end of the assembly."""
    found = {_AMD[name]: int(number) for name, number in re.findall(rf"\.({'|'.join(_AMD)}):\s*(\d+)", assembly)}
    assert found.keys() == set(_AMD.values()), assembly[-4000:]
    return found

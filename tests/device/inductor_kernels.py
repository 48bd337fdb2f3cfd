"""The Triton kernels of a module that inductor has generated, compiled for GPUs that are not there.

    python -m tests.device.inductor_kernels caught.json folder results.json capability ...

`caught.json` is what `inductor_fake` writes. Each kernel is compiled in each configuration that inductor would try, for each compute capability (80, 90).
The results say for each of these how many registers and bytes of stack a thread has: a kernel without local arrays has a stack only for what it spills.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

from tests.device import usage


def sources(code: str) -> dict[str, str]:
    """The source of every kernel, by name."""
    calls = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call) and ast.unparse(node.func) == "async_compile.triton"]
    return {ast.literal_eval(call.args[0]): ast.literal_eval(call.args[1]) for call in calls}


def compiled(name: str, source: str, folder: Path, capabilities: list[int]) -> list[dict[str, Any]]:
    """One kernel, in all configurations for all capabilities."""
    import triton
    from torch._inductor.runtime import triton_helpers
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    triton_helpers.set_driver_to_gpu = lambda: None
    path = folder / f"kernel_{abs(hash(name))}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    tuner, found = getattr(module, name), []
    for config in tuner.configs:
        meta = tuner._create_compile_meta(config)
        kernel = ASTSource(tuner.fn, meta["signature"], meta["constants"], meta["configs"][0])
        options = {"num_warps": config.num_warps, "num_stages": config.num_stages}
        for capability in capabilities:
            binary = triton.compile(kernel, target=GPUTarget("cuda", capability, 32), options=options)
            found.append({"kernel": name, "config": str(config), "capability": capability, **usage.of_cubin(binary.asm["cubin"])})
    return found


def main(caught: str, folder: str, results: str, *capabilities: str) -> None:
    """Write the list of all compiled kernels."""
    found = []
    for name, source in sources(json.loads(Path(caught).read_text())["code"]).items():
        found += compiled(name, source, Path(folder), [int(capability) for capability in capabilities])
    Path(results).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])

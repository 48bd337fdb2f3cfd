"""What torch.compile would launch on a CUDA device, without one: inductor's code for the compiled losses is generated, caught and never run.

    python -m tests.device.inductor_fake libnoop_cuda_guard.so folder case ...

writes folder/<case>.json for each case of `CASES`, or `{"error": ...}`. The guard (`fake_cuda`) precedes torch. Private names of the torch that
constraints.txt pins are replaced here: what a device says of itself, Triton's driver, and the last step of inductor.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections import namedtuple
from pathlib import Path
from typing import Any

from tests.device import fake_cuda
from tests.device.inductor_code import read

# name: views, batch, classes, dim, options of the loss
CASES: dict[str, tuple[int, int, int, int, dict[str, Any]]] = {
    "paper": (2, 32, 1000, 1024, {}),
    "paper-arfr": (2, 32, 1000, 1024, {"realization": "arfr"}),
    "many-classes": (2, 1024, 100_000, 512, {}),
    "most-classes": (2, 128, 1_000_000, 128, {}),
}
_H100 = {
    "name": "NVIDIA H100",
    "major": 9,
    "minor": 0,
    "total_memory": 80 << 30,
    "multi_processor_count": 132,
    "max_threads_per_multi_processor": 2048,
    "max_threads_per_block": 1024,
    "regs_per_multiprocessor": 65536,
    "warp_size": 32,
    "L2_cache_size": 50 << 20,
    "shared_memory_per_multiprocessor": 233472,
    "shared_memory_per_block": 49152,
    "shared_memory_per_block_optin": 232448,
    "uuid": "0",
    "gcnArchName": "",
}


def pretend() -> None:
    """Let torch and Triton believe in one H100."""
    import torch
    from torch._dynamo.device_interface import CudaInterface
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver

    device = namedtuple("Properties", _H100)(**_H100)
    stream = namedtuple("Stream", "cuda_stream")(0)
    state = torch.zeros(16, dtype=torch.uint8)
    answers: dict[str, Any] = {
        "is_available": True,
        "device_count": 1,
        "current_device": 0,
        "get_device_properties": device,
        "get_device_capability": (9, 0),
        "get_compute_capability": 90,
        "current_stream": stream,
        "get_raw_stream": 0,
        "exchange_device": 0,
        "maybe_exchange_device": 0,
        "_exchange_device": 0,
        "_maybe_exchange_device": 0,
        "is_triton_capable": True,
        "raise_if_triton_unavailable": None,
        "is_bf16_supported": True,
        "set_device": None,
        "synchronize": None,
        "_lazy_init": None,
        "get_rng_state": state,
        "set_rng_state": None,
    }
    for name, answer in answers.items():
        said = staticmethod(lambda *_, answer=answer, **__: answer)
        for owner in (torch.cuda, CudaInterface, CudaInterface.Worker):
            if hasattr(owner, name):
                setattr(owner, name, said.__func__ if owner is torch.cuda else said)
    torch.version.cuda = "13.0"

    class Driver:
        def get_current_target(self) -> Any:
            return GPUTarget("cuda", 90, 32)

        def get_current_device(self) -> int:
            return 0

        def get_device_properties(self, *_: Any) -> dict[str, int]:
            return {"max_shared_mem": _H100["shared_memory_per_block_optin"], "multiprocessor_count": _H100["multi_processor_count"]}

        def get_active_torch_device(self) -> torch.device:
            return torch.device("cuda", 0)

    driver.set_active(Driver())


def catch(found: dict[str, Any]) -> type[Exception]:
    """Write what inductor generates into `found` in place of loading it; returns the exception that is then raised."""
    import torch._inductor.compile_fx as compile_fx
    import torch._inductor.config as config
    from torch._inductor.cudagraph_utils import check_multiple_devices_or_any_cpu_nodes
    from torch._inductor.fx_passes import joint_graph, post_grad
    from torch._inductor.graph import GraphLowering

    # padding and constants are tried out on real CUDA tensors
    config.fx_graph_cache, config.compile_threads, config.shape_padding, config.joint_graph_constant_folding = False, 1, False, False
    for module in (joint_graph, post_grad):
        module.lazy_init = lambda *_, **__: None  # the tables of patterns are traced on real CUDA tensors

    class CaughtError(Exception):
        pass

    compiled = compile_fx.fx_codegen_and_compile

    def noted(*args: Any, **options: Any) -> Any:
        found["static"] = sorted(options.get("static_input_idxs") or ())
        return compiled(*args, **options)

    def code_of(graph: GraphLowering) -> None:
        code = graph.codegen()[0].value
        mutated = {graph.graph_input_names[index]: index in found["static"] for index in graph.mutated_input_idxs}
        reason = graph.disable_cudagraphs_reason or check_multiple_devices_or_any_cpu_nodes(graph.device_node_mapping)
        found.update(read(code), code=code, mutated=mutated, no_graph=None if reason is None else str(reason))
        raise CaughtError

    compile_fx.fx_codegen_and_compile = noted
    GraphLowering.compile_to_module = code_of  # type: ignore[method-assign,assignment]
    return CaughtError


def step(views: int, batch: int, classes: int, dim: int, options: dict[str, Any]) -> None:
    """The first step of a compiled loss in training."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    import pairgrad as pg

    loss = pg.ProCoLoss(classes, dim, class_counts=[5.0] * classes, device="meta", execution="compiled", **options)
    with FakeTensorMode(allow_non_fake_inputs=True):
        for module in loss.modules():
            for name, buffer in list(module.named_buffers(recurse=False)):
                setattr(module, name, torch.empty_like(buffer, device="cuda"))
        features = torch.randn(views, batch, dim, device="cuda", requires_grad=True)
        loss(features, torch.randint(classes, (batch,), device="cuda"))


def main(library: str, folder: str, *cases: str) -> None:
    """Write a file for each case."""
    fake_cuda.load(Path(library))
    import torch

    torch.set_num_threads(1)
    pretend()
    found: dict[str, Any] = {}
    catch(found)
    for case in cases:
        found.clear()
        try:
            step(*CASES[case])
        except Exception as problem:
            if "code" not in found:
                lines = "".join(traceback.format_exception(problem)).splitlines()
                found["error"] = "\n".join(line for line in lines if "registered at" not in line)[-4000:]
        torch._dynamo.reset()
        Path(folder, f"{case}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])

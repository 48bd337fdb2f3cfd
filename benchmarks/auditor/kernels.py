"""Audits of released Triton kernels in Triton's interpreter, without a GPU: what docs/how-to/audit-my-function.md says of them.

pip install --no-deps liger-kernel==0.8.5 flash-linear-attention==0.6.0 fla-core==0.6.0 einops
python -m benchmarks.auditor.kernels                          # all: an hour
python -m benchmarks.auditor.kernels --only softmax,swiglu --seconds 20 --dtype bfloat16
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

os.environ.setdefault("TRITON_INTERPRET", "1")  # before triton is imported

import torch
from torch.nn import functional as F

import pairgrad as pg

Case = tuple[Callable[..., Any], Callable[[], Any]]  # a function and what makes its inputs


def liger(dtype: torch.dtype) -> dict[str, Case]:
    L = importlib.import_module("liger_kernel.transformers.functional")
    r = partial(torch.randn, dtype=dtype)

    def asking(*shape: int) -> torch.Tensor:
        return r(*shape).requires_grad_()

    def log_p(*shape: int) -> torch.Tensor:
        return r(*shape).log_softmax(-1).requires_grad_()

    def p(*shape: int) -> torch.Tensor:
        return r(*shape).softmax(-1)

    def labels() -> torch.Tensor:
        return torch.randint(0, 16, (4,))

    ce, rms = L.liger_cross_entropy, L.liger_rms_norm
    return {
        "rms_norm": (lambda x, w: rms(x, w, 1e-6, 0.0, "llama", False), lambda: (r(4, 16), r(16))),
        "rms_norm, gemma": (lambda x, w: rms(x, w, 1e-6, 1.0, "gemma", False), lambda: (r(4, 16), r(16))),
        "rms_norm, in_place": (lambda x, w: rms(x, w, 1e-6, 0.0, "llama", True), lambda: (r(4, 16), r(16))),
        "fused_add_rms_norm": (
            lambda x, s, w: L.liger_fused_add_rms_norm(x, s, w, 1e-6, 0.0, "llama", False),
            lambda: (r(4, 16), r(4, 16), r(16)),
        ),
        "layer_norm": (lambda x, w, b: L.liger_layer_norm(x, w, b, 1e-6), lambda: (r(4, 16), r(16), r(16))),
        "group_norm": (lambda x, w, b: L.liger_group_norm(x, w, b, 4, 2, 1e-5), lambda: (r(2, 4, 8), r(4), r(4))),
        "poly_norm": (lambda x, w, b: L.liger_poly_norm(x, w, b, 1e-6, False), lambda: (r(4, 16), r(3), r(()))),
        "geglu": (L.liger_geglu, lambda: (r(4, 16), r(4, 16))),
        "swiglu": (L.liger_swiglu, lambda: (r(4, 16), r(4, 16))),
        "relu_squared": (L.liger_relu_squared, lambda: r(4, 16)),
        "softmax": (L.liger_softmax, lambda: r(4, 16)),
        "sparsemax": (L.liger_sparsemax, lambda: r(4, 16)),
        "dyt": (L.liger_dyt, lambda: (r(4, 16), r(1), r(16), r(16))),
        "rope": (lambda q, k, c, s: L.liger_rope(q, k, c, s), lambda: (asking(1, 2, 4, 8), asking(1, 2, 4, 8), r(1, 4, 8), r(1, 4, 8))),
        "cross_entropy": (lambda x, y: ce(x, y), lambda: (asking(4, 16), labels())),
        "cross_entropy, smoothed": (
            lambda x, y: ce(x, y, label_smoothing=0.1, lse_square_scale=1e-2, softcap=5.0),
            lambda: (asking(4, 16), labels()),
        ),
        "cross_entropy, none": (lambda x, y: ce(x, y, reduction="none"), lambda: (asking(4, 16), labels())),
        "cross_entropy, weighted": (
            lambda x, y, w: ce(x, y, w, label_smoothing=0.1),
            lambda: (asking(4, 16), labels(), torch.rand(16, dtype=dtype)),
        ),
        "fused_linear_cross_entropy": (L.liger_fused_linear_cross_entropy, lambda: (asking(4, 8), asking(16, 8), labels(), asking(16))),
        "fused_linear_jsd": (L.liger_fused_linear_jsd, lambda: (asking(4, 8), asking(16, 8), r(4, 8), r(16, 8))),
        "fused_linear_kl_div": (L.liger_fused_linear_kl_div, lambda: (asking(4, 8), asking(16, 8), p(4, 16))),
        "jsd": (L.liger_jsd, lambda: (log_p(4, 16), log_p(4, 16).detach())),
        "kl_div": (L.liger_kl_div, lambda: (log_p(4, 16), p(4, 16))),
        "kl_div, log target": (
            lambda a, b: L.liger_kl_div(a, b, reduction="none", log_target=True),
            lambda: (log_p(4, 16), log_p(4, 16).detach()),
        ),
        "tvd": (L.liger_tvd, lambda: (p(4, 16).requires_grad_(), p(4, 16))),
        "multi_token_attention": (lambda s, w: L.liger_multi_token_attention(s, w, None, 1, 1), lambda: (r(1, 2, 4, 4), r(2, 2, 3, 3))),
        "neighborhood_attention": (lambda *qkv: L.liger_fused_neighborhood_attention(*qkv, 3), lambda: [r(1, 1, 8, 16) for _ in range(3)]),
        "attn_res": (L.liger_attn_res, lambda: (r(3, 1, 4, 16), r(16), r(16))),
        "mhc_pre": (L.liger_mhc_pre, lambda: (r(1, 4, 4, 16), r(1, 4, 4))),
    }


def flash_linear_attention(dtype: torch.dtype) -> dict[str, Case]:
    ops, modules = importlib.import_module("fla.ops"), partial(importlib.import_module, package="fla.modules")
    r = partial(torch.randn, dtype=dtype)

    def part(kind: str) -> torch.Tensor:
        """q, k or v; a gate g for each head or G for each feature; n of length 1; b between 0 and 1; u for each feature; x without heads, with its gate y."""
        shape = {"g": (1, 8, 1), "b": (1, 8, 1), "u": (1, 16), "x": (1, 8, 16), "y": (1, 8, 16)}.get(kind, (1, 8, 1, 16))
        made = torch.rand(shape, dtype=dtype) if kind == "b" else r(*shape)
        return F.logsigmoid(made) if kind in "gGy" else F.normalize(made, dim=-1) if kind == "n" else made

    kinds = {
        "qkvG": "fused_recurrent_gla chunk_gla",
        "qkvg": "fused_recurrent_simple_gla chunk_simple_gla parallel_simple_gla parallel_forgetting_attn",
        "qkv": "fused_recurrent_linear_attn chunk_linear_attn chunk_retention parallel_retention parallel_attn parallel_based",
        "qnvb": "fused_recurrent_delta_rule chunk_delta_rule",
        "qnvgb": "chunk_gated_delta_rule",
        "qnvGb": "chunk_kda",
        "xy": "fused_recurrent_hgrn",
        "qkvGu": "fused_recurrent_rwkv6",
    }

    def first(name: str) -> Callable[..., Any]:
        options = {"normalize": False} if "linear_attn" in name else {}

        def called(*inputs: torch.Tensor) -> torch.Tensor:
            made = getattr(ops, name)(*inputs, **options)
            return made[0] if isinstance(made, tuple) else made

        return called

    cases: dict[str, Case] = {
        name: (first(name), lambda kind=kind: tuple(map(part, kind))) for kind, names in kinds.items() for name in names.split()
    }
    norms, gated = modules(".layernorm"), modules(".fused_norm_gate")
    activations, entropy = modules(".activations"), modules(".fused_cross_entropy")
    return cases | {
        "layer_norm": (lambda x, w, b: norms.layer_norm(x, w, b), lambda: (r(4, 16), r(16), r(16))),
        "rms_norm": (lambda x, w: norms.rms_norm(x, w, None), lambda: (r(4, 16), r(16))),
        "rms_norm_gated": (lambda x, g, w: gated.rms_norm_gated(x, g, w, None), lambda: (r(4, 16), r(4, 16), r(16))),
        "l2norm": (lambda x: modules(".l2norm").l2norm(x), lambda: r(4, 16)),
        "swiglu": (activations.swiglu, lambda: (r(4, 16), r(4, 16))),
        "swish": (activations.swish, lambda: r(4, 16)),
        "logsigmoid": (activations.logsigmoid, lambda: r(4, 16)),
        "cross_entropy": (
            lambda x, y: entropy.cross_entropy_loss(x, y)[0],
            lambda: (r(4, 16).requires_grad_(), torch.randint(0, 16, (4,))),
        ),
        "causal_conv1d": (lambda x, w: modules(".convolution").causal_conv1d(x, w)[0], lambda: (r(1, 8, 8), r(8, 4))),
    }


LIBRARIES = {"liger-kernel": liger, "flash-linear-attention": flash_linear_attention}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.auditor.kernels", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="parts of the names of functions, with commas")
    parser.add_argument("--seconds", type=float, default=300.0, help="for each audit")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16", "float64"))
    parser.add_argument("--second-order", action="store_true")
    options = parser.parse_args(argv)
    wanted = options.only.split(",")
    with pg.testing.triton_interpreter() as notes, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # libraries say what they would rather run on
        for library, cases in LIBRARIES.items():
            try:
                found = cases(getattr(torch, options.dtype))
            except ImportError as error:
                print(f"{library} is not installed ({error}): {(__doc__ or '').splitlines()[2]}", file=sys.stderr)
                continue
            for name, (fn, make) in found.items():
                if any(part in name for part in wanted):
                    print(f"{library}: {name}: {_audited(fn, make, options)}", flush=True)
        print(*notes, sep="\n")
    return 0


def _audited(fn: Callable[..., Any], make: Callable[[], Any], options: argparse.Namespace) -> str:
    torch.manual_seed(0)
    started = time.perf_counter()
    try:
        report = pg.audit(fn, make(), seconds=options.seconds, second_order=options.second_order)
        said = report.headline if report.passed else f"{report.headline} ({'; '.join(report.summary.splitlines()[:2])})"
    except Exception as error:  # what a kernel cannot do here is a row too
        said = f"raises {type(error).__name__}: {(str(error).splitlines() or [''])[0][:120]}"
    return f"{said}, {time.perf_counter() - started:.0f} s"


if __name__ == "__main__":
    sys.exit(main())

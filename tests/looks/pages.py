"""The pages that the project makes, made now."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.cli.command import invoke

ROOT = Path(__file__).parents[2]
LOSSES = '''
import torch


class Cube(torch.autograd.Function):
    """Its backward is right up to 2."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * 3 * x.clamp(max=2) ** 2


def cube(x):
    return Cube.apply(x).sum()


def square(x):
    return (x**2).sum()


def leap(x):
    return (x.floor() + x).sum()


def nowhere(x):
    return torch.log(-x.abs() - 1).sum()
'''


def site(folder: Path) -> list[Path]:
    """The documentation; `make docs` is what insists on links. Its page for addresses that do not exist is left out: it can be read from a server only."""
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder / "site")]
    path = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    built = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
    pages = sorted(page for page in (folder / "site").rglob("*.html") if page.name != "404.html" and page.parent.name != "assets")
    assert len(pages) > 20
    return pages


def report(folder: Path) -> list[Path]:
    return [_made(folder / "index.html", "report", "--output", str(folder))]


def demo(folder: Path) -> list[Path]:
    return [_made(folder / "report.html", "demo", "--epochs", "1", "--output", str(folder))]


def audits(folder: Path) -> list[Path]:
    """One that is off in a part of its domain, one that is right, one that leaps, one about which nothing can be said, several at once, and a recorded run."""
    losses = folder / "losses.py"
    losses.write_text(LOSSES, encoding="utf-8")
    quick = ("--inputs", "uniform(1, 3, (4,))", "--effort", "quick", "--html")
    domains = {"cube": ("--domain", "1..3"), "leap": ("--domain", "-2..2")}
    single = [
        _made(folder / f"{name}.html", "audit", f"{losses}:{name}", *domains.get(name, ()), *quick, str(folder / f"{name}.html"))
        for name in ("cube", "square", "leap", "nowhere")
    ]
    several = folder / "several"
    _made(several, "audit", f"{losses}:cube", f"{losses}:square", *quick, str(several))
    return [*single, *sorted(several.rglob("*.html")), ROOT / "docs" / "assets" / "audit-example.html"]


MAKERS: dict[str, Callable[[Path], list[Path]]] = {"site": site, "report": report, "audits": audits, "demo": demo}


def _made(path: Path, *arguments: str) -> Path:
    done = invoke(*arguments)
    assert path.exists(), f"pairgrad {' '.join(arguments)}: {done.output}"
    return path

"""Files as the learning benchmark writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def row(contestant: str, seconds: list[float], peak: int | None = 3 * 2**20, setting: str = "paper", note: str = "") -> dict[str, Any]:
    size = {"batch": 32, "classes": 1000, "dim": 1024}
    shared = {"setting": setting, "size": size, "contestant": contestant, "system_seconds": 0.0, "loss": 1.0}
    return {**shared, "seconds": seconds, "peak": peak, "note": note}


def run(protocol: str = "interleaved", device: str = "cpu", rows: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    machine = {"CPU": "M", "instruction set used by torch": "AVX2", "threads": "1", "torch": "2", "Python": "3", "system": "Linux"}
    head = {"protocol": protocol, "command": "/usr/bin/python -m benchmarks.learning --output /x/page.md", "date": "2026-01-02"}
    numbers = {"seed": 3407, "warmups": 3, "repeats": 7, "budget": None, "quick": False, "interrupted": False, "kept_memory": False}
    found = [row("original", [0.2, 0.1, 0.3, 0.4, 0.5]), row("floor", [0.01], 0, "large")] if rows is None else rows
    return {**head, "machine": machine, "device": device, **numbers, "rows": found, "growth": []}


def stored(path: Path, *runs: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"format": 1, "runs": {f"{number}": each for number, each in enumerate(runs)}}))
    return path

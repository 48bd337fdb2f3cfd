"""What `pairgrad plan` says was counted, to be counted again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.cli.command import invoke


def counted(folder: Path, execution: str, size: tuple[int, ...]) -> dict[str, Any]:
    """Launches and bytes allocated of an execution at (views, batch, classes, dim)."""
    invoke("plan", "--classes", "1000", "--dim", "64", "--batch", "32", "--json", str(folder / "plan.json"))
    plan = json.loads((folder / "plan.json").read_text())
    (known,) = (entry for entry in plan["counted"] if entry["execution"] == execution and tuple(entry["size"].values()) == size)
    return known

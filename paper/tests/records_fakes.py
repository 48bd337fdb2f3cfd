"""Small records as `pairgrad fork`, `frozen` and `states` write them, with numbers of the right sizes and no training behind them."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from pairgrad_paper.records import Line, Record, Records, to_lines, write

from .run_fakes import made_by

CLASS_COUNTS = [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]
ENVIRONMENT = {"versions": {"python": "3.12", "torch": "2.9"}, "device": "cpu", "cpu": "a CPU", "command": "pairgrad fake"}
STEPS = [20, 400, 1200]
PROBES = [0, 1, 2, *range(25, 1001, 25)]  # 43
NU = 255


def recipe(method: str = "patt", **changed: Any) -> dict[str, Any]:
    """What a run says of its recipe: the parts that tables read."""
    head = [512, 128] if method == "proco" else None
    plain = {
        "name": f"{method}-cifar10-lt-if100-cpu",
        "data": {"benchmark": "cifar10-lt", "imbalance": 100.0, "rule": "first"},
        "model": {"backbone": "small32", "head": head, "classifier": "linear", "normalize": method == "proco"},
        "loss": {"method": method, "temperature": 0.1, "cap": 1e5},
        "optimizer": {"name": "adam", "lr": 1e-3},
        "epochs": 30,
        "batch_size": 64,
        "outlier_batch_size": 64,
        "seed": 3407,
    }
    return {**plain, **changed}


CONTROLS = (("consistent", "arfr"), ("arfr", "paired"))


def fork(start: str = "random", updates: int = 1000, seed: int = 3407, commit: str | None = None) -> Record:
    """Two forks that behave like the paper's: gaps of some thousandths, distances that grow with the root of the updates."""
    draw = Random(f"fork {start}" if seed == 3407 else f"fork {start} {seed}")
    trained = start == "trained"
    branches = ["original", "consistent", "arfr", "paired"]
    probes = [step for step in PROBES if step <= updates]
    lines = to_lines("probe", (_probe(step, trained, draw) for step in probes))
    marks = [0, 1, 2, 5, *range(10, updates + 1, 10)]
    lines += to_lines("distance", (_distance(step, branch, trained, draw) for step in marks for branch in branches[1:]))
    lines += to_lines("control", (_control(step, pair, trained, draw) for step in marks for pair in CONTROLS))
    lines += to_lines("loss", (_loss(step, branch, trained, draw) for step in range(10, updates + 1, 10) for branch in branches))
    lines += to_lines("end", [{"step": updates, "minutes": 21.5}])
    facts = {
        "recipe": recipe(seed=seed),
        "seed": seed,
        "start": start,
        "start_step": updates if trained else 0,
        "updates": updates,
        "branches": branches,
        "probes": len(probes),
        "data": {"class_counts": CLASS_COUNTS},
    }
    name = f"fork-cifar10-{start}" if seed == 3407 else f"fork-cifar10-seed{seed}-{start}"
    return Record(name, "fork", f"A fork from a {start} start", facts, {**ENVIRONMENT, **made_by(commit)}, lines)


def _probe(step: int, trained: bool, draw: Random) -> dict[str, Any]:
    gap = 2.55e-3 * (1 + 0.01 * draw.uniform(-1, 1)) * (1 if trained else 1 - 0.3 * math.exp(-step / 30))
    return {
        "step": step,
        "vmf_loss": (1.1 if trained else 2.3) * math.exp(-step / 2000),
        "scores_equal": True,
        "loss_equal": True,
        "feature_gap": gap,
        "feature_residual": 3e-6 * (1 + 0.2 * draw.random()),
        "parameter_gap": 0.4 * gap * (1 + 0.1 * draw.uniform(-1, 1)),
        "parameter_residual": 0.3 * gap,
        "defect": 2.556e-3,
        "radius_low": 392.2,
        "radius_high": 392.9 + 0.1 * draw.random(),
        "capped": 1.0 if trained or step > 5 else 0.7,
        "arfr_gap": 5e-6 * (1 + draw.random()),
        "arfr_loss_gap": 8e-6 * (1 + draw.random()),
        "paired_gap": 5e-6 * (1 + draw.random()),
        "paired_loss_gap": 8e-6 * (1 + draw.random()),
    }


def _distance(step: int, branch: str, trained: bool, draw: Random) -> dict[str, Any]:
    size = {"consistent": 1.0, "arfr": 0.9, "paired": 0.95}[branch] * (0.4 if trained else 1.0) * (1 + 0.05 * draw.uniform(-1, 1))
    grown = math.sqrt(step / 1000)
    feature = 0.35 * size * grown
    return {
        "step": step,
        "branch": branch,
        "parameter": 0.12 * size * grown,
        "feature": feature,
        "feature_cosine": feature**2 / 4,
    }


def _control(step: int, pair: tuple[str, str], trained: bool, draw: Random) -> dict[str, Any]:
    """A third of the distance of a branch, to which it grows in a hundred updates; and nothing between AR/FR and paired."""
    part = 0.0 if pair == CONTROLS[1] else min(step, 100) / 300
    apart = {key: value * part for key, value in _distance(step, "paired", trained, draw).items() if key not in ("step", "branch")}
    return {"step": step, "between": list(pair), **apart}


def _loss(step: int, branch: str, trained: bool, draw: Random) -> dict[str, Any]:
    total = (2.0 if trained else 3.5) * math.exp(-step / 900) + 0.05 * draw.random()
    return {"step": step, "branch": branch, "total": total, "vmf": total / 2, "accuracy": 0.8 - 0.1 * total}


def frozen() -> Record:
    """Three states of a PATT run, two views each."""
    draw = Random("frozen")
    views = [(step, view) for step in STEPS for view in (2, 3)]
    lines = to_lines("state", (_state(step, view) for step, view in views))
    lines += to_lines("counterfactual", (_counterfactual(step, view, draw) for step, view in views))
    lines += to_lines("audit", (_audit(step, view, draw) for step, view in views))
    lines += to_lines("cross", _cross())
    lines += _field(draw)
    lines += to_lines("query", (_query(index, draw) for index in range(256)))
    lines += to_lines("replay", (_replay(step, draw) for step in STEPS))
    facts = {
        "recipe": recipe(),
        "realization": "original",
        "seed": 3407,
        "batch_size": 128,
        "steps": STEPS,
        "data": {"class_counts": CLASS_COUNTS},
    }
    return Record("frozen-cifar10", "frozen", "Three states of a run", facts, ENVIRONMENT, lines)


def _state(step: int, view: int) -> dict[str, Any]:
    norms = {"feature_norm_low": 4.0, "feature_norm_median": 7.5, "feature_norm_high": 12.0}
    radii = {"radius_low": 392.16, "radius_median": 392.4, "radius_high": 392.5 + step / 4000}
    return {"step": step, "epoch": step // 190, "view": view, "queries": 1280, "capped": 10, "classes": 10, **radii, **norms, "loss": 0.9}


def _counterfactual(step: int, view: int, draw: Random) -> dict[str, Any]:
    return {
        "step": step,
        "view": view,
        "score": 0.0,
        "loss": 0.0,
        "defect": 2.5566e-3 * (1 + 1e-4 * draw.random()),
        "relative": 2.5605e-3 * (1 + 1e-3 * draw.uniform(-1, 1)),
        "largest": 2.1e-5 * (1 + 0.3 * draw.random()),
        "mean_loss": 0.9 + 0.1 * draw.random(),
    }


def _audit(step: int, view: int, draw: Random) -> dict[str, Any]:
    return {
        "step": step,
        "view": view,
        "finite_score": 6e-4 * (1 + draw.random()),
        "arfr_score": 5e-13 * (1 + draw.random()),
        "paired_score": 2e-13 * (1 + draw.random()),
        "clipped_slope": 2.5515e-3 * (1 + 1e-4 * draw.random()),
        "defect": 2.5566e-3 * (1 + 1e-4 * draw.random()),
    }


def _cross() -> list[dict[str, Any]]:
    cells = [(precision, geometry) for precision in ("float32", "float64") for geometry in ("expanded", "factorised")]
    return [
        {
            "precision": precision,
            "geometry": geometry,
            "step": STEPS[-1],
            "view": 2,
            "score": 0.0,
            "loss": 0.0,
            "relative": 2.5606e-3 + 1e-8 * index,
            "largest": 2.2e-5,
            "defect": 2.5567e-3,
        }
        for index, (precision, geometry) in enumerate(cells)
    ]


def _field(draw: Random) -> tuple[Line, ...]:
    """A bowl that is steeper in one direction; the supplied gradient is longer by some thousandths and hardly turned."""
    half = 3.0
    rows = []
    for i in range(25):
        for j in range(25):
            x, y = half * (i / 12 - 1), half * (j / 12 - 1)
            u, v = x - 0.8, y + 0.5
            own = (0.30 * u / math.sqrt(1 + u * u), 0.12 * v)
            longer = 1 + 2.5612e-3 * (1 + 2e-4 * draw.uniform(-1, 1))
            turned = 2e-6 * (1 + 0.5 * math.sin(u + v))
            supplied = (longer * (own[0] - turned * own[1]), longer * (own[1] + turned * own[0]))
            apart = math.hypot(supplied[0] - own[0], supplied[1] - own[1]) / math.hypot(*own)
            place = {"i": i, "j": j, "x": x, "y": y, "loss": 0.3 * math.sqrt(1 + u * u) + 0.06 * v * v}
            rows.append(
                {**place, "consistent": list(own), "supplied": list(supplied), "mismatch": apart, "one_minus_cosine": turned**2 / 2}
            )
    median = sorted(row["mismatch"] for row in rows)[312]
    facts = {"step": STEPS[-1], "view": 2, "query": 0, "label": 3, "size": 25, "half_width": half, "explained": [0.31, 0.18]}
    equal = {"median_mismatch": median, "scores_equal": True, "losses_equal": True}
    return to_lines("field_facts", [{**facts, **equal}]) + to_lines("field", rows)


def _query(index: int, draw: Random) -> dict[str, Any]:
    before = 2.5606e-3 * (1 + 1e-3 * draw.gauss(0, 1))
    after = 10 ** draw.gauss(-6.3, 0.4)
    return {"view": 2 + index // 128, "index": index % 128, "before": before, "after": after, "scaling": 1 + before, "label": index % 10}


def _replay(step: int, draw: Random) -> dict[str, Any]:
    return {
        "step": step,
        "loss_equal": True,
        "scores_equal": True,
        "total_loss": 2.2 * math.exp(-step / 2000),
        "gradient_gap": 1.1e-3 * (1 + 0.2 * draw.random()),
        "gradient_scaling": 1.0008,
        "gradient_residual": 7e-4 * (1 + 0.2 * draw.random()),
        "update_gap": 9e-4 * (1 + 0.2 * draw.random()),
        "update_scaling": 1.0001,
        "update_residual": 8e-4 * (1 + 0.2 * draw.random()),
        "parameters": 702_538,
        "optimizer": "adam",
    }


def states() -> Record:
    """A ProCo run: a fifth of the queries of the first batch above 1e-6, hardly any later."""
    captures = [
        ("first batch", 1, 0, 3),
        ("epoch 1", 97, 1, 0),
        ("epoch 5", 485, 5, 0),
        ("epoch 15", 1455, 15, 0),
        ("epoch 30", 2910, 30, 0),
    ]
    rows, shares = [], []
    for when, step, epoch, singletons in captures:
        for what, count in (("queries", 2560), ("bank", 10)):
            high = 2.4e-2 if step == 1 else 4e-14 / epoch
            low, middle = (1e-17, 3e-13) if step == 1 else (0.0, high / 80)
            above = (0.231 if what == "queries" else 0.3) if step == 1 else 0.0
            upper = middle * 20 if step > 1 else (4e-9 if what == "queries" else 2e-2)
            place = {"when": when, "step": step, "epoch": epoch, "what": what, "count": count}
            spread = {"minimum": low, "lower": middle / 30, "median": middle, "upper": upper, "maximum": high, "above": above}
            radii = {"radius_low": 0.9, "radius_median": 4.0, "radius_high": 1587.5 if step == 1 else 30.0}
            rows.append({**place, **spread, "capped": singletons / 10, "singletons": singletons, **radii})
            levels = [-16 + k / 4 for k in range(65)]
            reached = [min(1.0, max(0.0, (level + 18) / (math.log10(high) + 18))) for level in levels]
            shares.append({"when": when, "what": what, "level": levels, "share": reached})
    facts = {
        "recipe": recipe("proco", batch_size=128),
        "realization": "original",
        "seed": 3407,
        "dim": 128,
        "temperature": 0.1,
        "data": {"class_counts": CLASS_COUNTS},
    }
    lines = to_lines("capture", rows) + to_lines("cumulative", shares)
    return Record("proco-cifar10-states", "states", "Defects over a ProCo run", facts, ENVIRONMENT, lines)


def stored(directory: Path, *records: Record) -> Records:
    """The records as files, read back."""
    directory.mkdir(parents=True, exist_ok=True)
    for record in records:
        write(directory / f"{record.name}.jsonl", record)
    return Records(directory)


def everything(directory: Path) -> Records:
    return stored(directory, fork("random"), fork("trained"), frozen(), states())


def changed(record: Record, kind: str, index: int = 0, **cells: Any) -> Record:
    """The record with other numbers in one of its lines."""
    position = [at for at, line in enumerate(record.lines) if line["kind"] == kind][index]
    lines = [{**line, **cells} if at == position else line for at, line in enumerate(record.lines)]
    return replace(record, lines=tuple(lines))

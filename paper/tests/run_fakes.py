"""Small records as `pairgrad collect` makes them of runs and of costs, with numbers of the right sizes and no training behind them."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from random import Random
from typing import Any

from pairgrad_paper.recipes import RECIPES
from pairgrad_paper.records import Line, Record, to_lines

METHODS = {
    "original": "Original recurrence",
    "consistent": "Consistent recurrence",
    "log-miller": "Log-domain Miller",
    "arfr dense": "AR/FR",
    "structure-aware arfr compiled": "Structure-aware AR/FR",
}  # and their rows in the paper's table
PER_EPOCH = 74
SCORES = ("msp", "energy", "patt-paper", "patt-released")
SOURCES = ("cifar100", "svhn")
CPU = "patt-cifar10-lt-if100-cpu"


def recipe(name: str = CPU, **changed: Any) -> dict[str, Any]:
    """What run.json says of a recipe."""
    plain = json.loads(json.dumps(asdict(RECIPES[name])))
    return {key: value for key, value in {**plain, **changed}.items() if key not in ("summary", "notes")}


def run(
    realization: str = "original",
    seed: int = 3407,
    name: str = CPU,
    epochs: int | None = None,
    evaluated: bool = True,
    ending: str = "finished",
    shift: float = 0.0,
    notes: Sequence[str] = ("the SC-OOD source lsun is missing",),
    commit: str | None = None,
) -> Record:
    """A run whose loss falls and whose accuracy rises; `shift` is added to every accuracy and detection rate, `commit` made it."""
    draw = Random(f"{realization} {seed}")
    given = recipe(name, **({} if epochs is None else {"epochs": epochs}), seed=seed)
    count = given["epochs"]
    last = count * PER_EPOCH
    lines = to_lines("step", ({"step": 10 * n, "total": 2.0, "vmf": 1.0, "accuracy": 0.5} for n in range(1, 4)))
    lines += to_lines("epoch", (_epoch(number, count, shift, draw) for number in range(count)))
    lines += to_lines("coherence", (_look(37 + 259 * n, realization, draw) for n in range(last // 259)))
    if evaluated:
        lines += to_lines("evaluation", [evaluation(last, shift)])
    lines += to_lines("end", [{"step": last, "minutes": 31.5, "ending": ending}])
    facts = {
        "recipe": given,
        "realization": realization,
        "seed": seed,
        "data": {"class_counts": [50, 5], "train": "a"},
        "notes": list(notes),
    }
    title = f"{name}, {realization}, seed {seed}"
    return Record(f"{name}-{realization}-seed{seed}", "run", title, facts, {"command": f"pairgrad train {name}", **made_by(commit)}, lines)


def made_by(commit: str | None) -> dict[str, Any]:
    """What the environment says of the source."""
    return {} if commit is None else {"source": {"revision": commit, "changed": False}}


def _epoch(number: int, count: int, shift: float, draw: Random) -> dict[str, Any]:
    done = (number + 1) / count
    loss = 1.2 + 1.2 * math.exp(-3 * done) + 0.03 * draw.random()
    row = {
        "step": (number + 1) * PER_EPOCH,
        "epoch": number,
        "train_total": loss,
        "train_vmf": 0.6 * loss,
        "train_accuracy": 0.3 + 0.5 * done,
    }
    if number % 2:
        row |= {"test_accuracy": 0.25 + 0.35 * done + shift, "test_few": 0.3 * done + 0.02 * draw.random()}
    return {**row, "lr": 1e-3}


def _look(step: int, realization: str, draw: Random) -> dict[str, Any]:
    wrong = realization == "original"
    defect = 2.55e-3 * (1 + 1e-3 * draw.random()) if wrong else 0.0
    verdict = "incoherent" if wrong else "coherent"
    return {"step": step, "functions": [{"function": "Eager", "verdict": verdict, "defect": defect, "error": 4.7e-8 * wrong, "looked": 1}]}


def evaluation(step: int, shift: float = 0.0, scores: Sequence[str] = SCORES) -> dict[str, Any]:
    return {
        "step": step,
        "images": "test, 100 images",
        "scores": {name: _score(name, shift) for name in scores},
        "left_out": {},
        "notes": [],
    }


def _score(name: str, shift: float) -> dict[str, Any]:
    base = 0.5 + 0.01 * SCORES.index(name) + shift
    accuracy = {"accuracy": base, "balanced": base, "many": base + 0.1, "medium": base, "few": base - 0.1, "per_class": [base, base]}
    sources = [{"source": source, "num_id": 100, "num_ood": 40 + k, **_metrics(base + 0.1 * k)} for k, source in enumerate(SOURCES)]
    return {"score": name, "accuracy": accuracy, "ood": {"sources": sources, "mean": _metrics(base + 0.05)}}


def _metrics(auroc: float) -> dict[str, Any]:
    rates = {"patt": 1 - auroc, "sc-ood": 0.99 - auroc, "openood": 0.98 - auroc}
    return {"auroc": auroc, "aupr_in": auroc - 0.05, "aupr_out": auroc - 0.1, "fpr95": rates}


def costs(device: str = "cpu", protocol: str = "interleaved", original: float = 1244.0) -> Record:
    """Every row of the paper's table, and one that it has not."""
    medians = dict(zip(METHODS.values(), (original, 1376.0, 1956.0, 954.5, 5.72), strict=True))
    peaks = dict(zip(METHODS.values(), (501.13, 2036.19, 501.13, 501.13, 1.25), strict=True))
    rows = [_cost(method, name, medians[name], peaks[name], original) for method, name in METHODS.items()]
    rows += [_cost("floor", None, 4.06, 0.0, original), _cost("structure-aware paired compiled", None, 5.73, 1.25, original)]
    machine = {"CPU": "a CPU", "threads": "1", "torch": "2"}
    facts = {"protocol": protocol, "date": "2026-01-02", "seed": 3407, "warmups": 3, "repeats": 7, "quick": False, "device": device}
    environment = {"device": {"type": device, "name": "a GPU"}, "command": "python -m benchmarks.learning"}
    name = f"local-costs-{device}{'-paper' if protocol == 'paper' else ''}"
    return Record(name, "cost", "Costs", {**facts, "machine": machine}, environment, to_lines("cost", rows))


def _cost(method: str, name: str | None, median: float, peak: float, original: float) -> Line:
    spread = {"low_ms": 0.98 * median, "high_ms": 1.03 * median, "faster": original / median}
    return {"method": method, "published_name": name, "median_ms": median, **spread, "peak_mib": peak, "repetitions": 7, "note": ""}

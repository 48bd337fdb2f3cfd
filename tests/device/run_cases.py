"""Run every case of `cases` on a device that is not there, and write what it did as JSON.

    python -m tests.device.run_cases libnoop_cuda_guard.so results.json [part of a name ...]

One process for all cases: the guard must be there before torch, and torch takes seconds to import.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

from tests.device import fake_cuda


def main(library: str, results: str, *wanted: str) -> None:
    """Write for each case: seconds, operations, bytes allocated, events of construction and of steps, and the error if any; and the functions that ran."""
    fake_cuda.load(Path(library))
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from tests.device import cases, counts, recording

    torch.set_num_threads(1)
    recording.prepare()
    warnings.simplefilter("ignore")
    fake, ran = FakeTensorMode(allow_non_fake_inputs=True), set()

    def called(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            ran.add(frame.f_code)

    found: dict[str, Any] = {}
    for name, case in {**cases.CASES, **counts.CASES}.items():
        if wanted and not any(part in name for part in wanted):
            continue
        recorder, construction, error = recording.Recorder(fake), Counter(), None
        begun = time.process_time()

        def built(recorder: recording.Recorder = recorder, construction: Counter[Any] = construction) -> None:
            construction.update(recorder.events)
            recorder.clear()

        sys.setprofile(called)
        try:
            with recorder:
                case(built)
        except Exception as problem:
            error = "".join(traceback.format_exception(problem)[-8:])
        finally:
            sys.setprofile(None)
        found[name] = {
            "seconds": time.process_time() - begun,
            "operations": dict(recorder.operations),
            "peak": recorder.peak,
            "construction": [[*key, count] for key, count in construction.items()],
            "step": [[*key, count] for key, count in recorder.events.items()],
            "error": error,
        }
    functions = sorted(
        {f"{code.co_filename}:{code.co_qualname}" for code in ran if "pairgrad" in code.co_filename or code.co_filename == "<string>"}
    )
    Path(results).write_text(json.dumps({"cases": found, "ran": functions}))


if __name__ == "__main__":
    main(*sys.argv[1:])

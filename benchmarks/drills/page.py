"""docs/reliability.md, from what the drills found."""

from __future__ import annotations

from typing import Any

from benchmarks.markdown import table

COMMAND = "python -m benchmarks.drills"
TITLES = {
    "crashes": (
        "Crashes at every system call",
        """
        A run of eight updates with five checkpoints, one of which replaces another, goes through an `os` of our own that writes down each
        call that changes a file: make, write, sync, rename, remove. From that follows what a disk may hold after a crash before any of
        the calls, or in the middle of a write. After a kill that is everything that was done. After a power cut it is what was synced,
        and of the rest anything: a name without its contents, contents without their name, half of a write, zeros, in random
        combinations. Each of these disks is made and the run resumes on it. It must keep every checkpoint that it was told is on the
        disk, find no damaged one, have each step in its record once, and end with the files of a run that was left alone. A file beside the
        run, which is replaced before each checkpoint, must be whole and as new as the newest checkpoint.
        """,
    ),
    "full": (
        "Full disks",
        """
        The same run, and from each call on that takes space the disk is full. The message must name the file; no temporary file may
        stay, nor half of one; and once there is room the same run must resume and end as if nothing had happened.
        """,
    ),
    "kills": (
        "Kills",
        """
        `pairgrad train digits-lt`, with a checkpoint after each update, is killed and started again until it ends. Then every tensor of
        its last checkpoint is compared bit for bit, and every number of its record, with a run that was left alone.
        """,
    ),
    "stops": (
        "Processes that stand still",
        """
        A process that is stopped looks like one that hangs in a driver or swaps. It keeps its lock, so no other may enter.
        """,
    ),
    "memory": (
        "No more memory",
        """
        The operating system refuses an allocation in the middle of an update. (A process that the kernel kills for want of memory is a
        `kill -9`.)
        """,
    ),
    "files": (
        "Mutated files",
        """
        Small valid files are changed at random (bits, bytes, cuts, splices, fields set to extremes, opcodes of pickles that would run
        code, repaired checksums) and opened in a child process with limits of memory and time. Each must be read, or refused by an error
        that names the file. Hostile files, which are small and ask for much, must be refused. Wrong is any other exception, a refusal only
        because memory ran out, a child that dies, more than two seconds, and anything that is executed.
        """,
    ),
    "numbers": (
        "Numbers",
        """
        Functions are called with random arguments over the whole range of the dtype, with subnormal numbers, infinities, NaN, near-equal
        pairs and the seams between formulas among them, and each number is compared with an enclosure by ball arithmetic. Wrong is one
        that is not within the documented accuracy and was returned without an error.
        """,
    ),
}


def text(results: dict[str, dict[str, Any]]) -> str:
    """The page."""
    wrong = sum(row["wrong"] for result in results.values() for row in result["rows"])
    minutes = sum(result["seconds"] for result in results.values()) / 60
    lines = [
        "# Reliability",
        "",
        f"<!-- Written by `{COMMAND}`; do not edit. -->",
        "",
        "What we do to training runs, files and numbers on purpose, how often, and what came of it. Records lost, bits changed, files executed and",
        f"silent wrong numbers must be 0; in this run {f'{wrong} tries went' if wrong else 'nothing went'} wrong. `make drills` does all of it again;",
        f"this run took {minutes:.0f} minutes on two cores. The command below each table does one part. `make test` makes a few tries of each.",
        "",
        "What a user sees in each case, and what to do: [training and evaluation](training.md#safe-to-leave-alone).",
        "",
    ]
    for name, result in results.items():
        title, explained = TITLES[name]
        rows = [[row["what"], row["tried"], row["found"], str(row["wrong"])] for row in result["rows"]]
        lines += [
            f"## {title}",
            "",
            " ".join(explained.split()),
            "",
            table(["what is done", "tries", "what came of it", "wrong"], rows, 3),
            "",
            f"`{COMMAND} {name}`: {result['seconds']} s on {result['machine']}.",
            "",
        ]
    lines += [
        "## What is not tried",
        "",
        "Disks that lie about what they have synced, bits that flip in memory, network file systems without locks, Windows, and GPUs: none was at hand;",
        "a device that is lost or out of memory raises an error in its process, as in the drill of memory. A power cut is simulated from the calls; no plug",
        "was pulled.",
        "",
    ]
    return "\n".join(lines)

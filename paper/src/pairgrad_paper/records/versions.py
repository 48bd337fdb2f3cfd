"""The code version of a record, and which versions have equal numerics: a mean over seeds is taken over records of one version.

A directory of records may have a file `equal-versions.toml`, which declares commits whose numerics are equal:

    [[equal]]
    commits = ["87beba8", "0123abc"]
    why = "only pages changed between them"
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pairgrad_paper.records.files import Record, RecordError

FILE = "equal-versions.toml"
_SHOWN = 7  # digits of a commit


def declared(directory: Path) -> tuple[tuple[str, ...], ...]:
    """The groups of commits that the directory declares equal in numerics.

    Raises:
        RecordError: the file cannot be read, or a group has not two commits and a reason.
    """
    path = directory / FILE
    if not path.exists():
        return ()
    try:
        groups = tomllib.loads(path.read_text(encoding="utf-8")).get("equal", [])
    except (OSError, ValueError) as error:
        raise RecordError(f"{path} cannot be read ({error})") from error
    return tuple(_group(path, group) for group in groups)


def _group(path: Path, group: Any) -> tuple[str, ...]:
    match group:
        case {"commits": [str(), str(), *_] as commits, "why": str(why)} if why.strip() and all(
            isinstance(each, str) and len(each) >= _SHOWN for each in commits
        ):
            return tuple(commits)
    raise RecordError(f"{path}: each [[equal]] must have at least two commits of {_SHOWN} digits or more, and a why, got {group!r}")


def version(record: Record, equal: Sequence[Sequence[str]] = ()) -> str:
    """The version in words; records with the same words may stand in one mean.

    Examples:
        >>> environment = {"versions": {"pairgrad": "0.1.0"}, "source": {"revision": "0123456789", "changed": False}}
        >>> version(Record("n", "run", "", {}, environment, ()))
        'commit 0123456'
        >>> version(Record("n", "run", "", {}, {"versions": {"pairgrad": "0.1.0"}}, ()))
        'pairgrad 0.1.0, commit not recorded'
    """
    sources = [record.environment.get("source"), *record.environment.get("further_sources", ())]
    names = list(dict.fromkeys(_commit(source, equal) for source in sources if source))
    if names:
        return " and ".join(names)
    release = record.environment.get("versions", {})
    return f"pairgrad {release.get('pairgrad', 'of an unknown version')}, commit not recorded"


def _commit(source: Mapping[str, Any], equal: Sequence[Sequence[str]]) -> str:
    revision = str(source["revision"])
    if source.get("changed"):  # what was changed is not known, so it is equal to nothing else
        return f"commit {revision[:_SHOWN]} with changed files"
    group = next((group for group in equal if any(revision.startswith(each) for each in group)), (revision,))
    return f"commit {' = '.join(each[:_SHOWN] for each in group)}"

"""The table `[tool.mutation]` of pyproject.toml: which folders are mutated, and which tests are run for each of them."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Settings:
    """What to mutate and what to run.

    Attributes:
        root: the folder of pyproject.toml; all other paths are relative to it.
        package: the folder of the package.
        folders: for each folder of the package that is mutated, the test files and folders that are run.
        preload: modules that are imported once, before processes are forked. The package must not be among them.
    """

    root: Path
    package: str
    folders: dict[str, list[str]]
    preload: list[str]

    @classmethod
    def read(cls, root: Path) -> Settings:
        root = root.resolve()
        table = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mutation"]
        return cls(root, table["package"], table["folders"], table.get("preload", []))

    def files(self, wanted: list[str]) -> dict[str, list[str]]:
        """Source files below each folder; of these only the wanted ones, given as paths of files or folders below the package."""
        found: dict[str, list[str]] = {}
        for name in self.folders:
            below = sorted((self.root / self.package / name).rglob("*.py"))
            files = [path.relative_to(self.root / self.package).as_posix() for path in below]
            found[name] = [file for file in files if not wanted or any(file == w or file.startswith(w.rstrip("/") + "/") for w in wanted)]
        unknown = [w for w in wanted if not any(f == w or f.startswith(w.rstrip("/") + "/") for files in found.values() for f in files)]
        if unknown:
            raise SystemExit(f"--modules: expected files or folders below {self.package}/{{{','.join(self.folders)}}}, got {unknown}")
        return found

    def source(self, file: str) -> Path:
        return self.root / self.package / file

    def tests(self, folder: str) -> list[Path]:
        """The Python files among the tests of a folder, helpers included."""
        paths = [self.root / name for name in self.folders[folder]]
        return sorted({file for path in paths for file in (path.rglob("*.py") if path.is_dir() else [path])})

"""`python -m tests.looks PAGE... [--shots DIRECTORY]`: what is wrong with pages that lie about, and pictures of them."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tests.looks.view import VIEWS, complaints, opened, printed


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.looks", description="Open pages wide and narrow, light and dark, and say what is wrong."
    )
    parser.add_argument("pages", nargs="+", type=Path, help="HTML files, or directories of them")
    parser.add_argument("--shots", type=Path, help="directory for pictures of the pages")
    parser.add_argument("--print", action="store_true", dest="paper", help="look at them on paper too")
    parser.add_argument("--views", default="", help="only views whose name contains this, such as 390 or dark")
    given = parser.parse_args()
    if given.shots:
        given.shots.mkdir(parents=True, exist_ok=True)
    wrong = 0
    with opened() as browser:
        for path in (page for each in given.pages for page in (sorted(each.rglob("*.html")) if each.is_dir() else [each])):
            for view in (view for view in VIEWS if given.views in str(view)):
                started = time.perf_counter()
                said = complaints(browser, path, view, given.shots)
                wrong += len(said)
                print(
                    f"{path} {view}: {len(said) or 'nothing'} to complain of, {time.perf_counter() - started:.1f} s",
                    *said,
                    sep="\n  ",
                    flush=True,
                )
            if given.paper:
                said = printed(browser, path)
                wrong += len(said)
                print(f"{path} on paper: {len(said) or 'nothing'} to complain of", *said, sep="\n  ", flush=True)
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())

"""`python -m census`: see the package's docstring."""

from __future__ import annotations

import argparse
import signal
import sys

from census.environments import lock
from census.package import packages
from census.run import census_of


def main(argv: list[str] | None = None) -> int:
    """Runs what is asked for."""
    parser = argparse.ArgumentParser(prog="python -m census", description="Audit custom backwards of public packages.")
    parser.add_argument("packages", nargs="*", help="names of packages or groups; all if none is given")
    parser.add_argument("--case", default="", help="cases with this in their name")
    parser.add_argument("--fresh", action="store_true", help="forget what is recorded")
    parser.add_argument("--page", action="store_true", help="write docs/census.md from the records, and run nothing")
    parser.add_argument("--list", action="store_true", help="list packages and cases")
    parser.add_argument(
        "--lock", metavar="GROUP", help="install the packages of a group and write locks/GROUP.txt; further requirements as `packages`"
    )
    options = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the worker is ended too
    if options.lock:
        print(lock(options.lock, options.packages))
        return 0
    known = packages()
    groups = {package.group for package in known.values()}
    if unknown := set(options.packages) - set(known) - groups:
        parser.error(
            f"there is no driver or group named {', '.join(sorted(unknown))}; packages are {', '.join(known)}; groups {', '.join(sorted(groups))}"
        )
    chosen = [p for p in known.values() if not options.packages or {p.name, p.group} & set(options.packages)]
    if options.list:
        for package in chosen:
            print(f"{package.name} {package.version} ({package.group}): {', '.join(package.cases)}")
        return 0
    failed = []
    if not options.page:
        for package in sorted(chosen, key=lambda package: (package.group, package.name)):
            print(f"{package.name} {package.version}", flush=True)
            try:
                census_of(package, options.fresh, options.case)
            except (RuntimeError, OSError) as error:
                failed.append(package.name)
                print(f"  {package.name}: {error}", file=sys.stderr, flush=True)
    from census.page import write

    print(write())
    if failed:
        print(f"not done: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

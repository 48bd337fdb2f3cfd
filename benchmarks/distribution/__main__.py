"""`python -m benchmarks.distribution --help`."""

from __future__ import annotations

import sys

from benchmarks.distribution.run import main

sys.exit(main())

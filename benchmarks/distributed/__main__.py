"""`python -m benchmarks.distributed --help`."""

from __future__ import annotations

import sys

from benchmarks.distributed.run import main

sys.exit(main())

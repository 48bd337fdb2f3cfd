"""`python -m benchmarks.learning --help`."""

from __future__ import annotations

import sys

from benchmarks.learning.run import main

sys.exit(main())

"""The public callables, each with a valid call and the kind of every argument, by package.

- `given`: arguments that are valid, and the table `ENTRIES`.
- `potentials`, `states`, `losses`, `distributions`, `detection`, `auditor`, `others`: add to the table.
"""

from tests.hostile.calls import auditor, detection, distributions, losses, others, potentials, states
from tests.hostile.calls.given import ENTRIES

__all__ = ["ENTRIES", "auditor", "detection", "distributions", "losses", "others", "potentials", "states"]

"""Class state on the sphere: sums and counts per class, the directions and concentrations derived from them, and the score geometry.

`bank` estimates by `statistics` (sums, counts) and `resultant` (concentrations); `state` is what scores read, `geometry` their radii; `area`, `inputs`,
`saved` (options in a state).
"""

from pairgrad.sphere.bank import MEMORIES, ClassBank
from pairgrad.sphere.geometry import GEOMETRIES, squared_increment
from pairgrad.sphere.resultant import expected_squared_resultant
from pairgrad.sphere.state import ClassState

__all__ = ["GEOMETRIES", "MEMORIES", "ClassBank", "ClassState", "expected_squared_resultant", "squared_increment"]

"""For test files: an inheritable class of tests for a function with a backward of its own, and Triton kernels without a GPU. The pytest plugin is the module
`pytest_pairgrad`.

`suite` has the tests, on `calls` of the function, with the words of `failures`; `session` and `merge` are what the plugin keeps of a test session.
`interpreter` runs Triton kernels on the CPU, with `triton_corrections` of Triton's interpreter.
"""

from pairgrad.testing.failures import Case
from pairgrad.testing.interpreter import triton_interpreter
from pairgrad.testing.merge import merged
from pairgrad.testing.suite import CoherenceTests

__all__ = ["Case", "CoherenceTests", "merged", "triton_interpreter"]

"""The comparison of mixtures with scikit-learn: that rows are measured, and that the tables say what was found."""

from __future__ import annotations

import numpy as np
from benchmarks import mixture
from benchmarks.mixture import GAUSSIAN, HARD, K_MEANS, NO_SPARSE, SOFT, Cell, Row
from benchmarks.timing import Samples


def test_data_are_unit_rows() -> None:
    dense = mixture.dense(50, 8, 3, "float32")
    sparse = mixture.sparse(200, 1000, 3, "float64")
    assert dense.dtype == np.float32
    assert sparse.format == "csr"
    assert 80 < sparse.nnz / 200 < 120
    assert np.allclose(np.linalg.norm(dense, axis=1), 1)
    assert np.allclose(np.sqrt(sparse.multiply(sparse).sum(1)), 1)


def test_a_row_is_measured() -> None:
    for start in ("given", "own"):
        row = mixture.compare(mixture.dense(300, 8, 4, "float64"), 4, start, 4, 2)
        assert row.sizes == (300, 8, 4)
        assert all(len(row.cells[name].fit.seconds) == 2 for name in (K_MEANS, SOFT, HARD, GAUSSIAN))
    row = mixture.compare(mixture.sparse(100, 300, 3, "float32"), 3, "given", 4, 1)
    assert row.dtype == "float32"
    assert row.cells[GAUSSIAN].note == NO_SPARSE
    assert NO_SPARSE in mixture.whole_fits([row])


def test_tables() -> None:
    cells = {
        K_MEANS: Cell(Samples([0.001]), Samples([0.01])),
        SOFT: Cell(Samples([0.002, 0.003, 0.004]), Samples([0.02])),
        HARD: Cell(Samples([0.0015]), Samples([0.015])),
        GAUSSIAN: Cell(note=NO_SPARSE),
    }
    slow = Row((1000, 16, 10), "float32", "given", 8, cells)
    fast = Row((100_000, 16, 10), "float32", "given", 8, {**cells, SOFT: Cell(Samples([0.0014]), Samples([0.02]))})
    lines = mixture.comparison([slow, fast]).splitlines()
    assert lines[-2] == f"| 1,000 | 16 | 10 | float32 | 1 ms | 3 ms, **3.00** | 1.5 ms, 1.50 | {NO_SPARSE} |"
    assert "| 1.4 ms, 1.40 |" in lines[-1]
    assert mixture.whole_fits([slow]).splitlines()[-1].endswith(f"| given | 8 | 10 ms, 1.00 | 20 ms, 2.00 | 15 ms, 1.50 | {NO_SPARSE} |")
    assert "in 1 of 2 rows" in mixture.verdict([slow, fast])
    assert "largest ratio is 3.0, at n = 1,000" in mixture.verdict([slow, fast])

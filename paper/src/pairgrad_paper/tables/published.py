"""Every number of the paper that is a result, as printed, with the LaTeX label, the row and the column of where it is printed: one list, `NUMBERS`.

These are all numbers of the paper's tables and captions but those of `SETUP`, which describe what was run, and the results that its text states.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
TABLE, CAPTION, TEXT = "table", "caption", "text"


@dataclass(frozen=True)
class Printed:
    """One printed number: its text, which says how many digits it has, and its place.

    Attributes:
        text: as printed; powers of ten as in Python.
        label: the LaTeX label of the table, figure or section.
        row: in the words of the paper.
        column: likewise.
        place: `"table"`, `"caption"` or `"text"`.
    """

    text: str
    label: str
    row: str = ""
    column: str = ""
    place: str = TABLE

    def __float__(self) -> float:
        return float(self.text)

    @property
    def numbers(self) -> tuple[Printed, ...]:
        """As a column has them."""
        return (self,)

    def same_digits(self, ours: float) -> bool:
        """Whether `ours`, rounded to as many digits as were printed, is the printed number.

        Examples:
            >>> Printed("2.74e-06", "tab:any").same_digits(2.7449e-6), Printed("2.74e-06", "tab:any").same_digits(2.7451e-6)
            (True, False)
        """
        printed = Decimal(self.text)
        digits = len(printed.as_tuple().digits) - 1
        return f"{Decimal(ours):.{digits}e}" == f"{printed:.{digits}e}"


@dataclass(frozen=True)
class PrintedColumn(Generic[Key]):
    """A column of a printed table; `names` are the words for the row and the column of a key."""

    label: str
    texts: Mapping[Key, str]
    names: Callable[[Key], tuple[str, str]]
    place: str = TABLE

    def __getitem__(self, key: Key) -> Printed:
        return Printed(self.texts[key], self.label, *self.names(key), self.place)

    def __iter__(self) -> Iterator[Key]:
        return iter(self.texts)

    @property
    def numbers(self) -> tuple[Printed, ...]:
        return tuple(self[key] for key in self.texts)


def _column(words: str, row: str = "{}") -> Callable[[Hashable], tuple[str, str]]:
    """Names of a column whose rows are called after their keys."""
    return lambda key: (row.format(key), words)


DIMENSIONS = (64, 128, 256, 512, 1024, 2048, 4096)


def _by_dimension(label: str, words: str, *texts: str) -> PrintedColumn[int]:
    return PrintedColumn(label, dict(zip(DIMENSIONS, texts, strict=True)), _column(words, "dimension {}"))


# Ratio fidelity: largest absolute errors over 61 concentrations. CUSF [Plesner_2024] ran in CPU float64; it is not a dependency here.
_RATIO = "tab:dimension-main"
RATIO_CUSF = _by_dimension(_RATIO, "CUSF", "3.37e-12", "2.38e-11", "2.29e-11", "1.85e-11", "2.45e-11", "8.87e-11", "5.76e-10")
RATIO_ARFR = _by_dimension(_RATIO, "AR/FR", "2.74e-06", "3.29e-07", "4.03e-08", "4.99e-09", "6.21e-10", "7.74e-11", "9.66e-12")
RATIO_CERTIFICATE = _by_dimension(
    _RATIO, "AR/FR certificate", "3.36e-05", "4.00e-06", "4.88e-07", "6.03e-08", "7.49e-09", "9.34e-10", "1.17e-10"
)

# Unit-length potential differences, over the same concentrations. Log-Miller and CUSF ran in float64, AR/FR in 60 digits.
_DIFFERENCE = "tab:endpoint-scaling"
DIFFERENCE_LOG_MILLER = _by_dimension(
    _DIFFERENCE, "Log-Miller", "3.36e-04", "8.29e-05", "2.06e-05", "5.13e-06", "1.28e-06", "2.11e-07", "7.25e-09"
)
DIFFERENCE_CUSF = _by_dimension(_DIFFERENCE, "CUSF", "1.89e-12", "8.47e-12", "2.31e-11", "9.72e-12", "3.21e-11", "9.67e-11", "1.73e-10")
DIFFERENCE_ARFR = _by_dimension(_DIFFERENCE, "AR/FR", "2.76e-06", "3.30e-07", "4.04e-08", "5.00e-09", "6.21e-10", "7.74e-11", "9.67e-12")

# Parity: by Bessel order, at x = 1e9 and start 2 nu.
_PARITY = "tab:parity-counterfactual"
PARITY_RAW = PrintedColumn(_PARITY, {63: "1.645e+05", 64: "6.208e-06", 255: "1.020e+04", 256: "9.856e-05"}, _column("Raw ratio", "nu = {}"))
PARITY_SIGN = {63: "+", 64: "-", 255: "+", 256: "-"}
PARITY_PHASE = {63: "linear", 64: "inverse", 255: "linear", 256: "inverse"}
PARITY_SCALED = PrintedColumn(_PARITY, {63: "1.645e-04", 64: "6.208e+03", 255: "1.020e-05", 256: "9.856e+04"}, _column("Scaled", "nu = {}"))
PARITY_LIMIT = PrintedColumn(_PARITY, {63: "1.645e-04", 64: "6.208e+03", 255: "1.020e-05", 256: "9.856e+04"}, _column("Limit", "nu = {}"))
PARITY_ERROR = PrintedColumn(_PARITY, {63: "1.2e-11", 64: "1.3e-11", 255: "3.2e-09", 256: "3.3e-09"}, _column("Rel. error", "nu = {}"))

FITTED_SLOPE = Printed("-3.02", "fig:dimension-error", "maximum sampled error", "fitted log-log slope", TEXT)

# The two-class construction, dimension 128, by concentration.
_TWO_CLASSES = "app:curl-proof"
TWO_CLASS_RAW_RATIO = PrintedColumn(_TWO_CLASSES, {4032: "1.08748", 8064: "1.56080"}, _column("raw ratio", "kappa = {}"), TEXT)
TWO_CLASS_DERIVATIVE = PrintedColumn(
    _TWO_CLASSES, {4032: "0.984317", 8064: "0.992073"}, _column("finite-forward derivative", "kappa = {}"), TEXT
)
TWO_CLASS_ANTISYMMETRY = Printed("-1.93915e-03", _TWO_CLASSES, "both classes", "J12 - J21", TEXT)

# The captured PATT state: dimension 512, start 2 nu, and its range of r / nu, as printed.
CAPTURED_DIMENSION = 512
CAPTURED_RANGE = (392.35, 393.11)
_CAPTURED, _LARGEST = "tab:captured-audit", "Maximum discrepancy"
CAPTURED_FINITE_SCORE = Printed("3.32e-03", _CAPTURED, "Finite-potential score", _LARGEST)
CAPTURED_ARFR_SCORE = Printed("1.17e-09", _CAPTURED, "AR/FR same-state score", _LARGEST)
CAPTURED_RATIO_ERROR = Printed("2.55e-03", _CAPTURED, "Clipped backward radial factor", _LARGEST)
CAPTURED_DEFECT = Printed("2.56e-03", _CAPTURED, "Forward-backward coherence defect", _LARGEST)
COUNTERFACTUAL_DEFECT = Printed("2.55e-03", "tab:backward-counterfactual")

# Only the backward rule changed, by view.
_COUNTERFACTUAL = "tab:backward-counterfactual"
COUNTERFACTUAL_VIEWS = (2, 3)
COUNTERFACTUAL_SCORE = PrintedColumn(_COUNTERFACTUAL, {2: "0", 3: "0"}, _column("Max score difference", "view {}"))
COUNTERFACTUAL_LOSS = PrintedColumn(_COUNTERFACTUAL, {2: "0", 3: "0"}, _column("Loss difference", "view {}"))
COUNTERFACTUAL_DEFECTS = PrintedColumn(_COUNTERFACTUAL, {2: "2.55e-03", 3: "2.55e-03"}, _column("Max radial residual", "view {}"))
COUNTERFACTUAL_RELATIVE = PrintedColumn(_COUNTERFACTUAL, {2: "2.56e-03", 3: "2.56e-03"}, _column("Gradient relative l2", "view {}"))
COUNTERFACTUAL_LARGEST = PrintedColumn(_COUNTERFACTUAL, {2: "1.40e-05", 3: "1.35e-05"}, _column("Gradient max difference", "view {}"))

# States that training visited: the slice of a feature, the forks, and the first batch of ProCo.
FIELD_MISMATCH = Printed(
    "0.2561", "fig:patt-measured-field", "projected gradients", "median relative mismatch, percent", CAPTION
)  # median, in percent
FIELD_SIZE = 25  # points per side
FIELD_MAGNIFIED = 400
FORK_PROBES = Printed("43", "app:intervention-protocol")
FORK_UPDATES = Printed("1000", "app:intervention-protocol")
FORK_GAP_ORDER = Printed("1e-3", "app:intervention-protocol")  # "on the order of"
SCALED_QUERIES = 256  # of fig:regime-scaling (b)
CAPTURED_VIEWS = 6  # of tab:captured-audit
PROCO_SCALE = 1e-6  # of fig:proco-state-distribution: what is counted is above it
PROCO_FIRST_BATCH = Printed(
    "23", "app:proco-extended", "first CIFAR batch", "queries above 1e-6, percent", TEXT
)  # percent of the queries above that

# Class count and priors: the bounds that all 15 configurations satisfy.
CLASS_COUNT_SCORE = Printed("4.00e-05", "fig:class-count-control", "15 configurations", "score bound", TEXT)
CLASS_COUNT_LOSS = Printed("8.00e-05", "fig:class-count-control", "15 configurations", "mean cross-entropy bound", TEXT)

# Complete training runs, in percent, by recipe, metric and realization: mean, and standard deviation over three runs where it is printed.
# tab:task-summary prints accuracy and AUROC of the same.
TASK_REALIZATIONS = ("original", "consistent", "arfr")
TASK_METRICS = ("accuracy", "auroc", "fpr95")
_TASK = "tab:task-complete"
_TASK_TEXTS = {
    ("patt-cifar10-lt-if10", "accuracy"): ("92.04 0.17", "92.12 0.18", "92.16 0.19"),
    ("patt-cifar10-lt-if10", "auroc"): ("93.07 0.13", "92.30 0.27", "93.43 0.46"),
    ("patt-cifar10-lt-if10", "fpr95"): ("26.20 1.19", "29.52 1.06", "25.52 1.01"),
    ("patt-cifar10-lt-if50", "accuracy"): ("87.30 0.29", "87.58 0.35", "87.42 0.15"),
    ("patt-cifar10-lt-if50", "auroc"): ("90.18 2.46", "90.95 1.57", "91.02 1.13"),
    ("patt-cifar10-lt-if50", "fpr95"): ("34.51 6.96", "32.84 1.94", "32.23 2.89"),
    ("patt-cifar10-lt-if100", "accuracy"): ("83.82 0.21", "84.67 0.41", "84.73 0.31"),
    ("patt-cifar10-lt-if100", "auroc"): ("90.66 0.13", "89.97 0.39", "89.95 0.34"),
    ("patt-cifar10-lt-if100", "fpr95"): ("33.35 0.50", "34.33 0.71", "35.15 0.79"),
    ("patt-cifar100-lt-if10", "accuracy"): ("62.37 2.43", "62.12 1.84", "62.56 2.03"),
    ("patt-cifar100-lt-if10", "auroc"): ("78.18 2.09", "78.08 1.23", "78.44 1.53"),
    ("patt-cifar100-lt-if10", "fpr95"): ("57.74 3.43", "57.70 1.46", "57.14 2.35"),
    ("patt-cifar100-lt-if50", "accuracy"): ("53.26 0.19", "52.87 0.31", "53.74 0.31"),
    ("patt-cifar100-lt-if50", "auroc"): ("75.37 0.68", "75.54 0.60", "76.14 0.24"),
    ("patt-cifar100-lt-if50", "fpr95"): ("62.77 1.00", "64.12 0.96", "62.59 0.96"),
    ("patt-cifar100-lt-if100", "accuracy"): ("50.33 0.16", "49.48 0.26", "49.66 0.16"),
    ("patt-cifar100-lt-if100", "auroc"): ("75.78 0.33", "75.40 0.54", "75.21 0.65"),
    ("patt-cifar100-lt-if100", "fpr95"): ("63.56 0.25", "64.58 0.62", "64.91 0.65"),
    ("patt-imagenet-lt", "accuracy"): ("53.88", "54.11", "54.34"),
    ("patt-imagenet-lt", "auroc"): ("76.19", "76.87", "77.50"),
    ("patt-imagenet-lt", "fpr95"): ("79.66", "78.74", "76.68"),
}  # in the order of TASK_REALIZATIONS
_TASK_CELLS = {
    (*row, realization): text.split()
    for row, texts in _TASK_TEXTS.items()
    for realization, text in zip(TASK_REALIZATIONS, texts, strict=True)
}
_TASK_ARMS = {"original": "Original recurrence", "consistent": "Consistent recurrence", "arfr": "AR/FR"}
_TASK_ROWS = {"accuracy": "Acc.", "auroc": "AUROC", "fpr95": "FPR95"}
_TASK_MEANS = {key: cell[0] for key, cell in _TASK_CELLS.items()}
_TASK_DEVIATIONS = {key: cell[1] for key, cell in _TASK_CELLS.items() if len(cell) == 2}


def _task_names(deviation: bool) -> Callable[[tuple[str, ...]], tuple[str, str]]:
    return lambda key: (
        f"{_TASK_SETTINGS[key[0]]}, {_TASK_ROWS[key[1]]}",
        f"{_TASK_ARMS[key[2]]}{', deviation' if deviation else ''}",
    )


_TASK_SETTINGS = {
    **{f"patt-cifar{classes}-lt-if{factor}": f"CIFAR-{classes}-LT, IF {factor}" for classes in (10, 100) for factor in (10, 50, 100)},
    "patt-imagenet-lt": "ImageNet-LT",
}
TASK_MEAN = PrintedColumn(_TASK, _TASK_MEANS, _task_names(deviation=False))
TASK_DEVIATION = PrintedColumn(_TASK, _TASK_DEVIATIONS, _task_names(deviation=True))
_SUMMARY = "tab:task-summary"  # prints accuracy and AUROC again
SUMMARY_MEAN = PrintedColumn(_SUMMARY, {key: text for key, text in _TASK_MEANS.items() if key[1] != "fpr95"}, TASK_MEAN.names)
SUMMARY_DEVIATION = PrintedColumn(
    _SUMMARY, {key: text for key, text in _TASK_DEVIATIONS.items() if key[1] != "fpr95"}, TASK_DEVIATION.names
)

# The local step on an H100, by row of the table, and the quotients of the text.
_H100 = "tab:h100-local"
H100_MILLISECONDS = PrintedColumn(
    _H100,
    {
        "Original recurrence": "266.40",
        "Consistent recurrence": "412.80",
        "Log-domain Miller": "120.28",
        "AR/FR": "4.90",
        "Structure-aware AR/FR": "0.206",
    },
    _column("Runtime (ms)"),
)
H100_MEBIBYTES = PrintedColumn(
    _H100,
    {
        "Original recurrence": "504.89",
        "Consistent recurrence": "1755.42",
        "Log-domain Miller": "504.89",
        "AR/FR": "508.12",
        "Structure-aware AR/FR": "32.00",
    },
    _column("Peak increment (MiB)"),
)
H100_EVALUATOR = Printed("54.4", "app:h100-local", "AR/FR beside original recurrence", "times faster", TEXT)
H100_EXECUTION = Printed("23.8", "app:h100-local", "Structure-aware AR/FR beside AR/FR", "times faster", TEXT)
H100_BOTH = Printed("1293", "app:h100-local", "Structure-aware AR/FR beside original recurrence", "times faster", TEXT)
H100_MEMORY = Printed("15.8", "app:h100-local", "Structure-aware AR/FR beside original recurrence", "times less memory", TEXT)

# All of them, in the order of the paper.
COLUMNS: tuple[PrintedColumn | Printed, ...] = (
    SUMMARY_MEAN,
    SUMMARY_DEVIATION,
    FITTED_SLOPE,
    PROCO_FIRST_BATCH,
    TWO_CLASS_RAW_RATIO,
    TWO_CLASS_DERIVATIVE,
    TWO_CLASS_ANTISYMMETRY,
    COUNTERFACTUAL_SCORE,
    COUNTERFACTUAL_LOSS,
    COUNTERFACTUAL_DEFECTS,
    COUNTERFACTUAL_RELATIVE,
    COUNTERFACTUAL_LARGEST,
    PARITY_RAW,
    PARITY_SCALED,
    PARITY_LIMIT,
    PARITY_ERROR,
    CAPTURED_FINITE_SCORE,
    CAPTURED_ARFR_SCORE,
    CAPTURED_RATIO_ERROR,
    CAPTURED_DEFECT,
    RATIO_CUSF,
    RATIO_ARFR,
    RATIO_CERTIFICATE,
    DIFFERENCE_LOG_MILLER,
    DIFFERENCE_CUSF,
    DIFFERENCE_ARFR,
    CLASS_COUNT_SCORE,
    CLASS_COUNT_LOSS,
    FIELD_MISMATCH,
    H100_MILLISECONDS,
    H100_MEBIBYTES,
    H100_EVALUATOR,
    H100_EXECUTION,
    H100_BOTH,
    H100_MEMORY,
    TASK_MEAN,
    TASK_DEVIATION,
)
NUMBERS: tuple[Printed, ...] = tuple(printed for column in COLUMNS for printed in column.numbers)


@dataclass(frozen=True)
class Setup:
    """Numbers of a table or caption that say what was run and are no results.

    Attributes:
        label: of the table or figure.
        what: they are.
        texts: as printed, separated by spaces; powers of ten as in Python.
    """

    label: str
    what: str
    texts: str

    @property
    def count(self) -> int:
        return len(self.texts.split())


_FACTORS = "10 50 100 10 50 100"
SETUP = (
    Setup("tab:task-summary", "imbalance factors", _FACTORS),
    Setup("tab:task-complete", "imbalance factors", _FACTORS),
    Setup("tab:backward-counterfactual", "views", "2 3"),
    Setup("tab:backward-counterfactual", "seed, in the caption", "3407"),
    Setup("tab:parity-counterfactual", "orders and dimensions", "63 128 64 130 255 512 256 514"),
    Setup("tab:parity-counterfactual", "x, the start in units of nu, and the digits of the arithmetic, in the caption", "1e9 2 100"),
    Setup("tab:dimension-main", "dimensions", "64 128 256 512 1024 2048 4096"),
    Setup(
        "tab:dimension-main",
        "points, their range, digits of the reference and the power of the certificate, in the caption",
        "61 1e-3 1e3 60 60 -3",
    ),
    Setup("tab:endpoint-scaling", "dimensions", "64 128 256 512 1024 2048 4096"),
    Setup("tab:endpoint-scaling", "length of a difference, and points, in the caption", "1 61"),
    Setup("fig:proco-conditions", "base of the logarithm, display floor, dimension and depth of the captured state", "10 1e-16 512 2"),
    Setup("fig:dimension-error", "power of the certificate", "-3"),
    Setup("fig:proco-state-distribution", "start in units of nu, diagnostic scale and display floor", "2 1e-6 1e-16"),
    Setup("fig:class-count-control", "configurations and ratios of the priors", "15 1 100 1000"),
    Setup("fig:patt-measured-field", "points per side, magnification, arrows, points, and a constant of 1 - cos", "25 25 400 64 625 1"),
    Setup("fig:mechanism-controls", "constructed states, and the loss log 2 that follows from the construction", "29 2"),
    Setup("fig:regime-scaling", "conditions, the constants of the asymptote, display floor and queries", "130 3 2 1e-16 256"),
)

"""Every number of the paper that the tables and figures stand beside, as printed, with the LaTeX label of where it is printed."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Printed:
    """One printed number: its text, which says how many digits it has, and the label of its place."""

    text: str
    label: str

    def __float__(self) -> float:
        return float(self.text)

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
    """A column of a printed table."""

    label: str
    texts: Mapping[Key, str]

    def __getitem__(self, key: Key) -> Printed:
        return Printed(self.texts[key], self.label)

    def __iter__(self) -> Iterator[Key]:
        return iter(self.texts)


DIMENSIONS = (64, 128, 256, 512, 1024, 2048, 4096)


def _by_dimension(label: str, *texts: str) -> PrintedColumn[int]:
    return PrintedColumn(label, dict(zip(DIMENSIONS, texts, strict=True)))


# Ratio fidelity: largest absolute errors over 61 concentrations. CUSF [Plesner_2024] ran in CPU float64; it is not a dependency here.
_RATIO = "tab:dimension-main"
RATIO_CUSF = _by_dimension(_RATIO, "3.37e-12", "2.38e-11", "2.29e-11", "1.85e-11", "2.45e-11", "8.87e-11", "5.76e-10")
RATIO_ARFR = _by_dimension(_RATIO, "2.74e-06", "3.29e-07", "4.03e-08", "4.99e-09", "6.21e-10", "7.74e-11", "9.66e-12")
RATIO_CERTIFICATE = _by_dimension(_RATIO, "3.36e-05", "4.00e-06", "4.88e-07", "6.03e-08", "7.49e-09", "9.34e-10", "1.17e-10")

# Unit-length potential differences, over the same concentrations. Log-Miller and CUSF ran in float64, AR/FR in 60 digits.
_DIFFERENCE = "tab:endpoint-scaling"
DIFFERENCE_LOG_MILLER = _by_dimension(_DIFFERENCE, "3.36e-04", "8.29e-05", "2.06e-05", "5.13e-06", "1.28e-06", "2.11e-07", "7.25e-09")
DIFFERENCE_CUSF = _by_dimension(_DIFFERENCE, "1.89e-12", "8.47e-12", "2.31e-11", "9.72e-12", "3.21e-11", "9.67e-11", "1.73e-10")
DIFFERENCE_ARFR = _by_dimension(_DIFFERENCE, "2.76e-06", "3.30e-07", "4.04e-08", "5.00e-09", "6.21e-10", "7.74e-11", "9.67e-12")

# Parity: by Bessel order, at x = 1e9 and start 2 nu.
_PARITY = "tab:parity-counterfactual"
PARITY_RAW = PrintedColumn(_PARITY, {63: "1.645e+05", 64: "6.208e-06", 255: "1.020e+04", 256: "9.856e-05"})
PARITY_SIGN = {63: "+", 64: "-", 255: "+", 256: "-"}
PARITY_PHASE = {63: "linear", 64: "inverse", 255: "linear", 256: "inverse"}
PARITY_SCALED = PrintedColumn(_PARITY, {63: "1.645e-04", 64: "6.208e+03", 255: "1.020e-05", 256: "9.856e+04"})
PARITY_LIMIT = PrintedColumn(_PARITY, {63: "1.645e-04", 64: "6.208e+03", 255: "1.020e-05", 256: "9.856e+04"})
PARITY_ERROR = PrintedColumn(_PARITY, {63: "1.2e-11", 64: "1.3e-11", 255: "3.2e-09", 256: "3.3e-09"})

FITTED_SLOPE = Printed("-3.02", "fig:dimension-error")

# The two-class construction, dimension 128, by concentration.
_TWO_CLASSES = "app:curl-proof"
TWO_CLASS_RAW_RATIO = PrintedColumn(_TWO_CLASSES, {4032: "1.08748", 8064: "1.56080"})
TWO_CLASS_DERIVATIVE = PrintedColumn(_TWO_CLASSES, {4032: "0.984317", 8064: "0.992073"})
TWO_CLASS_ANTISYMMETRY = Printed("-1.93915e-03", _TWO_CLASSES)

# The captured PATT state: dimension 512, start 2 nu, and its range of r / nu, as printed.
CAPTURED_DIMENSION = 512
CAPTURED_RANGE = (392.35, 393.11)
CAPTURED_DEFECT = Printed("2.56e-03", "tab:captured-audit")
CAPTURED_RATIO_ERROR = Printed("2.55e-03", "tab:captured-audit")
CAPTURED_FINITE_SCORE = Printed("3.32e-03", "tab:captured-audit")
CAPTURED_ARFR_SCORE = Printed("1.17e-09", "tab:captured-audit")
COUNTERFACTUAL_DEFECT = Printed("2.55e-03", "tab:backward-counterfactual")

# Only the backward rule changed, by view; scores and losses are printed as equal.
_COUNTERFACTUAL = "tab:backward-counterfactual"
COUNTERFACTUAL_VIEWS = (2, 3)
COUNTERFACTUAL_DEFECTS = PrintedColumn(_COUNTERFACTUAL, {2: "2.55e-03", 3: "2.55e-03"})
COUNTERFACTUAL_RELATIVE = PrintedColumn(_COUNTERFACTUAL, {2: "2.56e-03", 3: "2.56e-03"})
COUNTERFACTUAL_LARGEST = PrintedColumn(_COUNTERFACTUAL, {2: "1.40e-05", 3: "1.35e-05"})

# States that training visited: the slice of a feature, the forks, and the first batch of ProCo.
FIELD_MISMATCH = Printed("0.2561", "fig:patt-measured-field")  # median, in percent
FIELD_SIZE = 25  # points per side
FIELD_MAGNIFIED = 400
FORK_PROBES = Printed("43", "app:intervention-protocol")
FORK_UPDATES = Printed("1000", "app:intervention-protocol")
FORK_GAP_ORDER = Printed("1e-3", "app:intervention-protocol")  # "on the order of"
SCALED_QUERIES = 256  # of fig:regime-scaling (b)
CAPTURED_VIEWS = 6  # of tab:captured-audit
PROCO_SCALE = 1e-6  # of fig:proco-state-distribution: what is counted is above it
PROCO_FIRST_BATCH = Printed("23", "app:proco-extended")  # percent of the queries above that

# Class count and priors: the bounds that all 15 configurations satisfy.
CLASS_COUNT_SCORE = Printed("4.00e-05", "fig:class-count-control")
CLASS_COUNT_LOSS = Printed("8.00e-05", "fig:class-count-control")

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
TASK_MEAN = PrintedColumn(_TASK, {key: cell[0] for key, cell in _TASK_CELLS.items()})
TASK_DEVIATION = PrintedColumn(_TASK, {key: cell[1] for key, cell in _TASK_CELLS.items() if len(cell) == 2})

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
)
H100_EVALUATOR = Printed("54.4", "app:h100-local")  # times faster: AR/FR than the original recurrence
H100_EXECUTION = Printed("23.8", "app:h100-local")  # structure-aware AR/FR than AR/FR
H100_BOTH = Printed("1293", "app:h100-local")  # structure-aware AR/FR than the original recurrence
H100_MEMORY = Printed("15.8", "app:h100-local")  # times less memory, of the same two

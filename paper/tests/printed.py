"""Digits of the paper, typed in a second time: what `pairgrad_paper.tables.published` has must be these."""

DIMENSIONS = (64, 128, 256, 512, 1024, 2048, 4096)
# Tables dimension-main and endpoint-scaling
RATIO_ARFR = ["2.74e-06", "3.29e-07", "4.03e-08", "4.99e-09", "6.21e-10", "7.74e-11", "9.66e-12"]
RATIO_CUSF = ["3.37e-12", "2.38e-11", "2.29e-11", "1.85e-11", "2.45e-11", "8.87e-11", "5.76e-10"]
CERTIFICATE = ["3.36e-05", "4.00e-06", "4.88e-07", "6.03e-08", "7.49e-09", "9.34e-10", "1.17e-10"]
DIFFERENCE_ARFR = ["2.76e-06", "3.30e-07", "4.04e-08", "5.00e-09", "6.21e-10", "7.74e-11", "9.67e-12"]
DIFFERENCE_CUSF = ["1.89e-12", "8.47e-12", "2.31e-11", "9.72e-12", "3.21e-11", "9.67e-11", "1.73e-10"]
LOG_MILLER = ["3.36e-04", "8.29e-05", "2.06e-05", "5.13e-06", "1.28e-06", "2.11e-07", "7.25e-09"]

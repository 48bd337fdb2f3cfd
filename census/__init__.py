"""The census: custom backwards of public packages, audited where they are installed, and what came of it.

`package` is what a driver declares (one file of `drivers` for each package), and `environments` makes a virtual environment for each group of packages. `run`
starts workers there, under limits of time and memory, and keeps a record for each package in records/. In the environment, `worker` audits the cases of a
driver, `discovery` lists the functions that a package defines, `differences` checks gradients without the auditor, and `their_tests` runs a package's own
tests under the auditor. `page` makes docs/census.md of the records. evidence/ has a script for each accusation, which imports nothing of pairgrad, and
reports/ has drafts for the maintainers.

    make census                                   # everything: hours, resumed where it stopped
    make census ARGS="entmax gpytorch"            # these packages
    make census ARGS="--page"                     # the page alone, from the records
"""

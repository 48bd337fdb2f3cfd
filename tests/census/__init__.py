"""Tests of the census: how audits of packages are run, and what its page and its findings promise."""

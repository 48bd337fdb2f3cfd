"""The folder with real data, for the tests that want it."""

import os
from pathlib import Path

import pytest


@pytest.fixture
def real_data():
    place = os.environ.get("PAIRGRAD_DATA")
    if not place:
        pytest.skip("set PAIRGRAD_DATA to a folder with the original files to run this")
    return Path(place)

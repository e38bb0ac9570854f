"""The driver that stands for the wrapper."""

from __future__ import annotations

from pathlib import Path

import pytest

from .stand_in import DRIVER, PYTHON


@pytest.fixture(name="driver")
def _driver(tmp_path: Path) -> list[str]:
    path = tmp_path / "stand-in-wrapper.py"
    path.write_text(DRIVER)
    return [*PYTHON, str(path)]

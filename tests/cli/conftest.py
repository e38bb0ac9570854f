"""The desk every story of the command line begins at."""

from __future__ import annotations

from pathlib import Path

import pytest

from .kit import Desk


@pytest.fixture(name="desk")
def _desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "project")

"""Fixtures of the oracle: templates of rooms, built once a session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from .stage import Stage
from .variants import Rooms


@pytest.fixture(scope="session")
def rooms(tmp_path_factory: pytest.TempPathFactory, sealed_variables: Callable[[Path], dict[str, str]]) -> Rooms:
    """Return the templates of this session."""
    base = tmp_path_factory.mktemp("templates")
    return Rooms(base, sealed_variables(base / "sealed"))


@pytest.fixture
def staged(rooms: Rooms, tmp_path: Path) -> Callable[[str], Stage]:
    """Return a function that opens a stage on a fresh copy of a variant."""
    return lambda variant: Stage(rooms, tmp_path, variant)

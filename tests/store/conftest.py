"""A store of one project, in a folder of the test's own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ckpt_run.capture.store import Store, open_store


@pytest.fixture
def folder(tmp_path: Path) -> bytes:
    return os.fsencode(tmp_path / "ckpt" / "projects" / "key")


@pytest.fixture
def store(folder: bytes) -> Iterator[Store]:
    with open_store(folder, create=True) as opened:
        yield opened

"""A store that could take no record afterwards stops the command before it starts."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

CKPT_RUN = Path(sys.executable).with_name("ckpt-run")


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """A project with a store that holds one run."""
    folder = tmp_path / "project"
    folder.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    assert wrapped(folder, "echo 1 > a").returncode == 0
    return folder


def wrapped(top: Path, script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([CKPT_RUN, "--", "sh", "-c", script], cwd=top, capture_output=True, text=True, check=False)


def store_of() -> Path:
    (found,) = Path(os.environ["CKPT_HOME"]).glob("projects/*/store.db")
    return found


def refused(top: Path, word: str) -> None:
    ended = wrapped(top, "echo 2 > a")
    assert ended.returncode == 125
    assert word in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert (top / "a").read_text() == "1\n"


def test_a_newer_store(top: Path) -> None:
    db = sqlite3.connect(store_of())
    db.execute("PRAGMA user_version=99")
    db.close()
    refused(top, "newer")


@pytest.mark.parametrize("data", [b"", b"not a store at all" * 20])
def test_a_damaged_store(top: Path, data: bytes) -> None:
    store_of().write_bytes(data)
    refused(top, "damaged")

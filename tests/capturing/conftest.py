"""A project of the test's own, lived in: clean, dirty, staged, deleted, untracked, ignored, odd."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .kit import BOTH, BOTH_NAMES, Repo


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo(tmp_path / "project")


@pytest.fixture
def lived_in(repo: Repo) -> Repo:
    fill(repo)
    return repo


@pytest.fixture(params=BOTH, ids=BOTH_NAMES)
def limits(request: pytest.FixtureRequest) -> object:
    """With the survey of every file, and with what Git says alone."""
    return request.param


def fill(repo: Repo) -> None:
    repo.write(".gitignore", "build/\n*.log\n.env\n")
    for name in ("clean.txt", "dirty.txt", "staged.txt", "deleted.txt", "src/a.py", "src/deep/b.py", "tool.sh"):
        repo.write(name, f"{name} as committed\nline 2\n")
    os.chmod(repo.at("tool.sh"), 0o755)
    os.symlink("clean.txt", repo.at("link"))
    repo.commit()
    repo.write("dirty.txt", "my work\n")
    repo.write("staged.txt", "staged work\n")
    repo.git("add", "staged.txt")
    os.unlink(repo.at("deleted.txt"))
    repo.write("new.txt", "untracked\n", 0o600)
    repo.write("new/inner.txt", "untracked too\n")
    repo.write(b'odd/tab\tnewline\n\xff".txt', "odd\n")
    repo.write("odd/-dash *?[x]", "odd\n")
    repo.write("build/out.bin", "made\n")
    repo.write("app.log", "log\n")
    repo.write(".env", "SECRET=1\n", 0o600)
    repo.age()

"""What is remembered of a repository is what Git would say now, or is not used."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from ckpt_run.capture.found import look, remember, remembered
from ckpt_run.capture.git import Discovery, Repository


def git(folder: Path, *words: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """A project with one commit, and a folder in it."""
    folder = tmp_path.resolve() / "project"
    (folder / "inner").mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    (folder / "inner" / "a").write_text("a\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "one")
    return folder


@pytest.fixture
def cache(tmp_path: Path) -> bytes:
    """Where it is remembered."""
    (tmp_path / "home").mkdir()
    return os.fsencode(tmp_path / "home" / "found")


def asked(folder: Path) -> Repository:
    return Discovery(os.fsencode(folder), os.environb).finish()


def known(folder: Path, cache: bytes) -> Repository | None:
    return remembered(os.fsencode(folder), os.environb, cache)


def keep(folder: Path, cache: bytes) -> None:
    time.sleep(0.03)  # what was just written is not remembered
    repository = asked(folder)
    seen = look(os.fsencode(folder), os.environb, repository)
    if seen is not None:
        remember(os.fsencode(folder), os.environb, cache, repository, seen)


def facts(repository: Repository | None) -> object:
    if repository is None:
        return None
    where = (repository.top, repository.git_dir, repository.common_dir)
    return (*where, repository.head, repository.settings)


def test_it_says_what_git_says(top: Path, cache: bytes) -> None:
    for folder in (top, top / "inner"):
        assert known(folder, cache) is None
        keep(folder, cache)
        assert facts(known(folder, cache)) == facts(asked(folder)) is not None


def test_head_is_followed(top: Path, cache: bytes) -> None:
    keep(top, cache)
    (top / "b").write_text("b\n")
    git(top, "add", "b")
    for words in (
        ("commit", "-qm", "two"),
        ("pack-refs", "--all"),
        ("switch", "-q", "-c", "deep/branch"),
        ("commit", "-q", "--allow-empty", "-m", "three"),
        ("checkout", "-q", "--detach", "HEAD~1"),
        ("switch", "-q", "--orphan", "empty"),
    ):
        git(top, *words)
        assert facts(known(top, cache)) == facts(asked(top)) is not None, words


@pytest.mark.parametrize("change", ["own", "person", "system-like", "worktree", "include"])
def test_settings_that_changed_are_asked_for_again(top: Path, cache: bytes, change: str) -> None:
    keep(top, cache)
    assert known(top, cache) is not None
    if change == "own":
        git(top, "config", "core.autocrlf", "true")
    elif change == "person":
        git(top, "config", "--global", "core.autocrlf", "true")
    elif change == "system-like":
        place = Path(os.environ["XDG_CONFIG_HOME"]) / "git"
        place.mkdir(parents=True)
        (place / "config").write_text("[core]\n\tautocrlf = true\n")
    elif change == "worktree":
        git(top, "config", "extensions.worktreeConfig", "true")
        git(top, "config", "--worktree", "core.autocrlf", "true")
    else:
        git(top, "config", "include.path", "more")
    assert known(top, cache) is None
    keep(top, cache)
    assert facts(known(top, cache)) == (None if change == "include" else facts(asked(top)))


def test_a_repository_that_comes_between_is_found(top: Path, cache: bytes) -> None:
    inner = top / "inner"
    keep(inner, cache)
    git(inner, "init", "-q")
    assert known(inner, cache) is None
    assert asked(inner).top == os.fsencode(inner)


def test_a_repository_made_anew_or_gone_is_not_taken_for_the_old_one(top: Path, cache: bytes) -> None:
    keep(top, cache)
    (top / ".git").rename(top / "away")
    assert known(top, cache) is None
    git(top, "init", "-q", "-b", "main")
    assert known(top, cache) is None


def test_another_environment_is_another_question(top: Path, cache: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(top, cache)
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.autocrlf")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "true")
    assert known(top, cache) is None


def test_a_linked_worktree_and_a_torn_memory(top: Path, cache: bytes, tmp_path: Path) -> None:
    linked = tmp_path.resolve() / "linked"
    git(top, "worktree", "add", "-q", str(linked))
    keep(linked, cache)
    assert facts(known(linked, cache)) == facts(asked(linked)) is not None
    for file in Path(os.fsdecode(cache)).iterdir():
        file.write_bytes(file.read_bytes()[:-1])
    assert known(linked, cache) is None


def test_settings_that_change_while_we_look_are_not_remembered(top: Path) -> None:
    time.sleep(0.03)
    repository = asked(top)
    assert look(os.fsencode(top), os.environb, repository) is not None
    git(top, "config", "core.autocrlf", "true")
    assert look(os.fsencode(top), os.environb, repository) is None

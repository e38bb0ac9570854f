"""Neither capture nor Undo writes in `.git`, and none of the user's programs that Git would start is started.

Every file's bytes and mtime under each `.git` are compared, folders' mtimes too: a lock that came and went shows.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .stage import Stage
from .tree import git_state, snapshot
from .variants import VARIANTS

# Changes files in every state, and their number, without asking Git for anything.
COMMAND = (
    "rm README.md untracked.txt; echo x >> src/dirty.py; echo y > made.txt; "
    "chmod 755 src/util.py; touch docs/guide.md"
)
LOOKS = (
    ("log",),
    ("log", "--json"),
    ("show",),
    ("show", "--json"),
    ("diff",),
    ("status",),
    ("undo", "--dry-run"),
    ("undo", "--dry-run", "--json"),
)


def marks(stage: Stage) -> list[str]:
    """Name the programs of the configuration that were started."""
    return sorted(mark.name for mark in (stage.room / "marks").iterdir())


@pytest.mark.parametrize("variant", VARIANTS)
def test_capture_and_undo_leave_git_alone(variant: str, staged: Callable[[str], Stage]) -> None:
    stage = staged(variant)
    before = git_state(*stage.git_folders)
    assert stage.wrapped("true").code == 0
    assert git_state(*stage.git_folders) == before, "capture of a command that does nothing"
    stage.wrapped(COMMAND)
    assert git_state(*stage.git_folders) == before, "capture of a command that changes files"
    assert stage.ckpt("undo", "--yes").code in (0, 4)
    assert git_state(*stage.git_folders) == before, "undo"
    assert stage.ckpt("redo", "--yes").code in (0, 4)
    assert git_state(*stage.git_folders) == before, "redo"
    assert marks(stage) == []


@pytest.mark.parametrize("variant", ["plain", "hostile", "worktree", "text-auto"])
def test_looking_leaves_git_and_the_files_alone(variant: str, staged: Callable[[str], Stage]) -> None:
    stage = staged(variant)
    stage.wrapped(COMMAND)
    before, tree = git_state(*stage.git_folders), snapshot(stage.top)
    for words in LOOKS:
        looked = stage.ckpt(*words)
        assert looked.code in (0, 4), (words, looked)
        assert git_state(*stage.git_folders) == before, words
        assert snapshot(stage.top) == tree, words
    assert marks(stage) == []


def test_somebody_s_lock_on_the_index_stays_and_blocks_nothing(staged: Callable[[str], Stage]) -> None:
    stage = staged("plain")
    (stage.top / ".git/index.lock").write_bytes(b"held by another Git")
    before, tree = git_state(stage.top), snapshot(stage.top)
    stage.wrapped(COMMAND)
    assert stage.ckpt("undo", "--yes").code == 0
    assert git_state(stage.top) == before
    assert snapshot(stage.top).entries == tree.entries


def test_variables_of_a_hook_are_kept_from_our_git_and_given_to_the_command(staged: Callable[[str], Stage]) -> None:
    stage = staged("plain")
    other = stage.room / "feed/other-index"
    other.write_bytes((stage.top / ".git/index").read_bytes())
    held = other.stat().st_mtime_ns
    variables = {"GIT_INDEX_FILE": str(other), "GIT_DIR": str(stage.top / ".git"), "GIT_PREFIX": "src/"}
    before, tree = git_state(stage.top), snapshot(stage.top)
    words = [str(stage.tools / "ckpt-run"), "--", "sh", "-c", f"{COMMAND}; echo $GIT_INDEX_FILE $GIT_DIR $GIT_PREFIX"]
    ended = stage.run(words, variables)
    assert ended.out.decode().split() == list(variables.values())
    undone = stage.run([str(stage.tools / "ckpt"), "undo", "--yes"], variables)
    assert undone.code == 0, undone
    assert git_state(stage.top) == before
    assert other.stat().st_mtime_ns == held
    assert snapshot(stage.top).entries == tree.entries

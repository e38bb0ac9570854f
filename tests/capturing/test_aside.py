"""Folders that are not captured: what happens to one as a whole is told, and a program's own leavings are not."""

from __future__ import annotations

import os

import pytest

from ckpt_run.capture.copies import Limits

from .kit import BLIND, SURVEYED, Repo, capture, judged

WHOLE = {
    "removed": "rm -rf {0}",
    "emptied": "rm -rf {0}/*",
    "replaced": "rm -rf {0}; mkdir {0}; echo x > {0}/other",
    "moved": "mv {0} ../elsewhere",
    "a file now": "rm -rf {0}; echo x > {0}",
    "a link now": "mv {0} ../elsewhere; ln -s ../elsewhere {0}",
}


def fill_with(repo: Repo, folder: str, files: int) -> None:
    for number in range(files):
        repo.write(f"{folder}/{number}", "made\n")
    repo.age()


@pytest.mark.parametrize("files", [3, 1001], ids=["small", "large"])
@pytest.mark.parametrize("script", WHOLE.values(), ids=[name.replace(" ", "-") for name in WHOLE])
def test_an_ignored_folder_that_lost_what_was_in_it_is_a_gap(
    lived_in: Repo, limits: Limits, script: str, files: int
) -> None:
    fill_with(lived_in, "build", files)
    found = judged(lived_in, script.format("build"), limits)
    assert found.gaps == {b"build": "ignored_folder"}


def test_an_ignored_folder_in_which_a_program_works_is_no_gap(lived_in: Repo, limits: Limits) -> None:
    """A new file in a large one is not looked for; a made again one in a small one is not worth a word."""
    fill_with(lived_in, "build", 1001)
    assert not capture(lived_in, "echo x > build/new; echo x >> build/1", limits).changes
    fill_with(lived_in, "src/build", 2)
    assert not capture(lived_in, "echo x > src/build/a.pyc", limits).changes


@pytest.mark.parametrize("script", [*WHOLE.values(), "echo x >> {0}/in.txt"], ids=[*WHOLE, "changed"])
def test_a_broken_repository_that_changed_is_not_silent(lived_in: Repo, limits: Limits, script: str) -> None:
    """What stands where the index names a submodule whose repository is gone: Git itself looks at none of it."""
    inner = Repo(lived_in.path / "sub")
    inner.write("in.txt", "mine\n")
    inner.commit()
    lived_in.git("add", "sub")
    os.rename(inner.at(".git"), lived_in.path.parent / "away.git")
    lived_in.age()
    judged(lived_in, script.format("sub"), limits)


def test_folders_that_nobody_touches_are_quiet(lived_in: Repo) -> None:
    for limits in (SURVEYED, BLIND):
        assert set(capture(lived_in, "echo x >> clean.txt", limits).changes) == {b"clean.txt"}

"""Git dies in the middle of an answer, and ckpt in the middle of making its folder: nothing false is believed."""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path

import pytest

from ckpt_run.capture import project
from ckpt_run.capture.before import Before
from ckpt_run.capture.changes import After, between
from ckpt_run.capture.git import parse_batch
from ckpt_run.capture.model import Entry, Kind
from ckpt_run.capture.reasons import Reason

from .disk import Died, FaultyDisk, at
from .real import Project

WHOLE = b"a" * 40 + b" blob 4\nold\n\n" + b"b" * 40 + b" blob 3\nnew\n" + b"c" * 40 + b" missing\n"


def test_an_answer_of_git_that_was_cut_off_anywhere_is_never_taken_for_a_blob() -> None:
    whole = list(parse_batch(WHOLE))
    assert [data for _, data in whole] == [b"old\n", b"new", None]
    for length in range(len(WHOLE)):
        found = list(parse_batch(WHOLE[:length]))
        assert found == whole[: len(found)], length


@pytest.mark.parametrize("limit", [20, 60, 70])
def test_a_run_is_undone_exactly_though_git_died_in_the_middle_of_telling_blobs(tmp_path: Path, limit: int) -> None:
    here = Project(tmp_path / "project")
    (here.top / "link").symlink_to("a-target")
    here.type("git", "add", "-A")
    here.type("git", "-c", "user.name=x", "-c", "user.email=x@x", "commit", "-qm", "second")
    before = here.snapshot()
    dying = tmp_path / "bin" / "git"
    dying.parent.mkdir()
    mark = tmp_path / "died"
    dying.write_text(
        f'#!/bin/sh\ncase "$*" in *cat-file*) [ -e {mark} ] || {{ : > {mark};'
        f' {shutil.which("git")} "$@" | head -c {limit}; kill -9 $$; }};; esac\nexec {shutil.which("git")} "$@"\n'
    )
    dying.chmod(0o755)
    here.environment["PATH"] = f"{dying.parent}{os.pathsep}{os.environ['PATH']}"
    assert here.run("echo new > a; echo new > b; ln -sf elsewhere link").returncode == 0
    assert mark.exists(), "Git was asked, and died"
    undo = here.ckpt("undo", "--yes")
    assert undo.returncode == 0, undo.stderr
    assert here.snapshot() == before


def test_bits_that_nobody_knows_are_not_made_up() -> None:
    def before() -> Before:
        return Before(Entry(Kind.FILE, mode=0o755, size=1, digest=b"1"), executable=True)

    (sealed,) = between({b"tool": before()}, {b"tool": After(Entry(Kind.FILE, mode=0o600, size=1, digest=b"1"))})
    assert sealed.reason == Reason.PERMISSIONS_UNKNOWN
    (usual,) = between({b"tool": before()}, {b"tool": After(Entry(Kind.FILE, mode=0o644, size=1, digest=b"1"))})
    assert (usual.reason, usual.before.mode) == (None, 0o755)
    (kept,) = between({b"tool": before()}, {b"tool": After(Entry(Kind.FILE, mode=0o700, size=1, digest=b"2"))})
    assert (kept.reason, kept.before.mode) == (None, 0o700)


def test_a_projects_folder_whose_making_was_cut_off_is_made_whole_by_the_next_run(tmp_path: Path) -> None:
    os.mkdir(tmp_path / "top")
    environment = {b"CKPT_HOME": os.fsencode(tmp_path / "store")}
    top = os.fsencode(tmp_path / "top")
    position = 0
    while True:
        position += 1
        made = project.locate(top, environment)
        with FaultyDisk(at(position, "die")) as disk, suppress(Died):
            project.prepare(made)
        if not disk.is_dead:
            break
        project.prepare(project.locate(top, environment))
        assert [one.top for one in project.known_projects(environment)] == [top]
        strays = [name for name in os.listdir(made.folder) if b".ckpt-" in name]
        assert strays == []
        assert stat.S_IMODE(os.stat(made.runs).st_mode) == 0o700
        shutil.rmtree(tmp_path / "store")
    assert position > 4

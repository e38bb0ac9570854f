"""What cannot be done is one clear sentence with the right exit code, and nothing is changed."""

from __future__ import annotations

import os
import resource
import shutil
import sqlite3
import subprocess
import sys
from io import FileIO
from pathlib import Path

import pytest

from ckpt_run.capture.model import Run as RecordedRun
from ckpt_run.capture.model import State
from ckpt_run.capture.store import open_store

from .kit import CKPT, CKPT_RUN, Desk, Ended, one_sentence, run

READING = [["show"], ["diff"], ["undo", "--yes"], ["redo", "--yes"]]


@pytest.mark.parametrize("words", [*READING, ["undo"], ["purge", "a.txt"]], ids=" ".join)
def test_no_points_yet(desk: Desk, words: list[str]) -> None:
    one_sentence(desk.untouched_by(lambda: desk.ckpt(*words)), 1, "Nothing is recorded in this project")
    assert not (Path(os.environ["CKPT_HOME"]) / "projects").exists()


@pytest.mark.parametrize("words", [["status"], ["verify"], ["prune"], ["recover"]], ids=" ".join)
def test_a_store_that_is_not_there_yet_is_no_fault(desk: Desk, words: list[str]) -> None:
    ended = desk.untouched_by(lambda: desk.ckpt(*words))
    assert (ended.code, ended.err) == (0, "")
    assert "Nothing" in ended.out


@pytest.mark.parametrize(
    "words", [["show"], ["diff"], ["undo", "--yes"], ["rewind", "--yes"], ["purge"]], ids=" ".join
)
def test_an_id_that_nobody_knows(desk: Desk, words: list[str]) -> None:
    desk.wrapped("rm b.txt")
    for unknown in ("ffffffffff", "f", "\x1b[2J", "no such\nid"):
        ended = desk.untouched_by(lambda: desk.ckpt(*words, unknown))  # noqa: B023  # called at once
        if words == ["purge"]:
            assert "0 points" in ended.out  # the word is taken as a path, of which nothing is kept
            assert ended.code == 0
            continue
        one_sentence(ended, 1, "No point or run is called")
        assert "\x1b" not in ended.err


def test_the_beginning_of_two_ids(desk: Desk) -> None:
    desk.wrapped("rm b.txt")
    with open_store(os.fsencode(desk.store), create=False) as store:
        for name in ("abcd000001", "abcd000002"):
            store.record_run(RecordedRun(name, [b"x"], b"/", 1, ended_ns=2, state=State.ENDED, exit_code=0), {})
    ended = desk.untouched_by(lambda: desk.ckpt("undo", "--yes", "abcd"))
    one_sentence(ended, 1, "Several points or runs begin with abcd: abcd000001, abcd000002")
    told = desk.ckpt("undo", "--yes", "--json", "abcd")
    assert told.code == 1
    assert told.json["error"] == "ambiguous_id"
    assert told.json["candidates"] == ["abcd000001", "abcd000002"]


def test_the_id_of_another_project_names_it(desk: Desk, tmp_path: Path) -> None:
    theirs = desk.wrapped("rm b.txt")
    other = Desk(tmp_path / "other")
    other.ckpt("show")
    assert run([CKPT_RUN, "--", "rm", "b.txt"], other.top).code == 0
    for words in (["undo", "--yes", theirs], ["show", theirs], ["rewind", "--yes", theirs], ["diff", theirs]):
        ended = desk.untouched_by(lambda: other.untouched_by(lambda: other.ckpt(*words)))  # noqa: B023  # at once
        one_sentence(ended, 1, theirs, "belongs to another project", str(desk.top))


def test_a_bare_repository(desk: Desk, tmp_path: Path) -> None:
    desk.git("clone", "-q", "--bare", ".", str(tmp_path / "bare"))
    one_sentence(run([CKPT, "undo", "--yes"], tmp_path / "bare"), 1, "has no worktree here")


def test_a_folder_that_is_not_there(desk: Desk) -> None:
    one_sentence(desk.ckpt("log", "--project", "nowhere"), 1, "No Git project was found", "nowhere")


def test_a_corrupt_repository_is_named_where_nothing_is_known_of_it(desk: Desk) -> None:
    (desk.top / ".git/HEAD").write_text("no reference\n")
    one_sentence(desk.untouched_by(lambda: desk.ckpt("log")), 1, "Git cannot read the repository", ".git")
    refused = desk.untouched_by(lambda: run([CKPT_RUN, "--", "rm", "b.txt"], desk.top))
    one_sentence(refused, 125, "Git cannot read the repository", "was not started")


def test_what_was_recorded_is_undone_without_a_repository(desk: Desk) -> None:
    desk.wrapped("rm -rf .git b.txt")
    assert desk.ckpt("undo", "--yes", "--only", "b.txt").code == 0
    assert (desk.top / "b.txt").exists()


def test_a_corrupt_index_stops_a_run_but_no_undo(desk: Desk) -> None:
    desk.wrapped("rm b.txt")
    (desk.top / ".git/index").write_bytes(b"DIRC torn")
    refused = desk.untouched_by(lambda: run([CKPT_RUN, "--", "rm", "a.txt"], desk.top))
    one_sentence(refused, 125, "index", "was not started")
    assert desk.ckpt("undo", "--yes").code == 0
    assert (desk.top / "b.txt").exists()


def everywhere(desk: Desk, env: dict[str, str]) -> list[Ended]:
    """Verbs that need the store."""
    return [desk.untouched_by(lambda: desk.ckpt(*words, env=env)) for words in (["log"], *READING, ["verify"])]  # noqa: B023


def test_a_store_inside_the_project(desk: Desk) -> None:
    env = {"CKPT_HOME": str(desk.top / "d/store")}
    for ended in everywhere(desk, env):
        one_sentence(ended, 1, "lies inside the project", "d/store")
    refused = desk.untouched_by(lambda: run([CKPT_RUN, "--", "rm", "b.txt"], desk.top, env))
    one_sentence(refused, 125, "lies inside the project", "was not started")
    doctor = desk.untouched_by(lambda: desk.ckpt("doctor", env=env))
    assert doctor.code == 1
    assert "lies inside the project" in doctor.out


def test_a_store_of_a_newer_format(desk: Desk) -> None:
    desk.wrapped("rm b.txt")
    database = sqlite3.connect(desk.store / "store.db")
    database.execute("PRAGMA user_version = 99")
    database.close()
    for ended in everywhere(desk, {}):
        one_sentence(ended, 1, "was written by a newer ckpt-run (format 99, this one knows")


def test_a_damaged_store_is_not_used_and_can_be_begun_anew(desk: Desk) -> None:
    desk.wrapped("rm b.txt")
    (desk.store / "store.db").write_bytes(b"not a database, and long enough to be read as the header of one" * 9)
    for ended in everywhere(desk, {}):
        one_sentence(ended, 1, "is damaged", "ckpt purge --all")
    assert desk.ckpt("purge", "--all", "--yes").code == 0
    desk.wrapped("rm a.txt")
    assert desk.ckpt("undo", "--yes").code == 0


def test_a_store_that_others_can_write(desk: Desk) -> None:
    desk.wrapped("rm b.txt")
    desk.store.chmod(0o777)
    for ended in everywhere(desk, {}):
        one_sentence(ended, 1, "is not yours alone")
    assert not (desk.top / "b.txt").exists()


def test_a_store_where_no_folder_can_be(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    env = {"CKPT_HOME": str(tmp_path / "file/store")}
    refused = desk.untouched_by(lambda: run([CKPT_RUN, "--", "rm", "b.txt"], desk.top, env))
    one_sentence(refused, 125, "cannot be written", "was not started")
    for ended in everywhere(desk, env):
        one_sentence(ended, 1, "cannot be written (Not a directory)")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_store_without_rights(desk: Desk) -> None:
    desk.wrapped("rm b.txt")
    for mode in (0o500, 0o000):
        desk.store.chmod(mode)
        try:
            one_sentence(desk.untouched_by(lambda: desk.ckpt("undo", "--yes")), 1, "cannot be written")
        finally:
            desk.store.chmod(0o700)


def fill(file: FileIO) -> None:
    """Write until there is no room."""
    while True:
        file.write(b"x" * 4096)


@pytest.mark.skipif(sys.platform != "linux", reason="a tmpfs is Linux's")
def test_a_store_without_room(desk: Desk, tmp_path: Path) -> None:
    home = tmp_path / "small"
    home.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=600k,mode=0700", "tmpfs", str(home)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("nothing can be mounted here")
    env = {"CKPT_HOME": str(home)}
    try:
        desk.write("a.txt", os.urandom(100_000).hex())
        assert run([CKPT_RUN, "--", "rm", "b.txt"], desk.top, env).code == 0
        desk.write("large.txt", os.urandom(300_000).hex())
        refused = desk.untouched_by(lambda: run([CKPT_RUN, "--", "rm", "large.txt"], desk.top, env))
        one_sentence(refused, 125, "no room left", "was not started")
        with (home / "ballast").open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
            fill(file)
        one_sentence(desk.untouched_by(lambda: desk.ckpt("undo", "--yes", env=env)), 1, "no room left")
        (home / "ballast").unlink()
        assert desk.ckpt("undo", "--yes", env=env).code == 0
        assert (desk.top / "b.txt").exists()
    finally:
        subprocess.run(["umount", str(home)], check=True)


def test_an_undo_that_may_write_no_file_changes_nothing(desk: Desk) -> None:
    (desk.top / "b.txt").write_text("x" * 200_000)
    desk.wrapped("rm b.txt; echo four >> a.txt")
    before = desk.ckpt("log", "--json").json

    def limited() -> Ended:
        done = subprocess.run(
            [CKPT, "undo", "--yes"],
            cwd=desk.top,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, 150_000)),
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    ended = desk.untouched_by(limited)
    assert ended.code == 1
    assert "Traceback" not in ended.err
    assert desk.ckpt("log", "--json").json == before
    assert desk.ckpt("undo", "--yes").code == 0


@pytest.mark.parametrize(
    "words", [["nonsense"], ["undo", "--nonsense"], ["rewind"], ["log", "-n", "many"], ["purge"]]
)
def test_words_that_are_no_command_line(desk: Desk, words: list[str]) -> None:
    ended = desk.untouched_by(lambda: desk.ckpt(*words))
    assert ended.code == 2
    assert "usage: ckpt" in ended.out + ended.err


def test_help_and_version_are_answered(desk: Desk) -> None:
    assert desk.ckpt("--version").out.startswith("ckpt-run ")
    overview = desk.ckpt("--help").out
    assert desk.ckpt().out == overview
    for verb in ("log", "show", "diff", "undo", "rewind", "redo", "recover", "status", "verify", "prune", "purge"):
        assert f"\n    {verb} " in overview
        assert desk.ckpt(verb, "--help").code == 0

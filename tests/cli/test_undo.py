"""`ckpt undo`, `rewind` and `redo` without a terminal: what they do, say, refuse and leave."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from .kit import CKPT, CKPT_RUN, Desk, hold_golden, one_sentence, pinned, run, snapshot

FOUR = "one\ntwo\nthree\nfour\n"
THREE = "one\ntwo\nthree\n"
MANY = "echo four >> a.txt; rm b.txt; mkdir new; echo x > new/file; chmod 600 d/c.txt"


def files(desk: Desk) -> dict[str, tuple[object, ...]]:
    """Modes and contents of the project without `.git`; times apart."""
    return {
        name: (seen[0], seen[2])
        for name, seen in snapshot(desk.top).items()
        if name != ".git" and not name.startswith(".git/")
    }


def test_what_a_command_did_is_put_back_exactly_and_told(desk: Desk, tmp_path: Path) -> None:
    desk.write("a.txt", "mine, uncommitted\n")
    before, git_before = files(desk), snapshot(desk.top / ".git")
    run_id = desk.wrapped(MANY)
    ended = desk.ckpt("undo", "--yes", "--json")
    assert ended.code == 0
    told = ended.json
    assert told["result"] == "restored"
    assert (told["restored"], told["removed"]) == (["a.txt", "b.txt", "d/c.txt"], ["new", "new/file"])
    assert (told["merged"], told["kept"], told["left"]) == ([], [], [])
    assert files(desk) == before
    assert snapshot(desk.top / ".git") == git_before
    desk.ckpt("redo", "--yes")
    hold_golden("undo", pinned(desk.ckpt("undo", "--yes").out, desk), tmp_path)
    assert (
        desk.ckpt("log", "--json").json["points"][-1] | {"id": run_id, "undone": True}
        == (desk.ckpt("log", "--json").json["points"][-1])
    )


def test_each_undo_goes_one_point_further_back_until_nothing_is_left(desk: Desk) -> None:
    desk.wrapped("echo four >> a.txt")
    desk.wrapped("echo five >> a.txt")
    assert desk.ckpt("undo", "--yes").code == 0
    assert desk.read("a.txt") == FOUR
    assert desk.ckpt("undo", "--yes").code == 0
    assert desk.read("a.txt") == THREE
    ended = desk.untouched_by(lambda: desk.ckpt("undo", "--yes"))
    one_sentence(ended, 1, "Nothing is left to undo", "ckpt redo")


def test_redo_takes_undos_back_one_by_one(desk: Desk) -> None:
    desk.wrapped("echo four >> a.txt")
    desk.wrapped("rm b.txt")
    after = files(desk)
    one_sentence(desk.ckpt("redo", "--yes"), 1, "no undo that could be taken back")
    desk.ckpt("undo", "--yes")
    desk.ckpt("undo", "--yes")
    assert "Taken back the undo" in desk.ckpt("redo", "--yes").out
    assert desk.read("a.txt") == FOUR
    assert (desk.top / "b.txt").exists()
    assert desk.ckpt("redo", "--yes").code == 0
    assert files(desk) == after
    assert desk.ckpt("undo", "--yes").code == 0
    assert (desk.top / "b.txt").exists()


def test_an_undone_redo_can_be_redone(desk: Desk) -> None:
    desk.wrapped("echo four >> a.txt")
    desk.ckpt("undo", "--yes")
    redo = desk.ckpt("redo", "--yes", "--json").json["id"]
    assert desk.ckpt("undo", redo, "--yes").code == 0
    assert desk.read("a.txt") == THREE
    assert desk.ckpt("log", "--json", "-n", "1").json["points"][0]["is_undo"]
    assert desk.ckpt("redo", "--yes").code == 0
    assert desk.read("a.txt") == FOUR


def test_rewind_takes_that_point_and_every_later_one(desk: Desk) -> None:
    desk.wrapped("echo zero > zero")
    first = desk.wrapped("echo four >> a.txt")
    desk.wrapped("rm b.txt")
    desk.wrapped("echo x > x")
    assert "and 2 later points with it" in desk.ckpt("rewind", first, "--dry-run").out
    assert desk.ckpt("rewind", first, "--yes").code == 0
    assert desk.read("a.txt") == THREE
    assert (desk.top / "b.txt").exists()
    assert not (desk.top / "x").exists()
    assert (desk.top / "zero").exists()


def test_a_dry_run_tells_in_the_same_shape_and_writes_nothing(desk: Desk) -> None:
    desk.wrapped(MANY)
    store = snapshot(desk.store)
    dry = desk.untouched_by(lambda: desk.ckpt("undo", "--dry-run", "--json")).json
    text = desk.untouched_by(lambda: desk.ckpt("undo", "--dry-run"))
    assert {name for name, seen in snapshot(desk.store).items() if store.get(name, (0, 0, 0))[2] != seen[2]} <= {
        "undo.lock",
        "store.db-shm",
        "store.db-wal",
    }
    assert text.code == 0
    assert "removed            new/file" in text.out
    done = desk.ckpt("undo", "--yes", "--json").json
    shared = {"result", "restored", "removed", "merged", "kept", "left"}
    assert {name: dry[name] for name in shared} == {name: done[name] for name in shared}


def test_without_a_terminal_nothing_is_done_until_somebody_says_yes(desk: Desk) -> None:
    desk.wrapped(MANY)
    one_sentence(desk.untouched_by(lambda: desk.ckpt("undo")), 3, "no terminal to ask on", "--yes")
    told = desk.untouched_by(lambda: desk.ckpt("undo", "--json"))
    assert (told.code, told.json["result"]) == (3, "stopped")


def test_only_takes_paths_from_where_one_stands_and_the_rest_stays_to_be_undone(desk: Desk) -> None:
    run_id = desk.wrapped("echo four >> a.txt; echo four >> d/c.txt; rm b.txt")
    ended = desk.ckpt("undo", "--yes", "--only", "c.txt", cwd=desk.top / "d")
    assert ended.code == 0
    assert f"ckpt undo {run_id}" in ended.out
    assert (desk.read("d/c.txt"), desk.read("a.txt")) == (THREE, FOUR)
    assert desk.ckpt("undo", "--yes").code == 0
    assert desk.read("a.txt") == THREE
    assert (desk.top / "b.txt").exists()
    desk.ckpt("redo", "--yes")
    assert (desk.read("d/c.txt"), desk.read("a.txt")) == (THREE, FOUR)
    desk.ckpt("redo", "--yes")
    assert desk.read("d/c.txt") == FOUR


def test_only_of_something_else_says_so_and_counts_as_nothing(desk: Desk) -> None:
    desk.wrapped("rm b.txt")
    ended = desk.untouched_by(lambda: desk.ckpt("undo", "--yes", "--only", "a.txt"))
    assert (ended.code, ended.out) == (0, "Nothing to put back in what --only names.\n")
    assert desk.ckpt("undo", "--yes").code == 0
    assert (desk.top / "b.txt").exists()


def test_every_keep_on_the_line_holds(desk: Desk) -> None:
    desk.wrapped("for each in a.txt b.txt d/c.txt; do echo four >> $each; done")
    ended = desk.ckpt("undo", "--yes", "--json", "--keep", "a.txt", "--keep", "b.txt")
    assert ended.code == 4
    assert [one["path"] for one in ended.json["kept"]] == ["a.txt", "b.txt"]
    assert (desk.read("a.txt"), desk.read("b.txt"), desk.read("d/c.txt")) == (FOUR, FOUR, THREE)


def held_desk(desk: Desk) -> None:
    """The command deleted b.txt and made `made`; somebody edited `made` since."""
    desk.wrapped("echo four >> a.txt; echo x > made")
    desk.write("made", "edited since\n")


def test_a_held_file_stops_all_of_it_with_the_choices_named(desk: Desk, tmp_path: Path) -> None:
    held_desk(desk)
    ended = desk.untouched_by(lambda: desk.ckpt("undo", "--yes"))
    assert (ended.code, ended.out) == (3, "")
    hold_golden("stopped", pinned(ended.err, desk), tmp_path)
    told = desk.untouched_by(lambda: desk.ckpt("undo", "--yes", "--json"))
    assert (told.code, told.json["result"]) == (3, "stopped")
    assert told.json["kept"] == [{"path": "made", "reason": "created_and_edited"}]


@pytest.mark.parametrize("words", [["--keep", "made"], ["--rest"]], ids=" ".join)
def test_a_held_file_is_left_where_that_is_asked_for(desk: Desk, words: list[str]) -> None:
    held_desk(desk)
    ended = desk.ckpt("undo", "--yes", *words)
    assert ended.code == 4
    assert "the command created it, and it was edited since" in ended.out
    assert (desk.read("a.txt"), desk.read("made")) == (THREE, "edited since\n")


def test_a_held_file_goes_where_that_is_asked_for(desk: Desk) -> None:
    held_desk(desk)
    assert desk.ckpt("undo", "--yes", "--force", "made").code == 0
    assert not (desk.top / "made").exists()
    desk.ckpt("redo", "--yes")
    assert desk.read("made") == "edited since\n"


def test_edits_on_other_lines_are_merged_and_overlapping_ones_left(desk: Desk) -> None:
    desk.wrapped("sed -i s/three/3/ a.txt; sed -i s/three/3/ b.txt")
    desk.write("a.txt", "zero\none\ntwo\n3\n")
    desk.write("b.txt", "one\ntwo\n3 and mine\n")
    ended = desk.ckpt("undo", "--yes", "--json")
    assert (ended.code, ended.json["result"]) == (4, "partial")
    assert ended.json["merged"] == ["a.txt"]
    assert ended.json["kept"] == [{"path": "b.txt", "reason": "overlap"}]
    assert (desk.read("a.txt"), desk.read("b.txt")) == ("zero\none\ntwo\nthree\n", "one\ntwo\n3 and mine\n")


def test_a_gap_is_left_and_told(desk: Desk) -> None:
    desk.ckpt("config", "copy_bytes_max", "10")
    desk.write("large.txt", "uncommitted work, more than ten bytes\n")
    desk.wrapped("rm large.txt; echo four >> a.txt")
    ended = desk.ckpt("undo", "--yes")
    assert ended.code == 4
    assert "Changed by a command — Undo leaves it" in ended.out
    assert "the limit is 10 bytes" in ended.out
    assert desk.read("a.txt") == THREE


def test_a_moved_head_stays_and_that_is_said(desk: Desk) -> None:
    desk.write("a.txt", "mine\n")
    desk.wrapped("git -c user.name=A -c user.email=a@example.com commit -qam second; rm b.txt")
    head = desk.git("rev-parse", "HEAD")
    assert "Your files are put back; Git's commits, branches, stashes and staging" in desk.ckpt("undo", "--yes").out
    assert desk.git("rev-parse", "HEAD") == head


def test_from_elsewhere_paths_begin_at_the_project_that_is_named(desk: Desk, tmp_path: Path) -> None:
    desk.wrapped("echo four >> a.txt; rm b.txt")
    ended = desk.ckpt("undo", "--yes", "--project", "project", "--only", "a.txt", cwd=tmp_path)
    assert ended.code == 0, ended
    assert desk.read("a.txt") == THREE
    assert not (desk.top / "b.txt").exists()
    outside = desk.untouched_by(lambda: desk.ckpt("undo", "--yes", "--only", "../elsewhere"))
    one_sentence(outside, 2, "../elsewhere is not a path inside this project")


def test_a_folder_that_is_a_link_out_of_the_project_since_is_not_followed(desk: Desk, tmp_path: Path) -> None:
    desk.wrapped("rm d/c.txt")
    (desk.top / "d").rmdir()
    (tmp_path / "outside").mkdir()
    (desk.top / "d").symlink_to(tmp_path / "outside")
    ended = desk.untouched_by(lambda: desk.ckpt("undo", "--yes", "--only", "d/c.txt"))
    assert ended.code == 3
    assert "the folder it was in is something else since" in ended.err
    assert not list((tmp_path / "outside").iterdir())


def test_from_a_folder_that_the_command_removed_everything_comes_back(desk: Desk) -> None:
    before = files(desk)
    desk.wrapped("rm -rf ../d", cwd=desk.top / "d")
    script = f'cd d; rm -rf ../d; exec "{CKPT}" undo --yes'
    (desk.top / "d").mkdir()
    ended = run(["sh", "-c", script], desk.top)
    assert ended.code == 0, ended
    assert files(desk) == before


def test_one_run_of_a_turn_is_undone_by_its_id(desk: Desk) -> None:
    first = desk.wrapped("echo four >> a.txt", "--turn", "1")
    desk.wrapped("rm b.txt", "--turn", "1")
    assert desk.ckpt("undo", first, "--yes").code == 0
    assert desk.read("a.txt") == THREE
    assert not (desk.top / "b.txt").exists()
    assert desk.ckpt("undo", "--yes").code == 0
    assert (desk.top / "b.txt").exists()


@contextmanager
def running(desk: Desk, script: str) -> Iterator[subprocess.Popen[bytes]]:
    """A wrapped command that goes on, from the moment it has begun."""
    begun = desk.top.parent / "begun"
    argv = [CKPT_RUN, "--", "sh", "-c", f"{script}; touch {begun}; exec sleep 60"]
    with subprocess.Popen(
        argv, cwd=desk.top, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as wrapper:
        try:
            until = time.monotonic() + 30
            while not begun.exists():
                assert time.monotonic() < until, "the wrapped command did not begin"
                time.sleep(0.02)
            yield wrapper
        finally:
            if wrapper.poll() is None:
                wrapper.send_signal(signal.SIGTERM)


@pytest.mark.parametrize("words", [["undo", "--yes"], ["undo"], ["purge", "a.txt"], ["purge", "--all", "--yes"]])
def test_nothing_is_taken_back_or_forgotten_while_a_command_runs(desk: Desk, words: list[str]) -> None:
    desk.wrapped("echo four >> a.txt")
    with running(desk, "rm b.txt"):
        ended = desk.untouched_by(lambda: desk.ckpt(*words))
        one_sentence(ended, 1, "A wrapped command is still running in this project")
        assert desk.ckpt("undo", "--dry-run").code == 0
    assert desk.ckpt("undo", "--yes").code == 0
    assert (desk.top / "b.txt").exists()


def test_a_run_whose_wrapper_was_killed_is_closed_and_can_be_undone(desk: Desk) -> None:
    desk.write("b.txt", "uncommitted\n")
    with running(desk, "rm b.txt; echo four >> a.txt; echo $$ > ../pid") as wrapper:
        wrapper.kill()
        wrapper.wait()
        os.kill(int((desk.top.parent / "pid").read_text()), signal.SIGKILL)
        ended = desk.ckpt("log", "--json")
    assert "was cut off" in ended.err
    assert ended.json["points"][0]["state"] == "interrupted"
    shown = desk.ckpt("show").out
    assert "it was interrupted" in shown
    assert "[interrupted]" in desk.ckpt("log").out
    assert desk.ckpt("undo", "--yes").code == 0
    assert (desk.read("a.txt"), desk.read("b.txt")) == (THREE, "uncommitted\n")

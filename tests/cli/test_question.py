"""The questions, the colours, the pager and the progress, through a real pseudo-terminal."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pexpect
import pytest

from ckpt_run.shim.question import chosen_numbers

from .kit import CKPT, Desk, snapshot

THREE, FOUR = "one\ntwo\nthree\n", "one\ntwo\nthree\nfour\n"
SECONDS_MAX = 30


class Talk:
    """A verb of `ckpt` on a terminal: what it asks, what is answered, how it ends."""

    def __init__(self, desk: Desk, words: list[str], lines: int, variable: tuple[str, str]) -> None:
        self._child: Any = pexpect.spawn(
            CKPT,
            words,
            cwd=str(desk.top),
            env={**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": str(lines), variable[0]: variable[1]},
            timeout=SECONDS_MAX,
            dimensions=(lines, 100),
            encoding="utf-8",
            echo=False,
        )

    def asks(self, words: str) -> str:
        """Wait for these words; gives what was shown since the last ones."""
        self._child.expect_exact(words)
        return str(self._child.before) + words

    def answer(self, line: str) -> None:
        self._child.sendline(line)

    def press(self, key: str) -> None:
        self._child.send(key)

    def ends(self) -> tuple[int, str]:
        """Wait for the end; gives the exit code and what was shown since."""
        self._child.expect(pexpect.EOF)
        self._child.close()
        return int(self._child.exitstatus if self._child.exitstatus is not None else -1), str(self._child.before)

    def close(self) -> None:
        self._child.close(force=True)


@contextmanager
def talk(desk: Desk, *words: str, lines: int = 40, variable: tuple[str, str] = ("TERM", "xterm")) -> Iterator[Talk]:
    """Begin a verb on a terminal, and leave none behind."""
    talking = Talk(desk, list(words), lines, variable)
    try:
        yield talking
    finally:
        talking.close()


def test_the_plain_question_shows_what_happens_to_each_file_and_yes_does_it(desk: Desk) -> None:
    run_id = desk.wrapped("echo four >> a.txt; rm b.txt; echo x > new; chmod 600 d/c.txt")
    with talk(desk, "undo") as it:
        shown = it.asks("[n] no (default): ")
        it.answer("y")
        code, told = it.ends()
    for line in (f"Undo {run_id}:", "restored           a.txt", "recovered          b.txt", "removed            new"):
        assert line in shown
    assert "permissions        d/c.txt" in shown
    assert (code, "1 restored, 1 recovered, 1 removed" in told) == (0, True)
    assert (desk.read("a.txt"), (desk.top / "b.txt").exists(), (desk.top / "new").exists()) == (THREE, True, False)


@pytest.mark.parametrize("answer", ["\r", "n\r", "\x04", "\x03"], ids=["enter", "no", "end of input", "ctrl-c"])
def test_anything_but_yes_does_nothing(desk: Desk, answer: str) -> None:
    desk.wrapped("echo four >> a.txt")
    before = snapshot(desk.top)
    with talk(desk, "undo") as it:
        it.asks("(default): ")
        it.press(answer)
        code, told = it.ends()
    assert (code, "Nothing was changed." in told) == (3, True)
    assert snapshot(desk.top) == before
    assert desk.ckpt("undo", "--yes").code == 0


def test_an_answer_that_is_none_is_asked_for_again(desk: Desk) -> None:
    desk.wrapped("echo four >> a.txt")
    with talk(desk, "undo") as it:
        it.asks("(default): ")
        it.answer("what?")
        it.asks("(default): ")
        it.answer("YES")
        assert it.ends()[0] == 0


def test_files_that_nobody_reported_are_named_and_can_be_kept_one_by_one(desk: Desk) -> None:
    names = [f"file-{number}" for number in range(7)]
    desk.wrapped(f"for each in {' '.join(names)}; do echo x > $each; done")
    with talk(desk, "undo") as it:
        shown = it.asks("[c] keep the ones I edited…")
        assert "nobody reported by whom: file-0, file-1, file-2, file-3, file-4 and 2 more" in shown
        it.answer("c")
        assert "  2  file-1" in it.asks("or Enter for none: ")
        it.answer("9")
        it.asks("or Enter for none: ")
        it.answer("1 6-7")
        code, told = it.ends()
    assert code == 4
    assert "you asked to keep it" in told
    assert sorted(path.name for path in desk.top.glob("file-*")) == ["file-0", "file-5", "file-6"]


def held(desk: Desk) -> None:
    desk.wrapped("echo four >> a.txt; echo x > made")
    desk.write("made", "edited since\n")


@pytest.mark.parametrize(("answer", "made", "code"), [("", True, 4), ("k", True, 4), ("r", True, 4), ("u", False, 0)])
def test_a_held_file_is_asked_about(desk: Desk, answer: str, made: bool, code: int) -> None:
    held(desk)
    with talk(desk, "undo") as it:
        shown = it.asks("[n] cancel everything: ")
        assert "made: the command created it, and it was edited since" in shown
        it.answer(answer)
        it.asks("[n] no (default): ")
        it.answer("y")
        assert it.ends()[0] == code
    assert desk.read("a.txt") == THREE
    assert (desk.top / "made").exists() is made


@pytest.mark.parametrize("answer", ["n\r", "\x03", "\x04"], ids=["cancel", "ctrl-c", "end of input"])
def test_a_held_file_can_stop_everything(desk: Desk, answer: str) -> None:
    held(desk)
    before = snapshot(desk.top)
    with talk(desk, "undo", "--yes") as it:
        it.asks("[n] cancel everything: ")
        it.press(answer)
        code, told = it.ends()
    assert (code, "Nothing was changed." in told) == (3, True)
    assert snapshot(desk.top) == before


def test_undo_anyway_stops_again_when_another_file_changes_meanwhile(desk: Desk) -> None:
    held(desk)
    with talk(desk, "undo") as it:
        it.asks("[n] cancel everything: ")
        it.answer("u")
        it.asks("[n] no (default): ")
        desk.write("a.txt", "saved while the question stood there\n")
        before = snapshot(desk.top)
        it.answer("y")
        code, told = it.ends()
    assert (code, "nothing was changed: a.txt changed meanwhile" in told) == (3, True)
    assert snapshot(desk.top) == before


def test_rewind_says_how_many_later_points_go_too_and_that_git_stays(desk: Desk) -> None:
    first = desk.wrapped("git -c user.name=A -c user.email=a@example.com commit -q --allow-empty -m x; rm b.txt")
    desk.wrapped("echo four >> a.txt")
    with talk(desk, "rewind", first) as it:
        shown = it.asks("[n] no (default): ")
        it.answer("n")
        assert it.ends()[0] == 3
    assert f"Undo {first}, and 1 later point with it:" in shown
    assert "Git's commits, branches, stashes and staging are left as they are." in shown


def test_a_run_in_progress_is_said_before_anything_is_asked(desk: Desk) -> None:
    desk.wrapped("echo four >> a.txt")
    argv = [str(Path(CKPT).with_name("ckpt-run")), "--", "sh", "-c", "echo begun; exec sleep 60"]
    with subprocess.Popen(argv, cwd=desk.top, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as wrapper:
        try:
            assert wrapper.stdout is not None
            assert wrapper.stdout.readline() == b"begun\n"
            with talk(desk, "undo") as it:
                code, told = it.ends()
        finally:
            wrapper.terminate()
    assert code == 1
    assert "still running" in told
    assert "Go ahead?" not in told


def test_purging_everything_is_asked_about(desk: Desk) -> None:
    desk.wrapped("rm b.txt")
    for answer, code in (("", 3), ("y", 0)):
        with talk(desk, "purge", "--all") as it:
            it.asks("It cannot be brought back. [y/N] ")
            it.answer(answer)
            assert it.ends()[0] == code
    assert desk.ckpt("undo", "--yes").code == 1


def test_colours_and_the_pager_are_for_terminals_that_want_them(desk: Desk) -> None:
    desk.wrapped("echo four >> a.txt")
    shows = {}
    for name, variable in (("plain", ("NO_COLOR", "1")), ("dumb", ("TERM", "dumb")), ("colour", ("TERM", "xterm"))):
        with talk(desk, "show", variable=variable) as it:
            card = it.ends()
        with talk(desk, "diff", variable=variable) as it:
            shows[name] = (card, it.ends())
    for card, diff in (shows["plain"], shows["dumb"]):
        assert "\x1b" not in card[1] + diff[1]
        assert "+four" in diff[1]
    card, diff = shows["colour"]
    assert "\x1b[1m" in card[1]
    assert "\x1b[32m+" in diff[1]
    assert "\x1b" not in desk.ckpt("diff").out + desk.ckpt("show").out


def test_a_long_answer_goes_through_the_pager_and_a_short_one_does_not(desk: Desk, tmp_path: Path) -> None:
    desk.wrapped("seq 50 > long")
    pager = tmp_path / "pager"
    pager.write_text("#!/bin/sh\necho PAGED\nexec cat\n")
    pager.chmod(0o755)
    for verb, lines, is_paged in (("diff", 20, True), ("diff", 90, False), ("log", 20, False)):
        with talk(desk, verb, lines=lines, variable=("PAGER", str(pager))) as it:
            assert ("PAGED" in it.ends()[1]) is is_paged, (verb, lines)
    assert "PAGED" not in desk.ckpt("diff", env={"PAGER": str(pager)}).out


def test_bytes_of_a_file_never_reach_the_terminal_as_commands(desk: Desk) -> None:
    desk.wrapped("printf 'a\\033]0;title\\007b\\033[2J\\r\\233c\\n' >> a.txt")
    with talk(desk, "diff") as it:
        _, shown = it.ends()
    assert set(re.findall("\x1b(?!\\[[0-9;]*m).?", shown)) == set()
    assert "\x07" not in shown
    assert "a\\x1b]0;title\\x07b" in shown


def test_long_work_shows_its_progress_and_short_work_does_not(desk: Desk) -> None:
    desk.wrapped("for each in $(seq 220); do echo x > new-$each; done")
    with talk(desk, "undo", "--yes") as it:
        code, shown = it.ends()
    assert code == 0
    assert "%" in shown
    with talk(desk, "verify") as it:
        assert "%" in it.ends()[1]
    with talk(desk, "prune", "--points", "1") as it:
        assert "%" in it.ends()[1]
    assert "%" not in desk.ckpt("verify").err
    desk.wrapped("rm a.txt")
    with talk(desk, "undo", "--yes") as it:
        assert "%" not in it.ends()[1]


def test_numbers_are_read_as_people_write_them() -> None:
    assert chosen_numbers("1 3-5, 8", 9) == {1, 3, 4, 5, 8}
    assert chosen_numbers("", 9) == set()
    for wrong in ("0", "10", "5-3", "-1", "1-", "x", "1 x", "²"):
        assert chosen_numbers(wrong, 9) is None

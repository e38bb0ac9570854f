"""Edits that do not meet are merged, byte for byte; edits that meet are not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ckpt_run.capture.undo.merge import is_text, merged

LINES = [b"line %d" % number for number in range(9)]


def text(end: bytes = b"\n", *, last: bytes | None = None, **changed: bytes) -> bytes:
    """Nine lines; `l3=b"x"` changes the fourth."""
    lines = [changed.get(f"l{number}", line) for number, line in enumerate(LINES)]
    return end.join(lines) + (end if last is None else last)


@pytest.fixture
def scratch(tmp_path: Path) -> bytes:
    folder = tmp_path / "scratch"
    folder.mkdir()
    return os.fsencode(folder)


def test_my_edit_stays_and_the_commands_goes(scratch: bytes) -> None:
    base, ours, theirs = text(l1=b"command"), text(l1=b"command", l7=b"mine"), text()
    assert merged(base, ours, theirs, scratch=scratch) == text(l7=b"mine")
    assert os.listdir(scratch) == []


def test_edits_that_meet_overlap(scratch: bytes) -> None:
    assert merged(text(l1=b"command"), text(l1=b"mine"), text(), scratch=scratch) is None


@pytest.mark.parametrize("end", [b"\n", b"\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize("has_end", [True, False], ids=["newline", "no-newline"])
def test_line_ends_and_a_missing_last_newline_are_kept(scratch: bytes, end: bytes, has_end: bool) -> None:
    last = end if has_end else b""
    base, ours = text(end, last=last, l1=b"command"), text(end, last=last, l1=b"command", l7=b"mine")
    assert merged(base, ours, text(end, last=last), scratch=scratch) == text(end, last=last, l7=b"mine")


def test_bytes_that_are_no_unicode_are_kept(scratch: bytes) -> None:
    odd = bytes(range(1, 10)) + bytes(range(11, 256))
    base, ours = text(l0=odd, l2=b"command"), text(l0=odd, l2=b"command", l8=b"\xff\xfe")
    assert merged(base, ours, text(l0=odd), scratch=scratch) == text(l0=odd, l8=b"\xff\xfe")


def test_no_setting_of_the_user_and_no_repository_has_a_say(
    scratch: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home = tmp_path / "hostile"
    home.mkdir()
    (home / ".gitconfig").write_text("[broken\n")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text("[broken\n")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / ".git"))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(home / ".gitconfig"))
    assert merged(text(l1=b"c"), text(l1=b"c", l7=b"m"), text(), scratch=scratch) == text(l7=b"m")


def test_text_is_what_holds_no_nul() -> None:
    assert is_text(b"")
    assert is_text(b"\xff\r\n")
    assert not is_text(b"a\0b")

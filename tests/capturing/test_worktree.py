"""Entries are read through folder descriptors, exactly, and never through a link."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import pytest

from ckpt_run.capture import worktree
from ckpt_run.capture.model import Entry, Kind
from ckpt_run.capture.worktree import ChangedWhileRead, Reader, SurveyTooLarge, TooLarge, Tree, digest_of, survey

from .kit import as_ordinary_user

MIB = 1 << 20
ODD = [
    b"new\nline",
    b"tab\t",
    b'quote"',
    b"\xff\xfe",
    b"-dash",
    b"*?[x]",
    b" lead",
    b"trail ",
    b"back\\slash",
    b"\x01",
]


@pytest.fixture
def top(tmp_path: Path) -> bytes:
    place = tmp_path / "project"
    place.mkdir()
    return os.fsencode(place)


def put(top: bytes, name: bytes, data: bytes = b"", mode: int = 0o644) -> None:
    os.makedirs(os.path.dirname(top + b"/" + name), exist_ok=True)
    with open(top + b"/" + name, "wb") as file:
        file.write(data)
    os.chmod(top + b"/" + name, mode)


@pytest.mark.parametrize("kind", [Tree, Reader])
@pytest.mark.parametrize("size", [0, 1, 100, MIB - 1, MIB, MIB + 1, 3 * MIB])
def test_a_file_is_read_exactly(top: bytes, kind: type[Tree], size: int) -> None:
    data = os.urandom(size)
    put(top, b"a/b", data, 0o4750)
    with kind(top) as tree:
        copy = tree.copy(b"a/b", limit_bytes=size)
        assert copy.data == data
        assert copy.entry == Entry(Kind.FILE, mode=0o4750, digest=digest_of(data))
        assert copy.entry.size == size
        assert tree.entry(b"a/b", limit_bytes=size) == copy.entry
        assert copy.fingerprint == tree.fingerprint(b"a/b")


@pytest.mark.parametrize("name", ODD)
def test_odd_names(top: bytes, name: bytes) -> None:
    put(top, b"d" + name + b"/" + name, b"odd")
    with Tree(top) as tree:
        assert tree.copy(b"d" + name + b"/" + name, limit_bytes=9).data == b"odd"
        found = survey(tree, files_max=9, left_out=())
    assert set(found.files) == {b"d" + name + b"/" + name}
    assert set(found.folders) == {b"d" + name}


def test_a_link_is_its_target_and_is_never_followed(top: bytes) -> None:
    put(top, b"../outside/secret", b"secret")
    os.symlink(b"../outside/secret", top + b"/link")
    os.symlink(b"../outside", top + b"/parent")
    with Tree(top) as tree:
        assert tree.copy(b"link", limit_bytes=9).entry == Entry(Kind.LINK, target=b"../outside/secret")
        assert tree.copy(b"parent/secret", limit_bytes=9).entry.kind == Kind.ABSENT
        assert tree.status(b"parent/secret") is None
        assert tree.fingerprint(b"parent/secret") is None
        with pytest.raises(OSError, match="parent") as caught:
            tree.open_folder(b"parent")
        assert worktree.is_absence(caught.value)


def test_a_link_to_nowhere_and_one_that_loops(top: bytes) -> None:
    os.symlink(b"nowhere", top + b"/a")
    os.symlink(b"b", top + b"/b")
    with Tree(top) as tree:
        assert tree.copy(b"a", limit_bytes=9).entry.target == b"nowhere"
        assert tree.copy(b"b", limit_bytes=9).entry.target == b"b"
        assert tree.copy(b"b/inner", limit_bytes=9).entry.kind == Kind.ABSENT


def test_what_is_not_there(top: bytes) -> None:
    put(top, b"file")
    with Tree(top) as tree:
        for path in (b"none", b"none/deep", b"file/inner"):
            assert tree.copy(path, limit_bytes=9).entry.kind == Kind.ABSENT
            assert tree.status(path) is None


def test_a_fifo_is_never_opened(top: bytes) -> None:
    """To open one for reading would wait for a writer, for ever."""
    os.mkfifo(top + b"/pipe")
    with Tree(top) as tree:
        assert tree.copy(b"pipe", limit_bytes=9).entry.kind == Kind.SPECIAL


def test_a_fifo_swapped_in_between_look_and_open_does_not_hang(top: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    put(top, b"file", b"data")
    real = os.open

    def swap(name: bytes, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if name == b"file":
            os.unlink(top + b"/file")
            os.mkfifo(top + b"/file")
        return real(name, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", swap)
    with Tree(top) as tree:
        assert tree.copy(b"file", limit_bytes=9).entry.kind == Kind.SPECIAL


def test_a_link_swapped_in_between_look_and_open_is_not_followed(top: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    put(top, b"../secret", b"secret")
    put(top, b"file", b"data")
    real = os.open

    def swap(name: bytes, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if name == b"file":
            os.unlink(top + b"/file")
            os.symlink(b"../secret", top + b"/file")
        return real(name, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", swap)
    with Tree(top) as tree:
        copy = tree.copy(b"file", limit_bytes=9)
    assert copy.entry == Entry(Kind.LINK, target=b"../secret")
    assert copy.data == b""


def test_a_file_written_while_it_is_read_is_read_again(top: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    put(top, b"file", b"old bytes")
    real, waiting = os.read, [b"new bytes, longer", b"new bytes"]

    def write_once(fd: int, size: int) -> bytes:
        data = real(fd, size)
        if waiting:
            put(top, b"file", waiting.pop())
        return data

    monkeypatch.setattr(os, "read", write_once)
    with Tree(top) as tree:
        assert tree.copy(b"file", limit_bytes=99).data == b"new bytes, longer"


def test_a_file_that_never_rests_is_told(top: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    put(top, b"file", b"x")
    real = os.read

    def grow(fd: int, size: int) -> bytes:
        data = real(fd, size)
        with open(top + b"/file", "ab") as file:
            file.write(b"x")
        return data

    monkeypatch.setattr(os, "read", grow)
    with Tree(top) as tree, pytest.raises(ChangedWhileRead):
        tree.copy(b"file", limit_bytes=99)


def test_bytes_are_whole_while_somebody_saves_by_rename(top: bytes) -> None:
    """Whatever the moment, the bytes are one version's, never a mixture."""
    stop = threading.Event()

    def save() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            put(top, b"save~", b"%d" % (number % 10) * 5000)
            os.replace(top + b"/save~", top + b"/file")

    put(top, b"file", b"0" * 5000)
    saver = threading.Thread(target=save)
    saver.start()
    try:
        with Reader(top) as tree:
            for _ in range(200):
                try:
                    data = tree.copy(b"file", limit_bytes=MIB).data
                except ChangedWhileRead:
                    continue
                assert len(set(data)) == 1
                assert len(data) == 5000
    finally:
        stop.set()
        saver.join()


def test_a_larger_file_is_refused_with_its_size(top: bytes) -> None:
    put(top, b"file", b"x" * 11)
    with Tree(top) as tree, pytest.raises(TooLarge) as caught:
        tree.copy(b"file", limit_bytes=10)
    assert caught.value.size_bytes == 11


def test_the_survey_sees_everything_but_git_and_what_is_left_out(top: bytes) -> None:
    for name in (b".git/config", b"a/b/c", b"a/.git", b"build/x", b"top", b"nested/.git/HEAD", b"nested/in"):
        put(top, name)
    os.symlink(b"a", top + b"/link")
    os.mkfifo(top + b"/pipe")
    os.mkdir(top + b"/empty")
    with Tree(top) as tree:
        found = survey(tree, files_max=99, left_out={b"build"})
        assert set(found.files) == {b"a/b/c", b"top", b"link", b"pipe", b"nested/in"}
        assert set(found.folders) == {b"a", b"a/b", b"build", b"nested", b"empty"}
        assert found.nested == {b"a", b"nested"}
        assert found.files[b"top"] == tree.fingerprint(b"top")
        assert found.folders[b"a"] == tree.fingerprint(b"a")
        again = survey(tree, files_max=99, left_out=(), known={b"a", b"nested"})
        assert again.fresh == {b"build", b"empty", b"a/b"}
        with pytest.raises(SurveyTooLarge):
            survey(tree, files_max=4, left_out=())
        assert set(survey(tree, files_max=99, left_out=(), start=b"a").files) == {b"a/b/c"}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="root plays an ordinary user on Linux only")
@pytest.mark.parametrize("mode", [0, 0o444, 0o111])
def test_a_folder_that_cannot_be_read_is_told(top: bytes, mode: int) -> None:
    put(top, b"closed/in")
    put(top, b"open/in")
    os.chmod(top + b"/closed", mode)
    try:
        with as_ordinary_user(), Reader(top) as tree:
            found = survey(tree, files_max=9, left_out=())
            assert set(found.files) == {b"open/in"}
            assert found.unread == {b"closed"}
            if not mode & 0o111:
                with pytest.raises(PermissionError):
                    tree.fingerprint(b"closed/in")
    finally:
        os.chmod(top + b"/closed", 0o755)


def test_no_descriptor_is_left_open(top: bytes) -> None:
    put(top, b"a/b/c", b"x" * 11)
    os.mkfifo(top + b"/pipe")
    before = set(os.listdir("/dev/fd"))
    for kind in (Tree, Reader):
        with kind(top) as tree:
            survey(tree, files_max=9, left_out=())
            for path in (b"a/b/c", b"none/none", b"pipe", b"a"):
                tree.copy(path, limit_bytes=99)
                tree.status(path)
            with pytest.raises(TooLarge):
                tree.copy(b"a/b/c", limit_bytes=1)
    assert set(os.listdir("/dev/fd")) == before

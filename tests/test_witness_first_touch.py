"""A file without an exact copy is copied before the command changes it, within limits, and what is not says why."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Container
from pathlib import Path

import pytest

from ckpt_run.capture import witness
from ckpt_run.capture.model import Kind
from ckpt_run.capture.reasons import Reason
from ckpt_run.capture.witness import first_touch
from ckpt_run.capture.witness.first_touch import FirstTouch, Touched

pytestmark = pytest.mark.skipif(not witness.probe().works, reason=f"no traced witness here: {witness.probe()}")

Kept = Callable[..., dict[bytes, Touched]]


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """A project with files of all sorts."""
    folder = tmp_path / "project"
    (folder / "sub" / "deep").mkdir(parents=True)
    (folder / "file").write_bytes(b"before\n")
    (folder / "private").write_bytes(b"secret\n")
    (folder / "private").chmod(0o600)
    (folder / "large").write_bytes(b"x" * 100_000)
    (folder / "sub" / "one").write_bytes(b"one\n")
    (folder / "sub" / "deep" / "two").write_bytes(b"two\n")
    (folder / "link").symlink_to("file")
    return folder


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    """Where copies go."""
    return tmp_path / "pack"


@pytest.fixture
def kept(top: Path, pack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kept:
    """Run a shell script in the project and return what was kept before its changes."""
    monkeypatch.chdir(top)

    def run(script: str, *, exact: Container[bytes] = (), **limits: float) -> dict[bytes, Touched]:
        wanted = FirstTouch(os.fsencode(pack), exact, **limits)  # type: ignore[arg-type]
        session = witness.start(os.fsencode(os.path.realpath(top)), os.fsencode(tmp_path / "j"), first_touch=wanted)
        assert session is not None
        session.spawn(b"/bin/sh", [b"sh", b"-c", os.fsencode(script)], dict(os.environb))
        assert session.wait() == 0
        session.end(wait=True)
        trace = witness.read_journal(os.fsencode(tmp_path / "j"))
        assert not trace.gaps
        return first_touch.read(os.fsencode(pack))

    return run


@pytest.mark.parametrize(
    "script",
    [
        "echo after > file",
        "echo after >> file",
        "rm file",
        "mv file elsewhere",
        "echo after > new; mv new file",
        "truncate -s 0 file",
        "echo after > link",
        "chmod 755 file; echo after > file",
        "echo 1 > file; rm file; echo 2 > file",
    ],
)
def test_a_file_is_kept_as_it_was_before_the_first_change(kept: Kept, pack: Path, script: str) -> None:
    touched = kept(script)[b"file"]
    assert first_touch.bytes_of(os.fsencode(pack), touched) == b"before\n"
    assert touched.entry.kind == Kind.FILE
    assert touched.entry.mode == 0o644
    assert touched.reason is None


def test_permission_bits_alone_are_kept_without_the_bytes(kept: Kept) -> None:
    touched = kept("chmod 755 private; touch -h file; chmod 700 sub")
    assert touched.keys() == {b"private", b"sub"}
    assert touched[b"private"].entry.mode == 0o600
    assert touched[b"private"].offset is None
    assert touched[b"private"].reason is None
    assert (touched[b"sub"].entry.kind, touched[b"sub"].entry.mode) == (Kind.DIRECTORY, 0o755)


def test_what_was_not_there_is_kept_as_absent(kept: Kept) -> None:
    touched = kept("mkdir made; echo > made/file; ln -s x made/link; ln file hard; echo again > made/file")
    assert {path for path in touched if touched[path].entry.kind == Kind.ABSENT} == {
        b"made",
        b"made/file",
        b"made/link",
        b"hard",
    }


def test_links_and_folders_are_kept_as_themselves(kept: Kept) -> None:
    touched = kept("rm link; rm -r sub")
    assert touched[b"link"].entry.target == b"file"
    assert touched[b"sub"].entry.kind == Kind.DIRECTORY
    assert touched[b"sub/deep"].entry.kind == Kind.DIRECTORY
    assert b"file" not in touched


def test_a_folder_that_moves_is_kept_with_all_that_is_in_it(kept: Kept, pack: Path) -> None:
    touched = kept("mv sub moved; echo after > moved/one")
    assert first_touch.bytes_of(os.fsencode(pack), touched[b"sub/one"]) == b"one\n"
    assert first_touch.bytes_of(os.fsencode(pack), touched[b"sub/deep/two"]) == b"two\n"
    assert touched[b"moved"].entry.kind == Kind.ABSENT


def test_a_folder_too_large_to_keep_says_so(kept: Kept) -> None:
    touched = kept("mv sub moved", entries_max=1)
    assert touched[b"sub/"].reason == Reason.TOO_MANY
    assert touched[b"sub/"].numbers == {"limit_files": 1}


def test_what_has_an_exact_copy_already_is_not_kept_again(kept: Kept) -> None:
    assert kept("echo > file; echo > private", exact={b"file"}).keys() == {b"private"}


def test_a_file_over_the_limit_says_so(kept: Kept) -> None:
    missed = kept("rm large", file_bytes_max=99_999)[b"large"]
    assert (missed.reason, missed.offset) == (Reason.TOO_LARGE, None)
    assert missed.numbers == {"size_bytes": 100_000, "limit_bytes": 99_999}


def test_a_budget_that_is_used_up_says_so(kept: Kept) -> None:
    spent = kept("rm large; rm file", run_bytes_max=100_001)
    assert spent[b"large"].reason is None
    assert (spent[b"file"].reason, spent[b"file"].numbers) == (Reason.BUDGET, {"limit_bytes": 100_001})


def test_time_that_is_used_up_says_so(kept: Kept) -> None:
    assert kept("rm private", call_seconds_max=0.0)[b"private"].reason == first_touch.TOO_SLOW


def test_a_pipe_in_the_project_is_not_opened(kept: Kept) -> None:
    touched = kept("mkfifo pipe; rm pipe; mkfifo other; (echo x > other &) ; cat < other")
    assert touched[b"pipe"].entry.kind == Kind.ABSENT
    assert touched[b"other"].entry.kind == Kind.ABSENT


def test_copies_are_private_whatever_the_umask(kept: Kept, pack: Path) -> None:
    kept("umask 000; echo > private")
    assert stat.S_IMODE(pack.stat().st_mode) == 0o600


def test_a_pack_cut_anywhere_gives_whole_copies_only(kept: Kept, pack: Path) -> None:
    whole = kept("rm file private large sub/one")
    data = pack.read_bytes()
    for length in [*range(400), *range(len(data) - 400, len(data))]:
        pack.write_bytes(data[:length])
        for path, touched in first_touch.read(os.fsencode(pack)).items():
            assert first_touch.bytes_of(os.fsencode(pack), touched)
            assert touched.entry == whole[path].entry


def test_bytes_that_are_not_those_kept_are_refused(kept: Kept, pack: Path) -> None:
    touched = kept("rm file")[b"file"]
    data = bytearray(pack.read_bytes())
    data[touched.offset or 0] ^= 1
    pack.write_bytes(data)
    with pytest.raises(OSError, match="pack"):
        first_touch.bytes_of(os.fsencode(pack), touched)

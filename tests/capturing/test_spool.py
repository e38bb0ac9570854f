"""The journal of a run: killed at any point it is wholly there or not at all; a dead run is told from a live one."""

from __future__ import annotations

import os
import signal
import time

import pytest

from ckpt_run.capture import durable, project, spool
from ckpt_run.capture.errors import Fault, StoreError

from .kit import Repo, where

RECORD = {"run": [b"argv", 1, None], "copied": {b"a\n\xff": (1, 2)}}


@pytest.fixture
def place(repo: Repo) -> project.Project:
    found = where(repo)
    project.prepare(found)
    return found


def age(folder: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a minute go by."""
    later = time.time_ns() + 60_000_000_000
    monkeypatch.setattr(time, "time_ns", lambda: later)


def test_what_was_committed_is_read_back(place: project.Project) -> None:
    opened = spool.open_spool(place, "ab12")
    durable.write_all(opened.fd, b"bytes of copies")
    opened.commit(RECORD, at=15, durably=True)
    assert spool.read_record(opened.path) == RECORD
    with open(opened.path, "rb") as file:
        assert file.read(15) == b"bytes of copies"
    opened.remove()
    assert not os.listdir(place.runs)


def test_a_spool_torn_at_any_byte_has_no_record(place: project.Project) -> None:
    opened = spool.open_spool(place, "ab12")
    durable.write_all(opened.fd, b"copies")
    opened.commit(RECORD, at=6, durably=False)
    with open(opened.path, "rb") as file:
        data = file.read()
    for end in range(len(data)):
        os.truncate(opened.path, 0)
        with open(opened.path, "wb") as file:
            file.write(data[:end])
        assert spool.read_record(opened.path) is None, f"{end} of {len(data)} bytes were taken for a record"
    for at in range(6, len(data)):
        with open(opened.path, "wb") as file:
            file.write(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        assert spool.read_record(opened.path) is None, f"byte {at} does not count"


def test_everything_is_synced_before_the_command_may_start(
    place: project.Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    opened = spool.open_spool(place, "ab12")
    monkeypatch.setattr(durable, "write_all", lambda fd, data: order.append("write"))
    monkeypatch.setattr(durable, "sync_data", lambda fd: order.append("data"))
    monkeypatch.setattr(durable, "sync_folder", lambda path: order.append(os.fsdecode(os.path.basename(path))))
    opened.commit(RECORD, at=0, durably=True)
    assert order == ["write", "data", "ab12", "runs"]


def dead(place: project.Project, run_id: str, *, record: object = None, copies: bytes = b"") -> int:
    """A child that opens a spool, maybe commits, and kills itself."""
    pid = os.fork()
    if pid == 0:
        try:
            opened = spool.open_spool(place, run_id)
            durable.write_all(opened.fd, copies)
            if record is not None:
                opened.commit(record, at=len(copies), durably=True)
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    return os.waitpid(pid, 0)[1]


def test_a_run_that_was_killed_is_found_with_its_record(place: project.Project) -> None:
    dead(place, "dead", record=RECORD, copies=b"abc")
    live = spool.open_spool(place, "live")
    live.commit(RECORD, at=0, durably=False)
    assert spool.has_live_run(place)
    found = [(each.spool.run_id, each.record) for each in spool.abandoned(place)]
    assert found == [("dead", RECORD)]
    live.remove()


def test_the_oldest_comes_first(place: project.Project) -> None:
    for run_id in ("cc", "aa", "bb"):
        dead(place, run_id, record=RECORD)
        time.sleep(0.02)
    assert [each.spool.run_id for each in spool.abandoned(place)] == ["cc", "aa", "bb"]


def test_a_run_killed_before_its_record_is_given_up_after_a_while(
    place: project.Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead(place, "dead", copies=b"half")
    assert not list(spool.abandoned(place)), "it might be between making its spool and locking it"
    age(place.runs, monkeypatch)
    assert [each.record for each in spool.abandoned(place)] == [None]


def test_a_folder_without_a_spool_goes_after_a_while(place: project.Project, monkeypatch: pytest.MonkeyPatch) -> None:
    os.makedirs(place.runs + b"/being/packs")
    assert not list(spool.abandoned(place))
    assert os.listdir(place.runs) == [b"being"]
    age(place.runs, monkeypatch)
    assert not list(spool.abandoned(place))
    assert not os.listdir(place.runs)


def test_a_folder_being_made_does_not_hide_a_live_run(place: project.Project) -> None:
    os.makedirs(place.runs + b"/aaaa/packs")
    live = spool.open_spool(place, "live")
    assert spool.has_live_run(place)
    live.close()
    assert not spool.has_live_run(place)


def test_a_retired_folder_serves_the_next_run(place: project.Project) -> None:
    first = spool.open_spool(place, "aaaa")
    inode = os.stat(first.folder).st_ino
    durable.write_private(first.folder + b"/survey", b"x")
    os.mkdir(first.folder + b"/git0")
    first.retire()
    assert not os.listdir(place.runs)
    second = spool.open_spool(place, "bbbb")
    assert os.stat(second.folder).st_ino == inode
    assert sorted(os.listdir(second.folder)) == [b"git0", b"packs", b"spool"]
    assert os.stat(second.path).st_size == 0
    third = spool.open_spool(place, "cccc")
    second.retire()
    third.retire()
    assert not os.listdir(place.runs)


def test_a_spare_folder_claimed_by_a_run_is_not_taken_for_an_old_one(place: project.Project) -> None:
    """It keeps its old mtime, and its wrapper may just be about to lock the spool."""
    first = spool.open_spool(place, "aaaa")
    os.utime(first.folder, (1, 1))
    first.retire()
    os.rename(place.memory + b"/spare", place.runs + b"/bbbb")
    assert not list(spool.abandoned(place))
    assert os.listdir(place.runs) == [b"bbbb"]


@pytest.mark.parametrize("number", ["ENOSPC", "EACCES", "EDQUOT"])
def test_a_store_without_room_or_rights_is_told(
    place: project.Project, number: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import errno

    def fail(path: bytes, *, folder: int | None = None) -> int:
        raise OSError(getattr(errno, number), number)

    monkeypatch.setattr(durable, "create_private", fail)
    with pytest.raises(StoreError) as caught:
        spool.open_spool(place, "aaaa")
    assert caught.value.fault == (Fault.STORE_NOT_WRITABLE if number == "EACCES" else Fault.STORE_FULL)

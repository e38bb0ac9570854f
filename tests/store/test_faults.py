"""A store that is damaged, newer, full, read-only or not private refuses and touches nothing."""

from __future__ import annotations

import os
import random
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ckpt_run.capture import schema
from ckpt_run.capture.errors import CkptError, Fault, StoreError
from ckpt_run.capture.project import STORE_FORMAT
from ckpt_run.capture.store import open_store, purge_all
from ckpt_run.capture.summary import Problem

from .records import digest_of, fields, files_of, held, ids, record, rewrite, undo_record

BEFORE = b"bytes-before-" * 700


@pytest.fixture
def filled(folder: bytes) -> bytes:
    """The folder of a closed store with two points and an open undo."""
    with open_store(folder, create=True) as store:
        record(store, "run-1", BEFORE, b"after")
        record(store, "run-2", b"after", b"later")
        store.open_undo(undo_record("undo-1", b"later", b"after", "run-2"), held(b"later"))
    return folder


def path_in(folder: bytes, name: str = "store.db") -> Path:
    return Path(os.fsdecode(folder), name)


def fault_of_opening(folder: bytes, *, create: bool = False) -> str:
    with pytest.raises(CkptError) as refused, open_store(folder, create=create) as store:
        store.points()
    return refused.value.fault


# Nothing there


def test_where_nothing_is_recorded_there_are_no_points_and_nothing_is_made(folder: bytes) -> None:
    assert fault_of_opening(folder) == Fault.NO_POINTS
    os.makedirs(folder, mode=0o700)
    assert fault_of_opening(folder) == Fault.NO_POINTS
    assert os.listdir(folder) == []


# Private


@pytest.mark.parametrize("umask", [0, 0o777])
def test_files_and_folders_are_private_whatever_the_umask(folder: bytes, umask: int) -> None:
    os.umask(umask)
    with open_store(folder, create=True) as store:
        record(store, "run-1", b"1", b"2")
        modes = {name: stat.S_IMODE(os.stat(os.path.join(folder, name)).st_mode) for name in os.listdir(folder)}
        store.prune(0, 0)
    assert modes == dict.fromkeys(modes, 0o600)
    assert set(modes) >= {b"store.db", b"store.db-wal"}
    for above in (folder, os.path.dirname(folder), os.path.dirname(os.path.dirname(folder))):
        assert stat.S_IMODE(os.stat(above).st_mode) == 0o700


def test_the_rollback_journal_is_private_too(folder: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    os.umask(0)
    monkeypatch.setattr(schema, "_is_on_network", lambda folder: True)
    with open_store(folder, create=True) as store:
        store.db.execute("BEGIN IMMEDIATE")
        store.db.execute("INSERT INTO meta VALUES ('a', 'b')")
        mode = stat.S_IMODE(os.stat(path_in(folder, "store.db-journal")).st_mode)
        store.db.execute("ROLLBACK")
    assert mode == 0o600


def test_what_others_could_read_is_closed_to_them(filled: bytes) -> None:
    os.chmod(filled, 0o755)
    os.chmod(path_in(filled), 0o644)
    with open_store(filled, create=False) as store:
        assert ids(store.points()) == ["run-2", "run-1"]
    assert stat.S_IMODE(os.stat(filled).st_mode) == 0o700
    assert stat.S_IMODE(os.stat(path_in(filled)).st_mode) == 0o600


def in_a_writable_folder(folder: bytes) -> None:
    os.chmod(folder, 0o770)


def in_a_writable_file(folder: bytes) -> None:
    path_in(folder).chmod(0o666)


def behind_a_link(folder: bytes) -> None:
    path_in(folder).rename(path_in(folder, "elsewhere"))
    path_in(folder).symlink_to("elsewhere")


def of_another_user(folder: bytes) -> None:
    if os.geteuid():
        pytest.skip("only root can give a file away")
    os.chown(folder, 12345, -1)


@pytest.mark.parametrize("spoil", [in_a_writable_folder, in_a_writable_file, behind_a_link, of_another_user])
def test_a_store_that_others_could_have_written_is_refused(filled: bytes, spoil: Callable[[bytes], None]) -> None:
    spoil(filled)
    before = files_of(filled)
    assert fault_of_opening(filled, create=True) == Fault.STORE_NOT_PRIVATE
    with pytest.raises(StoreError) as refused:
        purge_all(filled)
    assert refused.value.fault == Fault.STORE_NOT_PRIVATE
    assert files_of(filled) == before


# Damaged or newer


def emptied(data: bytes) -> bytes:
    return b""


def cut_in_half(data: bytes) -> bytes:
    return data[: len(data) // 2]


def cut_in_the_header(data: bytes) -> bytes:
    return data[:60]


def not_a_database(data: bytes) -> bytes:
    return b"#!/bin/sh\n" + b"echo hello\n" * 1000


def of_another_program(data: bytes) -> bytes:
    return data[:68] + b"GPKG" + data[72:]


@pytest.mark.parametrize("spoil", [emptied, cut_in_half, cut_in_the_header, not_a_database, of_another_program])
@pytest.mark.parametrize("create", [False, True])
def test_a_damaged_file_is_refused_and_left_as_it_is(
    filled: bytes, spoil: Callable[[bytes], bytes], create: bool
) -> None:
    spoilt = spoil(path_in(filled).read_bytes())
    path_in(filled).write_bytes(spoilt)
    assert fault_of_opening(filled, create=create) == Fault.STORE_DAMAGED
    assert path_in(filled).read_bytes() == spoilt
    purge_all(filled)
    with open_store(filled, create=True) as store:
        assert store.points() == []


def test_a_newer_format_is_refused_with_both_numbers_and_left_as_it_is(filled: bytes) -> None:
    db = sqlite3.connect(path_in(filled))
    db.execute(f"PRAGMA user_version={STORE_FORMAT + 1}")
    db.close()
    before = files_of(filled)
    with pytest.raises(StoreError) as refused:
        open_store(filled, create=True)
    assert refused.value.fault == Fault.STORE_NEWER
    assert refused.value.facts == {"format": STORE_FORMAT + 1, "known": STORE_FORMAT}
    assert files_of(filled) == before


def test_a_missing_table_is_damage(filled: bytes) -> None:
    db = sqlite3.connect(path_in(filled))
    db.execute("DROP TABLE undoes")
    db.close()
    assert fault_of_opening(filled, create=True) == Fault.STORE_DAMAGED


def test_a_log_without_its_store_is_not_played_into_a_new_one(filled: bytes) -> None:
    path_in(filled).unlink()
    path_in(filled, "store.db-wal").write_bytes(b"left behind")
    assert fault_of_opening(filled, create=True) == Fault.STORE_DAMAGED
    assert os.listdir(filled) == [b"store.db-wal"]


def test_one_flipped_bit_in_a_content_is_found_at_each_read_and_by_verify(filled: bytes) -> None:
    data = bytearray(path_in(filled).read_bytes())
    data[data.index(b"bytes-before-bytes-before") + 20] ^= 1
    path_in(filled).write_bytes(data)
    with open_store(filled, create=False) as store:
        with pytest.raises(StoreError) as refused:
            store.content(digest_of(BEFORE))
        assert refused.value.fault == Fault.STORE_DAMAGED
        assert store.content(digest_of(b"after")) == b"after"
        problems = store.verify()
    assert [(problem.what, problem.digest) for problem in problems] == [(Problem.BYTES, digest_of(BEFORE))]


def test_a_flipped_bit_anywhere_gives_what_was_written_or_a_refusal(filled: bytes) -> None:
    with open_store(filled, create=False) as store:
        points = {point.id: [fields(run) for run in point.runs] for point in store.points()}
        undos = [fields(each) for each in store.open_undos()]
    whole = path_in(filled).read_bytes()
    chance = random.Random(7)
    faults = []
    for _ in range(200):
        spoilt = bytearray(whole)
        spoilt[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
        path_in(filled).write_bytes(spoilt)
        try:
            with open_store(filled, create=False) as store:
                for run_id in ("run-1", "run-2"):
                    point, runs = store.find(run_id)
                    assert [fields(run) for run in runs] == points[point.id]
                assert [fields(each) for each in store.open_undos()] == undos
                for data in (BEFORE, b"after", b"later"):
                    assert store.content(digest_of(data)) in (data, None)
                store.summaries()
                store.verify()
        except CkptError as error:
            faults.append(error.fault)
    assert set(faults) <= {Fault.STORE_DAMAGED, Fault.STORE_NEWER, Fault.UNKNOWN_ID}
    assert len(faults) > 5


def test_verify_names_what_a_change_needs_and_is_not_there(filled: bytes) -> None:
    with open_store(filled, create=False) as store:
        assert store.verify() == []
        store.db.execute("DELETE FROM content WHERE digest = ?", (digest_of(BEFORE),))
        steps: list[tuple[int, int]] = []
        (problem,) = store.verify(lambda done, total: steps.append((done, total)))
    assert (problem.what, problem.run_id, problem.path) == (Problem.MISSING, "run-1", b"a.txt")
    assert steps == [(number, 5) for number in range(1, 6)]


def test_a_changed_record_is_refused_and_named_by_verify(filled: bytes) -> None:
    with open_store(filled, create=False) as store:
        store.db.execute("UPDATE change SET path = x'2f' WHERE run = 1")
        with pytest.raises(StoreError) as refused:
            store.points()
        assert refused.value.fault == Fault.STORE_DAMAGED
        assert [(problem.what, problem.run_id) for problem in store.verify()] == [(Problem.ROW, "run-1")]


# Not writable, full


def test_a_read_only_folder_is_refused(filled: bytes) -> None:
    name = os.fsdecode(filled)
    if os.geteuid():
        protect, release = ["chmod", "0500", name], ["chmod", "0700", name]
    else:  # Root may write whatever the mode, but not where the file system says no.
        protect, release = ["chattr", "+i", name], ["chattr", "-i", name]
    try:
        ended = subprocess.run(protect, check=False, stdin=subprocess.DEVNULL, capture_output=True)
    except FileNotFoundError:
        pytest.skip("root, and no chattr here")
    if ended.returncode:
        pytest.skip("root, and a file system without the immutable flag")
    try:
        before = files_of(filled)
        assert fault_of_opening(filled) == Fault.STORE_NOT_WRITABLE
        assert fault_of_opening(filled, create=True) == Fault.STORE_NOT_WRITABLE
        assert files_of(filled) == before
    finally:
        subprocess.run(release, check=True, stdin=subprocess.DEVNULL)
    with open_store(filled, create=False) as store:
        assert ids(store.points()) == ["run-2", "run-1"]


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert fault_of_opening(os.fsencode(tmp_path / "file" / "key"), create=True) == Fault.STORE_NOT_WRITABLE


def test_a_full_store_takes_nothing_of_a_run_and_keeps_the_rest(filled: bytes) -> None:
    with open_store(filled, create=False) as store:
        pages = store.db.execute("PRAGMA page_count").fetchone()[0]
        store.db.execute(f"PRAGMA max_page_count={pages + 2}")
        with pytest.raises(StoreError) as refused:
            store.record_run(rewrite("run-3", b"x" * 100_000, b"y"), held(b"x" * 100_000, b"y"))
        assert refused.value.fault == Fault.STORE_FULL
        assert ids(store.points()) == ["run-2", "run-1"]
        assert store.verify() == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Path:
    """A file system of one mebibyte."""
    place = tmp_path / "small"
    place.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "none", str(place)]
    if not sys.platform.startswith("linux") or os.geteuid():
        pytest.skip("only root on Linux can mount a small disk")
    if subprocess.run(words, check=False, stdin=subprocess.DEVNULL, capture_output=True).returncode:
        pytest.skip("mount is not allowed here")
    return place


def test_a_full_disk_takes_nothing_of_a_run_and_keeps_the_rest(small_disk: Path) -> None:
    try:
        folder = os.fsencode(small_disk / "key")
        with open_store(folder, create=True) as store:
            record(store, "run-1", b"before", b"after")
            big = os.urandom(2_000_000)
            with pytest.raises(StoreError) as refused:
                store.record_run(rewrite("run-2", big, b"y"), held(big, b"y"))
            assert refused.value.fault == Fault.STORE_FULL
            assert ids(store.points()) == ["run-1"]
            assert store.content(digest_of(b"before")) == b"before"
        (small_disk / "filler").write_bytes(
            b"f" * (os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize)
        )
        assert fault_of_opening(os.fsencode(small_disk / "other"), create=True) == Fault.STORE_FULL
        (small_disk / "filler").unlink()
        with open_store(os.fsencode(small_disk / "other"), create=True) as store:
            assert store.verify() == []
        with open_store(folder, create=False) as store:
            assert store.verify() == []
    finally:
        subprocess.run(["umount", str(small_disk)], check=True, stdin=subprocess.DEVNULL)


def test_on_a_network_file_system_the_store_keeps_a_rollback_journal(
    folder: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psutil

    mount = type("Mount", (), {"mountpoint": "/", "fstype": "nfs4"})
    monkeypatch.setattr(psutil, "disk_partitions", lambda *, all: [mount])  # noqa: A006 - psutil's own name
    with open_store(folder, create=True) as store:
        assert store.db.execute("PRAGMA journal_mode").fetchone()[0] == "delete"
        record(store, "run-1", b"1", b"2")
    with open_store(folder, create=False) as store:
        assert store.content(digest_of(b"1")) == b"1"


def test_where_a_write_ahead_log_fails_the_store_keeps_a_rollback_journal(
    folder: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tables = schema._write_tables

    def fail_with_wal(path: bytes, *, wal: bool) -> None:
        write_tables(path, wal=wal)
        if wal:
            raise sqlite3.OperationalError

    monkeypatch.setattr(schema, "_write_tables", fail_with_wal)
    with open_store(folder, create=True) as store:
        assert store.db.execute("PRAGMA journal_mode").fetchone()[0] == "delete"
        record(store, "run-1", b"1", b"2")
    assert os.listdir(folder) == [b"store.db"]


def test_a_store_that_somebody_else_writes_for_too_long_is_not_writable_now(filled: bytes) -> None:
    with open_store(filled, create=False) as store, open_store(filled, create=False) as other:
        other.db.execute("BEGIN IMMEDIATE")
        store.db.execute("PRAGMA busy_timeout=50")
        with pytest.raises(StoreError) as refused:
            record(store, "run-3", b"1", b"2")
        assert refused.value.fault == Fault.STORE_NOT_WRITABLE
        assert ids(store.points()) == ["run-2", "run-1"]
        other.db.execute("ROLLBACK")
        record(store, "run-3", b"1", b"2")

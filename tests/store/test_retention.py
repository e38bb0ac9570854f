"""The oldest points make room, the current one stays; what is purged leaves no trace."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ckpt_run.capture.errors import CkptError, Fault, StoreError
from ckpt_run.capture.model import ABSENT, Change
from ckpt_run.capture.store import Store, open_store, purge_all

from .records import (
    digest_of,
    file,
    files_of,
    held,
    ids,
    record,
    run_of,
    undo,
    undo_record,
)


def test_the_oldest_points_make_room(folder: bytes) -> None:
    with open_store(folder, create=True, points_max=3) as store:
        for number in range(6):
            record(store, f"run-{number}", b"before %d" % number, b"shared")
        assert ids(store.points()) == ["run-5", "run-4", "run-3"]
        assert [store.has_content(digest_of(b"before %d" % number)) for number in range(6)] == [False] * 3 + [
            True
        ] * 3
        assert store.has_content(digest_of(b"shared"))
        assert store.verify() == []


def test_bytes_are_bounded_and_the_current_point_always_stays(folder: bytes) -> None:
    with open_store(folder, create=True, bytes_max=1000) as store:
        for number in range(5):
            record(store, f"run-{number}", bytes([number]) * 300, b"")
        assert ids(store.points()) == ["run-4", "run-3", "run-2"]
        record(store, "huge", b"h" * 5000, b"")
        assert ids(store.points()) == ["huge"]
        assert store.content(digest_of(b"h" * 5000)) == b"h" * 5000
        record(store, "small", b"s", b"")
        assert ids(store.points()) == ["small"]


def test_a_turn_that_goes_on_is_the_current_point_however_old_it_is(folder: bytes) -> None:
    with open_store(folder, create=True, points_max=2) as store:
        store.record_run(run_of("run-0", Change(b"a", ABSENT, file(b"0")), point_id="turn"), held(b"0"))
        for number in range(1, 4):
            store.record_run(run_of(f"in-{number}", Change(b"a", ABSENT, file(b"0")), point_id="turn"), held(b"0"))
            record(store, f"run-{number}", b"1", b"2")
        assert [point.id for point in store.points()] == ["run-3", "turn"]


def test_bytes_of_an_open_undo_stay_when_their_point_goes(folder: bytes) -> None:
    with open_store(folder, create=True, points_max=1) as store:
        record(store, "run-1", b"old", b"new")
        store.open_undo(undo_record("undo-1", b"new", b"old", "run-1"), held(b"new"))
        record(store, "run-2", b"x", b"y")
        assert ids(store.points()) == ["run-2"]
        assert (store.content(digest_of(b"old")), store.content(digest_of(b"new"))) == (b"old", b"new")
        store.abandon_undo("undo-1")
        assert not store.has_content(digest_of(b"old"))


def test_pruning_gives_the_room_back_and_tells_how_far_it_is(store: Store) -> None:
    for number in range(8):
        record(store, f"run-{number}", os.urandom(200_000), b"", path=b"%d" % number)
    steps: list[tuple[int, int]] = []
    pruned = store.prune(2, 10**9, lambda done, total: steps.append((done, total)))
    assert ids(store.points()) == ["run-7", "run-6"]
    assert (pruned.points, pruned.runs, pruned.changes, pruned.bytes) == (6, 6, 6, 1_200_000)
    assert pruned.file_bytes_after < 700_000 < pruned.file_bytes_before
    assert steps == sorted(steps)
    assert steps[-1][0] == steps[-1][1]
    assert store.prune(5, 1).points == 1
    assert ids(store.points()) == ["run-7"]
    assert store.prune(0, 10**9).points == 1
    assert store.points() == []


def test_usage_tells_what_is_held_and_what_may_be(folder: bytes) -> None:
    with open_store(folder, create=True, points_max=7, bytes_max=1_000_000) as store:
        record(store, "run-1", b"12345", b"123")
        usage = store.usage()
        assert (usage.points, usage.runs, usage.changes, usage.bytes) == (1, 1, 1, 8)
        assert (usage.points_max, usage.bytes_max) == (7, 1_000_000)
        assert usage.file_bytes >= usage.bytes


SECRET = b"hunter2-" * 3000
OTHER = b"kept-" * 3000


def test_a_purged_path_leaves_no_trace_in_any_file(store: Store, folder: bytes) -> None:
    store.record_run(
        run_of("run-1", Change(b"secret/key.pem", ABSENT, file(SECRET)), Change(b"a", file(OTHER), file(b"1"))),
        held(SECRET, OTHER, b"1"),
    )
    store.record_run(
        run_of("run-2", Change(b"secret/key.pem", file(SECRET), file(b"x" + SECRET))), held(b"x" + SECRET)
    )
    assert any(b"hunter2-hunter2" in data for data in files_of(folder).values())
    pruned = store.purge_path(b"secret")
    assert (pruned.points, pruned.runs, pruned.changes) == (1, 1, 2)
    for data in files_of(folder).values():
        assert b"hunter2-" not in data
        assert b"key.pem" not in data
    assert ids(store.points()) == ["run-1"]
    assert store.content(digest_of(OTHER)) == OTHER
    assert store.verify() == []


def test_a_purged_point_leaves_no_trace_but_what_another_point_needs(store: Store, folder: bytes) -> None:
    record(store, "run-1", SECRET, OTHER)
    record(store, "run-2", OTHER, b"new")
    store.purge_point("run-1")
    assert not any(b"hunter2-" in data for data in files_of(folder).values())
    assert ids(store.points()) == ["run-2"]
    assert store.content(digest_of(OTHER)) == OTHER
    with pytest.raises(CkptError) as unknown:
        store.purge_point("run-1")
    assert unknown.value.fault == Fault.UNKNOWN_ID


def test_bytes_dropped_earlier_for_room_are_gone_after_a_purge_too(folder: bytes) -> None:
    with open_store(folder, create=True, points_max=1) as store:
        record(store, "run-1", SECRET, b"")
        record(store, "run-2", b"x", b"", path=b"other")
        store.purge_path(b"nowhere")
        assert not any(b"hunter2-" in data for data in files_of(folder).values())


def test_forgetting_a_path_does_not_change_what_is_undone(store: Store) -> None:
    changes = (Change(b"a.txt", file(b"0"), file(b"1")), Change(b"b.txt", file(b"0"), file(b"1")))
    store.record_run(run_of("run-1", *changes), held(b"0", b"1"))
    undo(store, "undo-1", "run-1")  # touches a.txt only
    store.purge_path(b"a.txt")
    assert store.is_undone("run-1")
    store.purge_path(b"b.txt")
    assert store.points() == []


def test_nothing_is_purged_while_an_undo_is_open(store: Store) -> None:
    record(store, "run-1", SECRET, b"")
    store.open_undo(undo_record("undo-1", b"", SECRET, "run-1"), held(b""))
    purges: list[Callable[[], object]] = [lambda: store.purge_path(b"a.txt"), lambda: store.purge_point("run-1")]
    for purge in purges:
        with pytest.raises(StoreError) as refused:
            purge()
        assert refused.value.fault == Fault.UNDO_IN_PROGRESS
    assert ids(store.points()) == ["run-1"]


def test_a_purge_that_cannot_finish_because_somebody_reads_says_so(store: Store, folder: bytes) -> None:
    record(store, "run-1", SECRET, b"")
    store.db.execute("PRAGMA busy_timeout=50")
    with open_store(folder, create=False) as reader:
        reader.db.execute("BEGIN")
        reader.db.execute("SELECT count(*) FROM content").fetchone()
        with pytest.raises(StoreError) as refused:
            store.purge_point("run-1")
        assert refused.value.fault == Fault.STORE_NOT_WRITABLE
        reader.db.execute("ROLLBACK")
    store.purge_path(b"nowhere")
    assert not any(b"hunter2-" in data for data in files_of(folder).values())


def test_purging_everything_removes_the_folder_of_a_store_and_no_other(folder: bytes, tmp_path: Path) -> None:
    with open_store(folder, create=True) as store:
        record(store, "run-1", b"1", b"2")
    Path(os.fsdecode(folder), "spool").mkdir()
    Path(os.fsdecode(folder), "spool", "old").write_bytes(b"copy")
    precious = tmp_path / "precious"
    precious.mkdir(mode=0o700)
    (precious / "thesis").write_text("years of work")
    Path(os.fsdecode(folder), "link").symlink_to(precious)
    purge_all(folder)
    assert not os.path.exists(folder)
    with pytest.raises(CkptError) as refused:
        purge_all(os.fsencode(precious))
    assert refused.value.fault == Fault.NO_POINTS
    assert (precious / "thesis").read_text() == "years of work"

"""Undo and redo, in any order: the store knows what is undone now, and keeps an undo that is open."""

from __future__ import annotations

from ckpt_run.capture.model import Change
from ckpt_run.capture.store import Store, open_store

from .records import (
    digest_of,
    fields,
    file,
    held,
    ids,
    record,
    redo,
    run_of,
    undo,
    undo_record,
)


def undone_now(store: Store) -> list[str]:
    return [run.id for point in store.points() for run in point.runs if store.is_undone(run.id)]


def next_ids(store: Store) -> tuple[str | None, str | None]:
    point, run = store.next_to_undo(), store.next_to_redo()
    return (point.id if point else None, run.id if run else None)


def test_undo_undo_redo_redo_undo(store: Store) -> None:
    record(store, "run-1", b"0", b"1")
    record(store, "run-2", b"1", b"2")
    assert next_ids(store) == ("run-2", None)
    undo(store, "undo-2", "run-2")
    assert next_ids(store) == ("run-1", "undo-2")
    undo(store, "undo-1", "run-1")
    assert next_ids(store) == (None, "undo-1")
    assert ids(store.points(undone=False)) == ["undo-1", "undo-2"]
    redo(store, "redo-1", "undo-1")
    assert next_ids(store) == ("run-1", "undo-2")
    assert set(undone_now(store)) == {"undo-1", "run-2"}
    redo(store, "redo-2", "undo-2")
    assert next_ids(store) == ("run-2", None)
    undo(store, "undo-3", "run-2")
    assert next_ids(store) == ("run-1", "undo-3")
    assert set(undone_now(store)) == {"run-2", "undo-1", "undo-2"}


def test_a_redo_that_is_undone_leaves_the_run_undone(store: Store) -> None:
    record(store, "run-1", b"0", b"1")
    undo(store, "undo-1", "run-1")
    redo(store, "redo-1", "undo-1")
    assert not store.is_undone("run-1")
    undo(store, "undo-2", "redo-1")
    assert store.is_undone("run-1")
    redo(store, "redo-2", "undo-2")
    assert not store.is_undone("run-1")


def test_a_point_is_next_while_one_of_its_runs_stands(store: Store) -> None:
    for run_id in ("run-1", "run-2"):
        store.record_run(run_of(run_id, Change(b"a", file(b"1"), file(b"2")), point_id="turn"), {})
    undo(store, "undo-2", "run-2")
    assert next_ids(store)[0] == "turn"
    undo(store, "undo-1", "run-1")
    assert next_ids(store)[0] is None


def test_a_run_that_changed_nothing_is_not_next(store: Store) -> None:
    record(store, "run-1", b"0", b"1")
    store.record_run(run_of("run-2"), {})
    assert next_ids(store)[0] == "run-1"


def test_an_open_undo_comes_back_exactly_in_another_process(folder: bytes) -> None:
    opened = undo_record("undo-1", b"now", b"target", "run-1")
    with open_store(folder, create=True) as store:
        store.open_undo(opened, held(b"now"))
    with open_store(folder, create=False) as store:
        assert [fields(each) for each in store.open_undos()] == [fields(opened)]
        assert store.content(digest_of(b"now")) == b"now"


def test_finishing_an_undo_closes_and_records_it(store: Store) -> None:
    record(store, "run-1", b"old", b"new")
    opened = undo_record("undo-1", b"edited", b"merged", "run-1")
    store.open_undo(opened, held(b"edited", b"only held"))
    store.finish_undo(opened, held(b"merged"))
    assert store.open_undos() == []
    assert (store.content(digest_of(b"edited")), store.content(digest_of(b"merged"))) == (b"edited", b"merged")
    assert not store.has_content(digest_of(b"only held"))
    assert store.is_undone("run-1")
    store.finish_undo(opened, held(b"merged"))
    assert ids(store.points()) == ["undo-1", "run-1"]
    assert store.verify() == []


def test_abandoning_an_undo_leaves_no_run_and_no_bytes_of_it(store: Store) -> None:
    record(store, "run-1", b"old", b"new")
    store.open_undo(undo_record("undo-1", b"edited", b"old", "run-1"), held(b"edited", b"new"))
    store.abandon_undo("undo-1")
    assert (store.open_undos(), ids(store.points()), store.is_undone("run-1")) == ([], ["run-1"], False)
    assert not store.has_content(digest_of(b"edited"))
    assert (store.has_content(digest_of(b"old")), store.has_content(digest_of(b"new"))) == (True, True)

"""The store gives back what it was given, exactly, in the order of recording, and finds it by its names."""

from __future__ import annotations

import pytest

from ckpt_run.capture.errors import CkptError, Fault, StoreError
from ckpt_run.capture.model import ABSENT, By, Change, Entry, Kind, Known, Run, State
from ckpt_run.capture.reasons import Reason
from ckpt_run.capture.store import Store, open_store

from .records import (
    digest_of,
    fields,
    file,
    held,
    ids,
    record,
    rewrite,
    run_of,
    undo,
)


def test_a_run_comes_back_with_every_fact(store: Store) -> None:
    odd = Entry(Kind.FILE, mode=0o6755, size=7, digest=digest_of(b"odd"), oid="e69de29", owner=(0, 4_294_967_294))
    link = Entry(Kind.LINK, target=b"../\xff\n")
    run = Run(
        "run-1",
        [b"sh", b"", b"-c", b"echo \xff\n"],
        b"/home/\xfe",
        1_700_000_000_123_456_789,
        ended_ns=1_700_000_000_123_456_790,
        exit_code=137,
        state=State.INTERRUPTED,
        changes=[
            Change(b"\xff\n \"'*", odd, link, by=By.TRACED, known=Known.FIRST_TOUCH, lines=(0, 3)),
            Change(b"b", ABSENT, Entry(Kind.DIRECTORY, mode=0o700), by=By.EDITOR),
            Change(b"c", file(b""), ABSENT, reason=Reason.TOO_LARGE, numbers={"size_bytes": 9, "name": "\udcff"}),
        ],
        git_moved=["commit", "stash"],
        background=[(17, "sleep \udcff")],
        label="a label \udcff",
        session="s",
        turn="t \ud83d",
        point_id="point-1",
        undoes=["x", "w"],
        redoes="y",
    )
    store.record_run(run, held(b"odd"), prompt="Please \udcff")
    (point,) = store.points()
    assert (point.id, point.prompt, point.session, point.started_ns) == (
        "point-1",
        "Please \udcff",
        "s",
        run.started_ns,
    )
    assert [fields(each) for each in point.runs] == [fields(run)]
    assert [type(each) for each in point.runs[0].background] == [tuple]


def test_what_is_recorded_is_there_for_the_next_process(folder: bytes) -> None:
    with open_store(folder, create=True) as store:
        record(store, "run-1", b"before", b"after")
    with open_store(folder, create=False) as store:
        assert store.content(digest_of(b"before")) == b"before"
        assert store.has_content(digest_of(b"after"))
        assert store.content(digest_of(b"never seen")) is None
        assert not store.has_content(digest_of(b"never seen"))


def test_a_run_is_recorded_once(store: Store) -> None:
    record(store, "run-1", b"1", b"2")
    store.record_run(rewrite("run-1", b"3", b"4"), held(b"3", b"4"))
    assert [change.after for point in store.points() for run in point.runs for change in run.changes] == [file(b"2")]
    assert not store.has_content(digest_of(b"4"))


def test_bytes_that_are_not_what_their_digest_says_are_not_taken_and_the_run_is_not_recorded(store: Store) -> None:
    with pytest.raises(StoreError) as refused:
        store.record_run(rewrite("run-1", b"1", b"2"), {digest_of(b"1"): b"something else"})
    assert refused.value.fault == Fault.STORE_DAMAGED
    assert store.points() == []
    assert store.usage().bytes == 0


def test_bytes_that_no_change_names_are_not_kept(store: Store) -> None:
    store.record_run(rewrite("run-1", b"1", b"2"), held(b"1", b"stray"))
    assert not store.has_content(digest_of(b"stray"))


def test_content_shared_by_many_changes_counts_once(store: Store) -> None:
    for number in range(5):
        record(store, f"run-{number}", b"same" * 100, b"other", path=b"%d" % number)
    assert store.usage().bytes == len(b"same" * 100) + len(b"other")


def test_runs_of_a_turn_are_one_point_titled_by_its_first_prompt(store: Store) -> None:
    store.record_run(run_of("run-1", Change(b"a", ABSENT, file(b"1")), point_id="turn"), held(b"1"), prompt="First")
    record(store, "run-2", b"x", b"y")
    store.record_run(
        run_of("run-3", Change(b"a", file(b"1"), file(b"2")), point_id="turn"), held(b"2"), prompt="Then"
    )
    newest, older = store.points()
    assert (newest.id, ids(newest.runs), newest.prompt) == ("turn", ["run-1", "run-3"], "First")
    assert ids(older.runs) == ["run-2"]


def test_order_is_that_of_recording_not_of_clocks(store: Store) -> None:
    for run_id, started in (("run-1", 300), ("run-2", 100), ("run-3", 200)):
        run = rewrite(run_id, b"1", b"2")
        run.started_ns = started
        store.record_run(run, held(b"1", b"2"))
    assert ids(store.points()) == ["run-3", "run-2", "run-1"]
    assert ids(store.points(2)) == ["run-3", "run-2"]
    assert ids(store.runs_after("run-1")) == ["run-3", "run-2"]
    assert store.runs_after("run-3") == []
    with pytest.raises(CkptError) as unknown:
        store.runs_after("run-4")
    assert unknown.value.fault == Fault.UNKNOWN_ID


def test_the_log_is_light_and_counts_each_path_once(store: Store) -> None:
    left = Change(b"big", Entry(Kind.FILE, size=9), file(b"2"), reason=Reason.TOO_LARGE)
    store.record_run(run_of("run-1", Change(b"a", file(b"0"), file(b"1")), left, point_id="turn"), {}, prompt="Do it")
    last = run_of("run-2", Change(b"a", file(b"1"), file(b"2")), point_id="turn")
    last.exit_code = 3
    store.record_run(last, {})
    undo(store, "undo-1", "run-1", "run-2")
    newest, turn = store.summaries()
    assert (newest.id, newest.is_undo, newest.is_redo, newest.undone) == ("undo-1", True, False, False)
    assert (turn.id, turn.prompt, turn.argv, turn.changed, turn.left) == ("turn", "Do it", [b"make", b"run-1"], 2, 1)
    assert (turn.exit_code, turn.state, turn.is_undo, turn.undone) == (3, State.ENDED, False, True)
    assert [(run.id, run.changed, run.left, run.undone) for run in turn.runs] == [
        ("run-1", 2, 1, True),
        ("run-2", 1, 0, True),
    ]
    assert len(store.summaries(1)) == 1


def test_the_runs_on_a_path_or_below_it(store: Store) -> None:
    record(store, "run-1", b"1", b"2", path=b"src/a")
    record(store, "run-2", b"1", b"2", path=b"src-other")
    record(store, "run-3", b"1", b"2", path=b"src/\xff/b")
    assert ids(store.runs_on(b"src")) == ["run-3", "run-1"]
    assert ids(store.runs_on(b"src/a")) == ["run-1"]
    assert ids(store.runs_on(b"sr")) == []
    assert ids(store.runs_on(b"")) == ["run-3", "run-2", "run-1"]


@pytest.fixture
def named(store: Store) -> Store:
    for run_id, point in (("abcd1111", "turn9999"), ("abcd2222", "turn9999"), ("beef0000", None), ("feed%___", None)):
        store.record_run(run_of(run_id, Change(b"a", file(b"1"), file(b"2")), point_id=point), {})
    return store


@pytest.mark.parametrize(
    ("text", "point", "runs"),
    [
        ("turn9999", "turn9999", ["abcd1111", "abcd2222"]),
        ("turn", "turn9999", ["abcd1111", "abcd2222"]),
        ("abcd2", "turn9999", ["abcd2222"]),
        ("abcd1111", "turn9999", ["abcd1111"]),
        ("beef", "beef0000", ["beef0000"]),
        ("feed%", "feed%___", ["feed%___"]),
    ],
)
def test_an_id_or_its_beginning_names_a_point_or_a_run(named: Store, text: str, point: str, runs: list[str]) -> None:
    found, chosen = named.find(text)
    assert (found.id, ids(chosen)) == (point, runs)
    assert (named.find_point(text).id, ids(named.find_point(text).runs)) == (point, runs)


@pytest.mark.parametrize(
    "text", ["", "b", "bee", "beef00001", "____", "%", "BEEF", "\udcff\udcff\udcff\udcff", "a\0b\0"]
)
def test_what_names_nothing_is_unknown(named: Store, text: str) -> None:
    with pytest.raises(CkptError) as unknown:
        named.find(text)
    assert (unknown.value.fault, unknown.value.facts["id"]) == (Fault.UNKNOWN_ID, text)


def test_what_names_two_is_refused_with_both(named: Store) -> None:
    with pytest.raises(CkptError) as refused:
        named.find("abcd")
    assert refused.value.fault == Fault.AMBIGUOUS_ID
    assert refused.value.facts["candidates"] == ["abcd1111", "abcd2222"]

"""Questions about what the store recorded: order, names, what is undone now. Reads rows, writes nothing.

Order is that of recording, never of clocks: a point stands where its newest run stands.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from .errors import CkptError, Fault
from .model import Path, Point, Run
from .rows import pack_run, run_in, seal_of, unpack_text, unpack_words
from .summary import RunSummary, Summary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ID_PREFIX_MIN = 4


def run_of(db: sqlite3.Connection, row: Any) -> Run:
    """Complete a row of `run`; raises ValueError where it is not what was written."""
    run = run_in(db, row)
    if seal_of(pack_run(run)) != row["seal"]:
        raise ValueError(run.id)
    return run


def point_of(db: sqlite3.Connection, row: Any) -> Point:
    """Complete a row of `point` with its runs, oldest first."""
    rows = db.execute("SELECT * FROM run WHERE point = ? ORDER BY seq", (row["seq"],)).fetchall()
    return Point(
        row["id"],
        [run_of(db, each) for each in rows],
        started_ns=row["started_ns"],
        prompt=unpack_text(row["prompt"]),
        session=unpack_text(row["session"]),
    )


def points_newest_first(db: sqlite3.Connection) -> Iterator[Any]:
    """Give the rows of all points, newest first."""
    return iter(db.execute("SELECT * FROM point ORDER BY recorded DESC").fetchall())


def taken_back(db: sqlite3.Connection) -> set[str]:
    """Name every run whose effect is not there now: a run undone, an undo redone, a redo undone, and so on.

    Newest first, so that whether an undo (or redo) still counts is known before what it takes back is marked.
    """
    gone: set[str] = set()
    rows = db.execute(
        "SELECT run.id, run.redoes, undoes.target FROM run LEFT JOIN undoes ON undoes.run = run.seq"
        " WHERE run.redoes IS NOT NULL OR undoes.target IS NOT NULL ORDER BY run.seq DESC"
    )
    for run_id, redoes, target in rows:
        # What names itself takes nothing back; it would otherwise hide its own other targets.
        if run_id not in gone:
            gone.update(name for name in (redoes, target) if name is not None and name != run_id)
    return gone


def next_to_undo(db: sqlite3.Connection) -> Point | None:
    """Find the newest point with a run that changed something, is no undo or redo, and is not undone now."""
    gone = taken_back(db)
    rows = db.execute(
        "SELECT run.id, run.point FROM run JOIN point ON point.seq = run.point WHERE run.redoes IS NULL"
        " AND NOT EXISTS (SELECT 1 FROM undoes WHERE undoes.run = run.seq)"
        " AND EXISTS (SELECT 1 FROM change WHERE change.run = run.seq) ORDER BY point.recorded DESC, run.seq DESC"
    )
    for run_id, point in rows.fetchall():
        if run_id not in gone:
            return point_of(db, db.execute("SELECT * FROM point WHERE seq = ?", (point,)).fetchone())
    return None


def next_to_redo(db: sqlite3.Connection) -> Run | None:
    """Find the newest undo that still holds."""
    gone = taken_back(db)
    rows = db.execute(
        "SELECT * FROM run WHERE redoes IS NULL AND EXISTS (SELECT 1 FROM undoes WHERE undoes.run = run.seq)"
        " ORDER BY seq DESC"
    )
    for row in rows.fetchall():
        if row["id"] not in gone:
            return run_of(db, row)
    return None


def find(db: sqlite3.Connection, text: str) -> tuple[Point, list[Run]]:
    """Find the point that `text` names, with all its runs, or the one run that it names, with its point.

    `text` is a whole id, or the beginning (4 characters at least) of one id only. Raises CkptError with UNKNOWN_ID
    or AMBIGUOUS_ID; facts: `id`, and `candidates` where there are several.
    """
    name = _whole_id(db, text)
    row = db.execute("SELECT * FROM point WHERE id = ?", (name,)).fetchone()
    if row is not None:
        point = point_of(db, row)
        return point, point.runs
    row = db.execute("SELECT * FROM point WHERE seq = (SELECT point FROM run WHERE id = ?)", (name,)).fetchone()
    point = point_of(db, row)
    return point, [run for run in point.runs if run.id == name]


def _whole_id(db: sqlite3.Connection, text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:  # No id holds a lone surrogate, and SQLite takes none.
        raise CkptError(Fault.UNKNOWN_ID, id=text) from None
    both = "SELECT id FROM point UNION SELECT id FROM run"
    names = {row[0] for row in db.execute(both)}
    if text in names:
        return text
    candidates = sorted(name for name in names if name.startswith(text)) if len(text) >= ID_PREFIX_MIN else []
    if not candidates:
        raise CkptError(Fault.UNKNOWN_ID, id=text)
    if len(candidates) > 1:
        raise CkptError(Fault.AMBIGUOUS_ID, id=text, candidates=candidates)
    return str(candidates[0])


def runs_after(db: sqlite3.Connection, run_id: str) -> list[Run]:
    """Give the runs recorded after this one, newest first; raises CkptError(UNKNOWN_ID) for no such run."""
    row = db.execute("SELECT seq FROM run WHERE id = ?", (run_id,)).fetchone()
    if row is None:
        raise CkptError(Fault.UNKNOWN_ID, id=run_id)
    rows = db.execute("SELECT * FROM run WHERE seq > ? ORDER BY seq DESC", (row["seq"],)).fetchall()
    return [run_of(db, each) for each in rows]


def runs_on(db: sqlite3.Connection, path: Path) -> list[Run]:
    """Give the runs that changed the path or one below it, newest first; the empty path means any."""
    rows = db.execute(
        "SELECT * FROM run WHERE EXISTS (SELECT 1 FROM change WHERE change.run = run.seq AND"
        " (change.path = :path OR :path = x'' OR substr(change.path, 1, length(:path) + 1) = :below))"
        " ORDER BY seq DESC",
        {"path": path, "below": path + b"/"},
    )
    return [run_of(db, row) for row in rows.fetchall()]


def summaries(db: sqlite3.Connection, limit: int | None) -> list[Summary]:
    """Give light rows of the newest `limit` points (all for None), newest first."""
    gone = taken_back(db)
    rows = db.execute(
        "SELECT point.*, count(DISTINCT change.path) AS changed,"
        " count(DISTINCT CASE WHEN change.reason IS NOT NULL THEN change.path END) AS gaps"
        " FROM (SELECT * FROM point ORDER BY recorded DESC LIMIT ?) AS point"
        " LEFT JOIN run ON run.point = point.seq LEFT JOIN change ON change.run = run.seq"
        " GROUP BY point.seq ORDER BY point.recorded DESC",
        (-1 if limit is None else limit,),
    )
    return [
        Summary(
            row["id"],
            _run_summaries(db, row, gone),
            prompt=unpack_text(row["prompt"]),
            session=unpack_text(row["session"]),
            started_ns=row["started_ns"],
            changed=row["changed"],
            left=row["gaps"],
        )
        for row in rows.fetchall()
    ]


def _run_summaries(db: sqlite3.Connection, point: Any, gone: set[str]) -> list[RunSummary]:
    rows = db.execute(
        "SELECT run.*, count(change.seq) AS changed, count(change.reason) AS gaps,"
        " EXISTS (SELECT 1 FROM undoes WHERE undoes.run = run.seq) AS is_undo"
        " FROM run LEFT JOIN change ON change.run = run.seq WHERE run.point = ? GROUP BY run.seq ORDER BY run.seq",
        (point["seq"],),
    )
    return [
        RunSummary(
            row["id"],
            point["id"],
            unpack_words(row["argv"]),
            label=unpack_text(row["label"]),
            started_ns=row["started_ns"],
            ended_ns=row["ended_ns"],
            exit_code=row["exit_code"],
            state=row["state"],
            changed=row["changed"],
            left=row["gaps"],
            is_undo=bool(row["is_undo"]) and row["redoes"] is None,
            is_redo=row["redoes"] is not None,
            undone=row["id"] in gone,
        )
        for row in rows.fetchall()
    ]

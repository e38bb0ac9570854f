"""Reads everything the store holds and tells what is wrong. Repairs nothing, writes nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from .history import run_of
from .model import Entry, Kind, Run
from .recording import has_content, is_sound
from .retention import Progress
from .rows import NO_SENSE, ODD_RECORD, unpack_undo
from .summary import Problem


def problems(db: sqlite3.Connection, progress: Progress | None) -> list[Problem]:
    """Check the file, each content, each run, each open undo; what SQLite cannot read is a problem like any other."""
    found: list[Problem] = []
    count = _Count(progress)
    for look in (_file, _contents, _runs, _undos):
        try:
            found.extend(look(db, count))
        except sqlite3.DatabaseError as error:
            found.append(Problem(Problem.FILE, cause=str(error)))
    return found


class _Count:
    """Rows read so far, of all those there are."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._done = 0
        self._total = 0

    def start(self, db: sqlite3.Connection) -> None:
        sums = "SELECT (SELECT count(*) FROM content) + (SELECT count(*) FROM run) + (SELECT count(*) FROM open_undo)"
        self._total = int(db.execute(sums).fetchone()[0])

    def step(self) -> None:
        self._done += 1
        if self._progress is not None:
            self._progress(self._done, self._total)


def _file(db: sqlite3.Connection, count: _Count) -> Iterator[Problem]:
    for row in db.execute("PRAGMA integrity_check").fetchall():
        if row[0] != "ok":
            yield Problem(Problem.FILE, cause=row[0])
    for row in db.execute("PRAGMA foreign_key_check").fetchall():
        yield Problem(Problem.FILE, cause=f"{row[0]} {row[1]}: {row[2]}")
    count.start(db)


def _contents(db: sqlite3.Connection, count: _Count) -> Iterator[Problem]:
    # One at a time, by number: a page that cannot be read spoils its own content only.
    for (seq,) in db.execute("SELECT seq FROM content ORDER BY seq").fetchall():
        count.step()
        try:
            row = db.execute("SELECT digest, size, bytes FROM content WHERE seq = ?", (seq,)).fetchone()
        except sqlite3.DatabaseError as error:
            yield Problem(Problem.BYTES, cause=str(error))
            continue
        if row is not None and not (is_sound(row["digest"], row["bytes"]) and row["size"] == len(row["bytes"])):
            yield Problem(Problem.BYTES, digest=row["digest"])


def _runs(db: sqlite3.Connection, count: _Count) -> Iterator[Problem]:
    for seq, run_id in db.execute("SELECT seq, id FROM run ORDER BY seq").fetchall():
        count.step()
        try:
            run = run_of(db, db.execute("SELECT * FROM run WHERE seq = ?", (seq,)).fetchone())
        except (*NO_SENSE, sqlite3.DatabaseError) as error:
            yield Problem(Problem.ROW, run_id=run_id, cause=_words(error))
            continue
        yield from _missing(db, run)


def _missing(db: sqlite3.Connection, run: Run) -> Iterator[Problem]:
    for change in run.changes:
        if change.undo in ("restore", "recover") and not _is_known(db, change.before):
            yield Problem(Problem.MISSING, run_id=run.id, path=change.path, digest=change.before.digest)


def _undos(db: sqlite3.Connection, count: _Count) -> Iterator[Problem]:
    for undo_id, packed, seal in db.execute("SELECT id, record, seal FROM open_undo ORDER BY seq").fetchall():
        count.step()
        try:
            record = unpack_undo(packed, seal)
        except NO_SENSE as error:
            yield Problem(Problem.ROW, run_id=undo_id, cause=_words(error))
            continue
        for step in record.steps:
            # Only a step that replaces bytes had them rescued; one that changes a mode needs none.
            if step.now.content != step.target.content and not _is_known(db, step.now):
                yield Problem(Problem.MISSING, run_id=undo_id, path=step.path, digest=step.now.digest)


def _is_known(db: sqlite3.Connection, entry: Entry) -> bool:
    """Say whether the bytes of the entry are kept here, or named as a blob, which Git is asked for."""
    if entry.kind != Kind.FILE or entry.oid is not None:
        return True
    return entry.digest is not None and has_content(db, entry.digest)


def _words(error: Exception) -> str:
    return str(error) if isinstance(error, sqlite3.Error) else ODD_RECORD

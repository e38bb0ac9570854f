"""The store of one project: points, runs, changes, bytes and open undos, in one private SQLite file.

What it promises: a call that writes is one transaction, durable when it returns, wholly there or not at all after a
crash; bytes are checked by their digest on the way in and at every read. What it does not: it knows nothing of the
worktree or of Git, and gives no id of its own.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Callable, Mapping

from . import history, recording, retention
from .errors import CkptError, Fault, StoreError
from .model import Path, Point, Run, UndoRecord
from .retention import Progress
from .rows import NO_SENSE, ODD_RECORD, unpack_undo
from .schema import FILE_NAME, connection_to, sound
from .summary import Problem, Pruned, Summary, Usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

_Doubts = tuple[type[Exception], ...]


def open_store(
    folder: bytes, *, create: bool, points_max: int = retention.POINTS_MAX, bytes_max: int = retention.BYTES_MAX
) -> Store:
    """Open the store in `folder`, made first if it is not there and `create` is on.

    Raises CkptError(NO_POINTS) where there is none, StoreError where it is not private, not writable, full, damaged
    or of a newer format.
    """
    return Store(connection_to(folder, create=create), folder, points_max=points_max, bytes_max=bytes_max)


def purge_all(folder: bytes) -> None:
    """Remove the folder of a store with all in it, also a damaged one; raises CkptError(NO_POINTS) where none is.

    Raises StoreError(STORE_NOT_PRIVATE) where folder or file is not the user's alone. store.db goes last, so that a
    crash leaves what can be purged again.
    """
    import shutil

    path = os.path.join(folder, FILE_NAME)
    for name, is_right in ((folder, stat.S_ISDIR), (path, stat.S_ISREG)):
        try:
            found = os.lstat(name)
        except FileNotFoundError:
            raise CkptError(Fault.NO_POINTS, path=folder) from None
        if not is_right(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
            raise StoreError(Fault.STORE_NOT_PRIVATE, path=name, mode=stat.S_IMODE(found.st_mode), uid=found.st_uid)
    with sound(path):
        for name in os.listdir(folder):
            each = os.path.join(folder, name)
            if stat.S_ISDIR(os.lstat(each).st_mode):
                shutil.rmtree(each)
            elif name != FILE_NAME:
                os.unlink(each)
        os.unlink(path)
        os.rmdir(folder)


class _Transaction:
    """A scope that begins and ends as told, and rolls back where anything fails. Faults leave it as StoreErrors.

    `doubts` are the errors that mean a damaged record here; elsewhere they mean wrong calling code.
    """

    __slots__ = ("begin", "db", "doubts", "end", "path")

    def __init__(self, db: sqlite3.Connection, path: bytes, begin: str, end: str, doubts: _Doubts) -> None:
        self.db = db
        self.path = path
        self.begin = begin
        self.end = end
        self.doubts = doubts

    def __enter__(self) -> sqlite3.Connection:
        with sound(self.path):
            self.db.execute(self.begin)
        return self.db

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with sound(self.path):
            try:
                if error is None:
                    self.db.execute(self.end)
            finally:
                if self.db.in_transaction:  # SQLite itself rolls back after some errors.
                    self.db.execute("ROLLBACK")
            if isinstance(error, self.doubts):
                raise StoreError(Fault.STORE_DAMAGED, path=self.path, cause=ODD_RECORD) from error
            if isinstance(error, (sqlite3.Error, OSError)):
                raise error


class Store:
    """An open store; a context manager. One thread uses it; any number of processes may have one open."""

    def __init__(self, db: sqlite3.Connection, folder: bytes, *, points_max: int, bytes_max: int) -> None:
        """Take over an open connection; limits in points and bytes."""
        self.db = db
        self.folder = folder
        self.path = os.path.join(folder, FILE_NAME)
        self.points_max = points_max
        self.bytes_max = bytes_max

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close it; a second time does nothing."""
        self.db.close()

    def _reading(self) -> _Transaction:
        """Within it all rows are of one instant, and a row that makes no sense is damage."""
        return _Transaction(self.db, self.path, "BEGIN", "ROLLBACK", NO_SENSE)

    def _writing(self, doubts: _Doubts = ()) -> _Transaction:
        """Within it is one transaction: committed and durable at its end, or undone."""
        return _Transaction(self.db, self.path, "BEGIN IMMEDIATE", "COMMIT", doubts)

    # Recording

    def record_run(self, run: Run, contents: Mapping[bytes, bytes], *, prompt: str | None = None) -> None:
        """Record the run, its changes and the bytes they name; then the oldest points make room.

        `contents` maps digests (BLAKE2b-256) to bytes; what no change names is not kept. A run already recorded is
        left as it is. Raises StoreError: STORE_DAMAGED where bytes are not what their digest says.
        """
        with self._writing() as db:
            if not recording.has_run(db, run.id):
                self._record(db, run, contents, prompt)

    def _record(self, db: sqlite3.Connection, run: Run, contents: Mapping[bytes, bytes], prompt: str | None) -> None:
        point = recording.add_run(db, run, prompt)
        recording.add_contents(db, contents, recording.named_by(run))
        retention.make_room(db, self.points_max, self.bytes_max, current=point)

    # Reading

    def points(self, limit: int | None = None, *, undone: bool = True) -> list[Point]:
        """Give the newest points, newest first, with all changes; if not `undone`, without those wholly undone."""
        with self._reading() as db:
            gone = history.taken_back(db)
            points: list[Point] = []
            for row in history.points_newest_first(db):
                if limit is not None and len(points) >= limit:
                    break
                point = history.point_of(db, row)
                if undone or not all(run.id in gone for run in point.runs):
                    points.append(point)
            return points

    def summaries(self, limit: int | None = None) -> list[Summary]:
        """Give light rows of the newest points, newest first."""
        with self._reading() as db:
            return history.summaries(db, limit)

    def find_point(self, text: str) -> Point:
        """Find what `find` finds, as a point: for a run of a turn, the turn's point with that run only."""
        point, runs = self.find(text)
        return Point(point.id, runs, started_ns=point.started_ns, prompt=point.prompt, session=point.session)

    def find(self, text: str) -> tuple[Point, list[Run]]:
        """Find the point that `text` (an id, or its beginning) names with all its runs, or one run with its point.

        Raises CkptError with UNKNOWN_ID or AMBIGUOUS_ID; facts: `id`, and `candidates` where there are several.
        """
        with self._reading() as db:
            return history.find(db, text)

    def next_to_undo(self) -> Point | None:
        """Find the newest point with a run that changed something, is no undo or redo, and is not undone now."""
        with self._reading() as db:
            return history.next_to_undo(db)

    def next_to_redo(self) -> Run | None:
        """Find the newest undo that was not redone or undone itself."""
        with self._reading() as db:
            return history.next_to_redo(db)

    def is_undone(self, run_id: str) -> bool:
        """Say whether a later undo took the run back (for an undo: whether it was redone) and still holds."""
        with self._reading() as db:
            return run_id in history.taken_back(db)

    def runs_after(self, run_id: str) -> list[Run]:
        """Give the runs recorded after this one, newest first; raises CkptError(UNKNOWN_ID) for no such run."""
        with self._reading() as db:
            return history.runs_after(db, run_id)

    def runs_on(self, path: Path) -> list[Run]:
        """Give the runs that changed the path or one below it, newest first."""
        with self._reading() as db:
            return history.runs_on(db, path)

    def content(self, digest: bytes) -> bytes | None:
        """Give the bytes of this digest, None where they are not kept; raises StoreError(STORE_DAMAGED)."""
        with self._reading() as db:
            row = db.execute("SELECT bytes FROM content WHERE digest = ?", (digest,)).fetchone()
            if row is None:
                return None
            data: bytes = row[0]
            recording.check(digest, data)
            return data

    def has_content(self, digest: bytes) -> bool:
        """Say whether bytes of this digest are kept; they are not read."""
        with self._reading() as db:
            return recording.has_content(db, digest)

    # Open undos

    def open_undo(self, record: UndoRecord, rescue: Mapping[bytes, bytes]) -> None:
        """Save the record and the bytes of `rescue`; until it closes, all that its steps name stays."""
        with self._writing() as db:
            recording.add_undo(db, record, rescue)

    def finish_undo(self, record: UndoRecord, contents: Mapping[bytes, bytes]) -> None:
        """Close the record and record its run, in one transaction."""
        with self._writing() as db:
            if not recording.has_run(db, record.run.id):
                self._record(db, record.run, contents, None)
            recording.close_undo(db, record.id)

    def abandon_undo(self, undo_id: str) -> None:
        """Close the record of an undo that was rolled back; it leaves no run."""
        with self._writing() as db:
            recording.close_undo(db, undo_id)

    def open_undos(self) -> list[UndoRecord]:
        """Give the undos that neither finished nor were abandoned, oldest first."""
        with self._reading() as db:
            rows = db.execute("SELECT record, seal FROM open_undo ORDER BY seq").fetchall()
            return [unpack_undo(row["record"], row["seal"]) for row in rows]

    # Keeping and forgetting

    def usage(self) -> Usage:
        """Count what the store holds and may hold."""
        with self._reading() as db:
            return retention.usage(db, self.path, self.points_max, self.bytes_max)

    def prune(self, keep_points: int, bytes_max: int, progress: Progress | None = None) -> Pruned:
        """Drop the oldest points over these limits, give the room back; the newest goes only for `keep_points` 0."""
        before = self.usage()
        with self._writing() as db:
            newest = db.execute("SELECT seq FROM point ORDER BY recorded DESC LIMIT 1").fetchone()
            current = newest[0] if newest and keep_points > 0 else None
            retention.make_room(db, keep_points, bytes_max, current=current, progress=progress)
        try:
            with sound(self.path):
                retention.shrink(self.db)
        except StoreError as error:
            # The points are gone all the same; a full disk or a reader only keeps the file as long as it was.
            if error.fault == Fault.STORE_DAMAGED:
                raise
        return self._pruned_since(before)

    def purge_path(self, path: Path) -> Pruned:
        """Forget for good what is recorded of the path and all below it; raises as `purge_point`."""
        return self._purge(lambda db: recording.forget_path(db, path))

    def purge_point(self, point_id: str) -> Pruned:
        """Forget a point (its whole id) for good, with bytes that nothing else needs.

        Raises CkptError(UNKNOWN_ID), and StoreError(UNDO_IN_PROGRESS) where an open undo may need the bytes.
        """

        def forget(db: sqlite3.Connection) -> None:
            row = db.execute("SELECT seq FROM point WHERE id = ?", (point_id,)).fetchone()
            if row is None:
                raise CkptError(Fault.UNKNOWN_ID, id=point_id)
            retention.drop_point(db, row[0])

        return self._purge(forget)

    def _purge(self, forget: Callable[[sqlite3.Connection], None]) -> Pruned:
        before = self.usage()
        with self._writing(NO_SENSE) as db:
            if db.execute("SELECT 1 FROM open_undo").fetchone() is not None:
                raise StoreError(Fault.UNDO_IN_PROGRESS, path=self.path)
            forget(db)
        with sound(self.path):
            retention.shrink(self.db)
        return self._pruned_since(before)

    def _pruned_since(self, before: Usage) -> Pruned:
        after = self.usage()
        return Pruned(
            points=before.points - after.points,
            runs=before.runs - after.runs,
            changes=before.changes - after.changes,
            content_bytes=before.bytes - after.bytes,
            file_bytes_before=before.file_bytes,
            file_bytes_after=after.file_bytes,
        )

    def verify(self, progress: Progress | None = None) -> list[Problem]:
        """Read everything and tell what is wrong; `progress` hears of (rows read, rows there are)."""
        from .inspection import problems

        return problems(self.db, progress)

    def meta_get(self, key: str) -> str | None:
        """Give what `meta_set` kept under `key`, None where nothing is."""
        with self._reading() as db:
            row = db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
            return None if row is None else str(row[0])

    def meta_set(self, key: str, value: str) -> None:
        """Keep a text under a name, durable on return."""
        with self._writing() as db:
            db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

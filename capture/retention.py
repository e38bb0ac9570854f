"""What the store keeps: bytes as long as something needs them, points as long as there is room; and how it forgets.

Decides which rows go; the caller holds the transaction. A point is dropped whole, the oldest first. Pruning gives
room back; purging leaves no trace in the store's files. Neither reaches what a file system keeps of old blocks.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable

from .errors import Fault, StoreError
from .model import Path
from .schema import BESIDE
from .summary import Usage

POINTS_MAX = 512
BYTES_MAX = 128 * 1024 * 1024

Progress = Callable[[int, int], None]
"""Called with how much is done and how much there is."""


def drop_unneeded(db: sqlite3.Connection, digests: Iterable[bytes]) -> None:
    """Remove those of these bytes that no change and no open undo needs."""
    db.executemany(
        "DELETE FROM content WHERE digest = :digest"
        " AND NOT EXISTS (SELECT 1 FROM change WHERE before_digest = :digest)"
        " AND NOT EXISTS (SELECT 1 FROM change WHERE after_digest = :digest)"
        " AND NOT EXISTS (SELECT 1 FROM held WHERE digest = :digest)",
        [{"digest": digest} for digest in digests],
    )


def bytes_held(db: sqlite3.Connection) -> int:
    """Count the bytes, shared content once."""
    return int(db.execute("SELECT coalesce(sum(size), 0) FROM content").fetchone()[0])


def drop_point(db: sqlite3.Connection, point: int) -> None:
    """Remove a point with its runs and changes, and the bytes that only they needed."""
    digests = _digests(
        db.execute(
            "SELECT before_digest, after_digest FROM change JOIN run ON run.seq = change.run WHERE run.point = ?",
            (point,),
        )
    )
    db.execute("DELETE FROM point WHERE seq = ?", (point,))
    drop_unneeded(db, digests)


def _digests(pairs: Iterable[tuple[bytes | None, bytes | None]]) -> set[bytes]:
    return {digest for pair in pairs for digest in pair if digest is not None}


def make_room(
    db: sqlite3.Connection, points_max: int, bytes_max: int, *, current: int | None, progress: Progress | None = None
) -> None:
    """Drop the oldest points until the rest keeps within the limits; never the `current` one (its seq)."""
    others = "SELECT seq FROM point WHERE seq IS NOT ? ORDER BY recorded"
    oldest = [row[0] for row in db.execute(others, (current,)).fetchall()]
    count, total = len(oldest) + (current is not None), bytes_held(db)
    for done, point in enumerate(oldest):
        if count <= points_max and total <= bytes_max:
            break
        if progress is not None:
            progress(done, len(oldest))
        drop_point(db, point)
        count, total = count - 1, bytes_held(db)
    if progress is not None:
        progress(len(oldest), len(oldest))


def forget_changes(db: sqlite3.Connection, path: Path) -> set[int]:
    """Remove the changes of the path and of all below it, then the runs and points that have nothing left.

    Gives the seqs of the runs that it touched, some of which are gone.

    Runs that undid or redid stay while their point does: what is undone now must not change by forgetting.
    """
    where = {"path": path, "below": path + b"/"}
    rows = db.execute(
        "SELECT seq, run, before_digest, after_digest FROM change"
        " WHERE path = :path OR :path = x'' OR substr(path, 1, length(:path) + 1) = :below",
        where,
    ).fetchall()
    db.executemany("DELETE FROM change WHERE seq = ?", [(row["seq"],) for row in rows])
    touched = {row["run"] for row in rows}
    digests = _digests((row["before_digest"], row["after_digest"]) for row in rows)
    _drop_emptied(db, touched)
    drop_unneeded(db, digests)
    return touched


def _drop_emptied(db: sqlite3.Connection, runs: Iterable[int]) -> None:
    """Remove those of these runs that have no change now, the undos whose runs are gone, and points without runs."""
    # An undo goes with the last of the runs it names; a redo with its undo. Oldest first, so that both are seen.
    undos = db.execute(
        "SELECT DISTINCT run FROM undoes WHERE NOT EXISTS (SELECT 1 FROM change WHERE change.run = undoes.run)"
    )
    for run in sorted({*runs, *(row[0] for row in undos.fetchall())}):
        db.execute(
            "DELETE FROM run WHERE seq = :run AND NOT EXISTS (SELECT 1 FROM change WHERE run = :run)"
            " AND NOT EXISTS"
            " (SELECT 1 FROM undoes JOIN run AS named ON named.id = undoes.target WHERE undoes.run = :run)"
            " AND NOT EXISTS (SELECT 1 FROM run AS named WHERE named.id = run.redoes)",
            {"run": run},
        )
    db.execute("DELETE FROM point WHERE NOT EXISTS (SELECT 1 FROM run WHERE run.point = point.seq)")


def shrink(db: sqlite3.Connection) -> None:
    """Write the file anew without what was deleted, and empty the write-ahead log: no old byte stays in a file.

    Raises StoreError(STORE_NOT_WRITABLE) where another process reads so long that the log cannot be emptied.
    """
    db.execute("VACUUM")
    busy = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    if busy:
        raise StoreError(Fault.STORE_NOT_WRITABLE, cause="database is locked")


def file_bytes(path: bytes) -> int:
    """Count the bytes that the store's files take on disk."""
    total = 0
    for suffix in (b"", *BESIDE):
        try:
            total += os.stat(path + suffix).st_blocks * 512
        except FileNotFoundError:
            continue
    return total


def usage(db: sqlite3.Connection, path: bytes, points_max: int, bytes_max: int) -> Usage:
    """Count what the store holds."""
    points, runs, changes = db.execute(
        "SELECT (SELECT count(*) FROM point), (SELECT count(*) FROM run), (SELECT count(*) FROM change)"
    ).fetchone()
    return Usage(
        points=points,
        runs=runs,
        changes=changes,
        content_bytes=bytes_held(db),
        file_bytes=file_bytes(path),
        points_max=points_max,
        bytes_max=bytes_max,
    )

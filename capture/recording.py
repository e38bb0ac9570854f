"""How runs, open undos and their bytes become rows. The caller holds the transaction; nothing is committed here."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Mapping

from .errors import Fault, StoreError
from .model import Path, Run, UndoRecord
from .retention import drop_unneeded, forget_changes
from .rows import change_values, pack_run, pack_text, pack_undo, run_in, run_values, seal_of
from .schema import DIGEST_BYTES

_INSERT_RUN = (
    "INSERT INTO run (id, point, argv, cwd, started_ns, ended_ns, exit_code, state, git_moved, background, label,"
    " session, turn, redoes, seal) VALUES (:id, :point, :argv, :cwd, :started_ns, :ended_ns, :exit_code, :state,"
    " :git_moved, :background, :label, :session, :turn, :redoes, :seal)"
)
_INSERT_CHANGE = (
    "INSERT INTO change VALUES (NULL, :run, :path, :by, :known, :reason, :numbers, :lines_added, :lines_removed,"
    " :before_kind, :before_mode, :before_size, :before_digest, :before_target, :before_oid, :before_uid,"
    " :before_gid, :after_kind, :after_mode, :after_size, :after_digest, :after_target, :after_oid,"
    " :after_uid, :after_gid)"
)


def add_run(db: sqlite3.Connection, run: Run, prompt: str | None) -> int:
    """Add the run, its changes and what it undoes to its point, made if new; give the point's seq."""
    db.execute(
        "INSERT OR IGNORE INTO point (id, recorded, started_ns, session) VALUES (?, 0, ?, ?)",
        (run.point_id, run.started_ns, pack_text(run.session)),
    )
    point: int = db.execute("SELECT seq FROM point WHERE id = ?", (run.point_id,)).fetchone()[0]
    seq = db.execute(_INSERT_RUN, {**run_values(run), "point": point, "seal": seal_of(pack_run(run))}).lastrowid
    # The prompt that came first titles the point.
    db.execute(
        "UPDATE point SET recorded = ?, prompt = coalesce(prompt, ?) WHERE seq = ?", (seq, pack_text(prompt), point)
    )
    db.executemany("INSERT INTO undoes (run, target) VALUES (?, ?)", [(seq, target) for target in run.undoes])
    db.executemany(_INSERT_CHANGE, ({**change_values(change), "run": seq} for change in run.changes))
    return point


def has_run(db: sqlite3.Connection, run_id: str) -> bool:
    """Say whether a run of this id is recorded."""
    return db.execute("SELECT 1 FROM run WHERE id = ?", (run_id,)).fetchone() is not None


def named_by(run: Run) -> set[bytes]:
    """Give the digests that the run's changes name, before and after."""
    entries = (entry for change in run.changes for entry in (change.before, change.after))
    return {entry.digest for entry in entries if entry.digest is not None}


def add_contents(db: sqlite3.Connection, contents: Mapping[bytes, bytes], digests: Iterable[bytes]) -> None:
    """Add those bytes of `contents` that are wanted and not there yet, one at a time, each checked."""
    for digest in digests:
        if digest in contents and not has_content(db, digest):
            data = contents[digest]
            check(digest, data)
            db.execute("INSERT INTO content (digest, size, bytes) VALUES (?, ?, ?)", (digest, len(data), data))


def has_content(db: sqlite3.Connection, digest: bytes) -> bool:
    """Say whether bytes of this digest are kept."""
    return db.execute("SELECT 1 FROM content WHERE digest = ?", (digest,)).fetchone() is not None


def is_sound(digest: bytes, data: object) -> bool:
    """Say whether these are bytes, and those that the digest names."""
    return isinstance(data, bytes) and hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest() == digest


def check(digest: bytes, data: object) -> None:
    """Raise StoreError(STORE_DAMAGED; fact: `digest`, in hex) where the bytes are not those of the digest."""
    if not is_sound(digest, data):
        raise StoreError(Fault.STORE_DAMAGED, cause="digest mismatch", digest=digest.hex())


def add_undo(db: sqlite3.Connection, record: UndoRecord, rescue: Mapping[bytes, bytes]) -> None:
    """Add an open undo, the bytes of `rescue`, and a hold on every byte that its steps and its run name."""
    packed = pack_undo(record)
    row = (record.id, packed, seal_of(packed))
    undo = db.execute("INSERT INTO open_undo (id, record, seal) VALUES (?, ?, ?)", row).lastrowid
    add_contents(db, rescue, rescue.keys())
    held = {*rescue.keys(), *named_by(record.run)}
    held.update(each.digest for step in record.steps for each in (step.now, step.target) if each.digest is not None)
    db.executemany("INSERT INTO held (undo, digest) VALUES (?, ?)", [(undo, digest) for digest in held])


def close_undo(db: sqlite3.Connection, undo_id: str) -> None:
    """Remove an open undo and the bytes that only it held."""
    where = "SELECT digest FROM held JOIN open_undo ON open_undo.seq = held.undo WHERE open_undo.id = ?"
    held = [row[0] for row in db.execute(where, (undo_id,))]
    db.execute("DELETE FROM open_undo WHERE id = ?", (undo_id,))
    drop_unneeded(db, held)


def forget_path(db: sqlite3.Connection, path: Path) -> None:
    """Remove what is recorded of the path and of all below it; the runs that still have changes are sealed anew."""
    for seq in forget_changes(db, path):
        row = db.execute("SELECT * FROM run WHERE seq = ?", (seq,)).fetchone()
        if row is not None:
            db.execute("UPDATE run SET seal = ? WHERE seq = ?", (seal_of(pack_run(run_in(db, row))), seq))

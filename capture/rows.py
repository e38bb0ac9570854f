"""Runs, changes, entries and undo records as rows of the store, and back, exactly: bytes stay bytes.

Decides nothing. What cannot be read back raises one of `NO_SENSE`: the store takes each for damage.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import struct
from collections.abc import Iterable, Mapping, Sequence

from .model import Change, Entry, Run, Step, UndoRecord
from .schema import DIGEST_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NO_SENSE = (ValueError, KeyError, TypeError, IndexError, struct.error)
"""What reading a damaged row can raise."""
ODD_RECORD = "a record is not what was written"

Values = dict[str, str | int | bytes | None]
"""A row by the names of its columns."""


def pack_text(text: str | None) -> bytes | None:
    """Encode any text, also with the lone surrogates that `os.fsdecode` makes, which SQLite's TEXT refuses."""
    return None if text is None else text.encode("utf-8", "surrogatepass")


def unpack_text(packed: bytes | None) -> str | None:
    """Give back what `pack_text` took."""
    return None if packed is None else packed.decode("utf-8", "surrogatepass")


def pack_words(words: Iterable[bytes]) -> bytes:
    """Put words one after the other, each behind its length (32 bits, big endian)."""
    return b"".join(struct.pack(">I", len(word)) + word for word in words)


def unpack_words(packed: bytes) -> list[bytes]:
    """Give back what `pack_words` took; raises ValueError or struct.error where a length is wrong."""
    words, at = [], 0
    while at < len(packed):
        (length,) = struct.unpack_from(">I", packed, at)
        at += 4 + length
        if at > len(packed):
            raise ValueError(packed)
        words.append(packed[at - length : at])
    return words


def entry_values(side: str, entry: Entry) -> Values:
    """Spread an entry over the columns of `side` (`before` or `after`)."""
    uid, gid = entry.owner or (None, None)
    return {
        f"{side}_kind": entry.kind,
        f"{side}_mode": entry.mode,
        f"{side}_size": entry.size,
        f"{side}_digest": entry.digest,
        f"{side}_target": entry.target,
        f"{side}_oid": entry.oid,
        f"{side}_uid": uid,
        f"{side}_gid": gid,
    }


def entry_from(side: str, row: Mapping[str, Any]) -> Entry:
    """Read an entry from the columns of `side`."""
    uid, gid = row[f"{side}_uid"], row[f"{side}_gid"]
    return Entry(
        row[f"{side}_kind"],
        mode=row[f"{side}_mode"],
        size=row[f"{side}_size"],
        digest=row[f"{side}_digest"],
        target=row[f"{side}_target"],
        oid=row[f"{side}_oid"],
        owner=None if uid is None or gid is None else (uid, gid),
    )


def change_values(change: Change) -> Values:
    """Spread a change over its columns."""
    added, removed = change.lines or (None, None)
    return {
        "path": change.path,
        "by": change.by,
        "known": change.known,
        "reason": change.reason,
        "numbers": json.dumps(change.numbers),
        "lines_added": added,
        "lines_removed": removed,
        **entry_values("before", change.before),
        **entry_values("after", change.after),
    }


def change_from(row: Mapping[str, Any]) -> Change:
    """Read a change from its columns."""
    added, removed = row["lines_added"], row["lines_removed"]
    return Change(
        row["path"],
        entry_from("before", row),
        entry_from("after", row),
        by=row["by"],
        known=row["known"],
        reason=row["reason"],
        numbers=json.loads(row["numbers"]),
        lines=None if added is None or removed is None else (added, removed),
    )


def run_values(run: Run) -> Values:
    """Spread a run over its columns; its point, its changes and what it undoes have rows of their own."""
    return {
        "id": run.id,
        "argv": pack_words(run.argv),
        "cwd": run.cwd,
        "started_ns": run.started_ns,
        "ended_ns": run.ended_ns,
        "exit_code": run.exit_code,
        "state": run.state,
        "git_moved": json.dumps(run.git_moved),
        "background": json.dumps(run.background),
        "label": pack_text(run.label),
        "session": pack_text(run.session),
        "turn": pack_text(run.turn),
        "redoes": run.redoes,
    }


def run_from(row: Mapping[str, Any], point_id: str, changes: Sequence[Change], undoes: Sequence[str]) -> Run:
    """Read a run from its columns and the rows that belong to it."""
    return Run(
        row["id"],
        unpack_words(row["argv"]),
        row["cwd"],
        row["started_ns"],
        ended_ns=row["ended_ns"],
        exit_code=row["exit_code"],
        state=row["state"],
        changes=changes,
        git_moved=json.loads(row["git_moved"]),
        background=[(pid, name) for pid, name in json.loads(row["background"])],
        label=unpack_text(row["label"]),
        session=unpack_text(row["session"]),
        turn=unpack_text(row["turn"]),
        point_id=point_id,
        undoes=undoes,
        redoes=row["redoes"],
    )


def pack_run(run: Run) -> str:
    """Write a whole run as one JSON text, the same for the same facts."""
    facts = {
        "run": run_values(run),
        "point_id": run.point_id,
        "undoes": run.undoes,
        "changes": [change_values(change) for change in run.changes],
    }
    return json.dumps(facts, default=_hex)


def seal_of(packed: str) -> bytes:
    """Give the digest that shows whether a record is what was written: a flipped bit could name another path."""
    return hashlib.blake2b(packed.encode("ascii"), digest_size=DIGEST_BYTES).digest()


def run_in(db: sqlite3.Connection, row: Any) -> Run:
    """Complete a row of `run` with its point's id, its changes and what it undoes; its seal is not looked at."""
    point_id = db.execute("SELECT id FROM point WHERE seq = ?", (row["point"],)).fetchone()[0]
    changes = [
        change_from(each) for each in db.execute("SELECT * FROM change WHERE run = ? ORDER BY seq", (row["seq"],))
    ]
    undoes = [each[0] for each in db.execute("SELECT target FROM undoes WHERE run = ? ORDER BY seq", (row["seq"],))]
    return run_from(row, point_id, changes, undoes)


def pack_undo(record: UndoRecord) -> str:
    """Write an undo record as one JSON text."""
    facts = {
        "id": record.id,
        "top": record.top,
        "run": pack_run(record.run),
        "steps": [
            {
                "path": step.path,
                "temporary": step.temporary,
                **entry_values("now", step.now),
                **entry_values("target", step.target),
            }
            for step in record.steps
        ],
    }
    return json.dumps(facts, default=_hex)


def unpack_undo(packed: str, seal: bytes) -> UndoRecord:
    """Give back what `pack_undo` took; raises ValueError where the seal is not that of the text."""
    if seal_of(packed) != seal:
        raise ValueError(packed)
    facts = json.loads(packed, object_hook=_unhex)
    run = json.loads(facts["run"], object_hook=_unhex)
    changes = [change_from(row) for row in run["changes"]]
    steps = [
        Step(row["path"], entry_from("now", row), entry_from("target", row), row["temporary"])
        for row in facts["steps"]
    ]
    return UndoRecord(facts["id"], facts["top"], run_from(run["run"], run["point_id"], changes, run["undoes"]), steps)


def _hex(value: object) -> dict[str, str]:
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    raise TypeError(type(value))


def _unhex(value: dict[str, Any]) -> Any:
    return bytes.fromhex(value["hex"]) if value.keys() == {"hex"} else value

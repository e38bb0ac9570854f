"""Small runs, changes and bytes to record, and what the tests ask of them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from ckpt_run.capture.model import Change, Entry, Kind, Run, State, Step, UndoRecord
from ckpt_run.capture.store import Store

SOURCE = Path(__file__).resolve().parents[2] / "src"


def digest_of(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=32).digest()


def file(data: bytes, mode: int = 0o644) -> Entry:
    return Entry(Kind.FILE, mode=mode, size=len(data), digest=digest_of(data))


def held(*each: bytes) -> dict[bytes, bytes]:
    return {digest_of(data): data for data in each}


def run_of(
    run_id: str, *changes: Change, point_id: str | None = None, undoes: Sequence[str] = (), redoes: str | None = None
) -> Run:
    return Run(
        run_id,
        [b"make", run_id.encode()],
        b"/p",
        1,
        ended_ns=2,
        exit_code=0,
        state=State.ENDED,
        changes=changes,
        point_id=point_id,
        undoes=undoes,
        redoes=redoes,
    )


def rewrite(run_id: str, before: bytes, after: bytes, path: bytes = b"a.txt") -> Run:
    return run_of(run_id, Change(path, file(before), file(after)))


def record(store: Store, run_id: str, before: bytes, after: bytes, path: bytes = b"a.txt") -> None:
    store.record_run(rewrite(run_id, before, after, path), held(before, after))


def undo(store: Store, undo_id: str, *targets: str) -> None:
    changes = [Change(b"a.txt", file(b"new " + undo_id.encode()), file(b"old " + undo_id.encode()))]
    store.record_run(run_of(undo_id, *changes, undoes=targets), {})


def redo(store: Store, redo_id: str, target: str) -> None:
    changes = [Change(b"a.txt", file(b"old " + target.encode()), file(b"new " + target.encode()))]
    store.record_run(run_of(redo_id, *changes, undoes=[target], redoes=target), {})


def ids(things: Sequence[object]) -> list[str]:
    return [thing.id for thing in things]  # type: ignore[attr-defined]


def fields(thing: object) -> dict[str, object]:
    """All slots of a run, change, entry or step, deeply, so that nothing hides behind a narrow equality."""
    found: dict[str, object] = {}
    for name in type(thing).__slots__:  # type: ignore[attr-defined]
        value = getattr(thing, name)
        if isinstance(value, list):
            value = [fields(each) if hasattr(type(each), "__slots__") else each for each in value]
        found[name] = fields(value) if hasattr(type(value), "__slots__") else value
    return found


def files_of(folder: bytes) -> dict[bytes, bytes]:
    return {name: Path(os.fsdecode(os.path.join(folder, name))).read_bytes() for name in os.listdir(folder)}


def undo_record(undo_id: str, now: bytes, target: bytes, *targets: str) -> UndoRecord:
    run = run_of(undo_id, Change(b"a.txt", file(now), file(target)), undoes=targets)
    return UndoRecord(undo_id, b"/pro\xff", run, [Step(b"a.txt", file(now), file(target), b".ckpt-\xff.tmp")])

"""Finds the point a verb is to show, and the bytes of its changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckpt_run.capture.compare import Pair, line_counts
from ckpt_run.capture.errors import CkptError, Fault
from ckpt_run.capture.model import Kind, Point
from ckpt_run.shim.cli.undo import project_of

if TYPE_CHECKING:
    from ckpt_run.capture.model import Change, Entry, Run
    from ckpt_run.shim.cli.here import Here


def asked_point(here: Here, text: str | None) -> Point:
    """The point of this id (only the named run of it), the newest without one. Raises CkptError."""
    if text is None:
        points = here.store.points(1)
        if not points:
            raise CkptError(Fault.NO_POINTS)
        return points[0]
    try:
        return here.store.find_point(text)
    except CkptError as error:
        other = project_of(here, text) if error.fault == Fault.UNKNOWN_ID else None
        if other is None:
            raise
        raise CkptError(Fault.OTHER_PROJECT_ID, id=text, top=other) from error


def pair_of(here: Here, change: Change) -> Pair | None:
    """Both sides of a change with their bytes; None where those of a file are not kept."""
    before, after = _bytes(here, change.before), _bytes(here, change.after)
    if before is None or after is None:
        return None
    return Pair(change.path, change.before, before, change.after, after)


def _bytes(here: Here, entry: Entry) -> bytes | None:
    return b"" if entry.kind != Kind.FILE else here.contents(entry)


def counts_of(here: Here, run: Run) -> dict[tuple[str, bytes], tuple[int, int] | None]:
    """Lines (added, removed) of each change of the run whose bytes are kept, None for a binary one."""
    pairs = [pair for change in run.changes if (pair := pair_of(here, change)) is not None]
    return {(run.id, path): lines for path, lines in line_counts(pairs).items()} if pairs else {}

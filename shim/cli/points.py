"""Finds the point a verb is to show, and the bytes of its changes."""

from __future__ import annotations

from ckpt_run.capture.errors import CkptError, Fault
from ckpt_run.capture.model import By, Change, Kind, Point
from ckpt_run.shim.cli.here import found

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ckpt_run.capture.compare import Pair
    from ckpt_run.capture.model import Entry, Path, Run
    from ckpt_run.shim.cli.here import Here

    Lines = tuple[int, int] | None
    """Lines added and removed; None for a binary file."""


def asked_point(here: Here, text: str | None) -> Point:
    """The point of this id (only the named run of it), the newest without one. Raises CkptError."""
    if text is None:
        points = here.store.points(1)
        if not points:
            raise CkptError(Fault.NO_POINTS)
        return points[0]
    point, runs = found(here, text)
    return Point(point.id, runs, started_ns=point.started_ns, prompt=point.prompt, session=point.session)


def folded(runs: Sequence[Run]) -> list[Change]:
    """One change a path over all runs (oldest first): what stood there first, what stands there last.

    A path that ends as it began is left out. Where the witnesses differ, nobody can say for the whole.
    """
    folds: dict[Path, Change] = {}
    for run in runs:
        for change in run.changes:
            first = folds.get(change.path)
            folds[change.path] = change if first is None else _both(first, change)
    return [change for change in folds.values() if not _is_nothing(change)]


def _both(first: Change, last: Change) -> Change:
    return Change(
        first.path,
        first.before,
        last.after,
        by=first.by if first.by == last.by else By.TIME,
        known=first.known,
        reason=first.reason or last.reason,
        numbers=first.numbers if first.reason else last.numbers,
    )


def _is_nothing(change: Change) -> bool:
    is_known = change.before.kind != Kind.FILE or change.before.digest is not None
    return change.reason is None and is_known and change.before == change.after


def is_one_tree(changes: Iterable[Change]) -> bool:
    """Say whether all befores, and all afters, can stand beside each other: no file is where another has a folder.

    One run's changes always can; those of several with somebody's work between them need not.
    """
    listed = list(changes)
    for entries in ({one.path: one.before for one in listed}, {one.path: one.after for one in listed}):
        files = {path for path, entry in entries.items() if entry.kind in {Kind.FILE, Kind.LINK}}
        if any(path[:end] in files for path in files for end in range(len(path)) if path[end] == ord("/")):
            return False
    return True


def pair_of(here: Here, change: Change) -> Pair | None:
    """Both sides of a change with their bytes; None where those of a file are not known."""
    from ckpt_run.capture.compare import Pair

    before, after = _bytes(here, change.path, change.before), _bytes(here, change.path, change.after)
    if before is None or after is None:
        return None
    return Pair(change.path, change.before, before, change.after, after)


def _bytes(here: Here, path: Path, entry: Entry) -> bytes | None:
    return b"" if entry.kind != Kind.FILE else here.contents_at(path, entry)


def counts_of(here: Here, changes: Iterable[Change]) -> dict[Path, Lines]:
    """Lines (added, removed) of each change of a file or link whose bytes are known, None for a binary one."""
    from ckpt_run.capture.compare import line_counts

    pairs = [pair for change in changes if holds_lines(change) and (pair := pair_of(here, change)) is not None]
    return line_counts(pairs) if pairs else {}


def holds_lines(change: Change) -> bool:
    """Say whether a file or link stands on one side at least; folders and special files have no lines."""
    return bool({change.before.kind, change.after.kind} & {Kind.FILE, Kind.LINK})

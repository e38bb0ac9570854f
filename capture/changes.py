"""What a run changed: baseline and aftermath in, changes out. Pure."""

from __future__ import annotations

from ckpt_run.capture.model import ABSENT, Change, Entry, Kind
from ckpt_run.capture.reasons import Reason

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from ckpt_run.capture.before import Before
    from ckpt_run.capture.model import Path


class After:
    """What a path is after the run: its entry, its bytes where they are small text, or why it could not be read."""

    __slots__ = ("data", "entry", "numbers", "reason")

    def __init__(
        self,
        entry: Entry,
        *,
        data: bytes | None = None,
        reason: str | None = None,
        numbers: Mapping[str, int | str] | None = None,
    ) -> None:
        """Hold the facts."""
        self.entry = entry
        self.data = data
        self.reason = reason
        self.numbers = dict(numbers or {})


def between(befores: Mapping[Path, Before], afters: Mapping[Path, After]) -> list[Change]:
    """Tell the changes, by path. A path that is as it was is none."""
    found = []
    for path in sorted(befores):
        change = _change(path, befores[path], afters[path])
        if change is not None:
            found.append(change)
    return found


def settle_mode(before: Before, after: Entry) -> None:
    """Where only the executable bit of before is known, or none at all, take the others from after.

    Git saw no other change. An entry that is gone keeps what Git gives a new file, where the bit is known. Where the
    bit itself changed, and not to what Git gives, nobody knows what the others were.
    """
    if before.entry.kind == after.kind != Kind.LINK and before.entry.mode is None:
        before.entry.mode = after.mode
    if before.executable is None or after.kind != Kind.FILE or after.mode is None:
        return
    mode = after.mode
    if before.executable and not mode & 0o100:
        mode |= (mode & 0o444) >> 2
    elif not before.executable and mode & 0o100:
        mode &= ~0o111
    if mode not in (after.mode, before.entry.mode) and before.reason is None:
        before.reason = Reason.PERMISSIONS_UNKNOWN
    before.entry.mode = mode


def _change(path: Path, before: Before, after: After) -> Change | None:
    settle_mode(before, after.entry)
    if before.reason is not None:
        if before.entry.kind == after.entry.kind == Kind.DIRECTORY and before.entry == after.entry:
            return None
        return Change(path, before.entry, after.entry, reason=before.reason, numbers=before.numbers)
    if after.reason is not None:
        return Change(path, before.entry, after.entry, known=before.known, reason=after.reason, numbers=after.numbers)
    if before.entry == after.entry:
        if _owner_moved(before.entry, after.entry):
            return Change(path, before.entry, after.entry, known=before.known, reason=Reason.OWNER)
        return None
    if Kind.SPECIAL in (before.entry.kind, after.entry.kind):
        return Change(path, before.entry, after.entry, known=before.known, reason=Reason.SPECIAL_FILE)
    return Change(path, before.entry, after.entry, known=before.known)


def _owner_moved(before: Entry, after: Entry) -> bool:
    return before.owner is not None and after.owner is not None and before.owner != after.owner


def gaps(found: Mapping[Path, tuple[str, Mapping[str, int | str]]]) -> list[Change]:
    """Tell the folders and paths that are left as a whole, of which nothing but the reason is known."""
    unknown = Entry(Kind.DIRECTORY)
    return [
        Change(path, ABSENT, unknown, reason=reason, numbers=numbers) for path, (reason, numbers) in found.items()
    ]

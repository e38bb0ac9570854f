"""What undoing one change means for what stands at its path now: a closed table of cases. Pure and total.

It decides; it reads and writes nothing, and promises nothing about whether the bytes can still be had.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from enum import Enum
from itertools import product
from typing import TYPE_CHECKING

from ckpt_run.capture.model import Entry, Kind
from ckpt_run.capture.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MERGE_BYTES_MAX = 1 << 20


class Rule(Enum):
    """How a case is decided."""

    BACK = "what stands there stays: there is nothing to put back"
    PUT = "nothing stands there: the entry from before comes back"
    HOLD = "somebody's work stands there, or nothing that could be written"
    COMPARE = "as before: back; as after: the entry from before comes back; else held"
    MERGE = "as COMPARE, and text that is neither is merged"


@dataclass(frozen=True, slots=True)
class Case:
    """One row of the table: its name, its rule, and the reason when the rule ends in holding the file."""

    name: str
    rule: Rule
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """What the decision needs and entries do not say.

    `is_text` says of an entry of at most MERGE_BYTES_MAX whether it is text, None when its bytes are lost.
    `file_mode` and `folder_mode` serve for entries whose permission bits nobody knows.
    """

    is_text: Callable[[Entry], bool | None]
    file_mode: int
    folder_mode: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What shall stand at the path: `target`, or, when held, the reason with its numbers.

    With `merge`, the target's content comes from merging; its digest is not known yet.
    """

    case: str
    target: Entry | None
    merge: bool = False
    reason: str | None = None
    numbers: Mapping[str, int | str] = field(default_factory=dict)


_LETTERS = {"F": Kind.FILE, "L": Kind.LINK, "D": Kind.DIRECTORY, "S": Kind.SPECIAL, "A": Kind.ABSENT}

# name, now, before, after, rule, reason when held. F file, L link, D directory, S special, A absent.
_ROWS: tuple[tuple[str, str, str, str, Rule, str | None], ...] = (
    ("no change", "FLDSA", "A", "A", Rule.BACK, None),
    ("created, gone since", "A", "A", "FLDS", Rule.BACK, None),
    ("created file", "F", "A", "F", Rule.COMPARE, Reason.CREATED_AND_EDITED),
    ("created link", "L", "A", "L", Rule.COMPARE, Reason.CREATED_AND_EDITED),
    ("created folder", "D", "A", "D", Rule.COMPARE, None),
    ("created, a file since", "F", "A", "LDS", Rule.HOLD, Reason.TYPE_CHANGED_SINCE),
    ("created, a link since", "L", "A", "FDS", Rule.HOLD, Reason.TYPE_CHANGED_SINCE),
    ("created, a folder since", "D", "A", "FLS", Rule.HOLD, Reason.TYPE_CHANGED_SINCE),
    ("created, a special file stands", "S", "A", "FLDS", Rule.HOLD, Reason.SPECIAL_FILE),
    ("deleted", "A", "FLD", "A", Rule.PUT, None),
    ("deleted special file", "A", "S", "A", Rule.HOLD, Reason.SPECIAL_FILE),
    ("deleted, a file since", "F", "F", "A", Rule.COMPARE, Reason.CREATED_SINCE),
    ("deleted, a link since", "L", "L", "A", Rule.COMPARE, Reason.CREATED_SINCE),
    ("deleted, the folder again", "D", "D", "A", Rule.COMPARE, None),
    ("deleted, a special file again", "S", "S", "A", Rule.BACK, None),
    ("deleted, another file since", "F", "LDS", "A", Rule.HOLD, Reason.CREATED_SINCE),
    ("deleted, another link since", "L", "FDS", "A", Rule.HOLD, Reason.CREATED_SINCE),
    ("deleted, a folder since", "D", "FLS", "A", Rule.HOLD, Reason.CREATED_SINCE),
    ("deleted, a special file since", "S", "FLD", "A", Rule.HOLD, Reason.CREATED_SINCE),
    ("changed, deleted since", "A", "FLDS", "FLDS", Rule.HOLD, Reason.DELETED_SINCE),
    ("a special file again", "S", "S", "FLDS", Rule.BACK, None),
    ("changed, a special file stands", "S", "FLD", "FLDS", Rule.HOLD, Reason.SPECIAL_FILE),
    ("a special file was there", "FLD", "S", "FLDS", Rule.HOLD, Reason.SPECIAL_FILE),
    ("modified file", "F", "F", "F", Rule.MERGE, None),
    ("modified link", "L", "L", "L", Rule.COMPARE, Reason.LINK_CHANGED_SINCE),
    ("folder's permissions", "D", "D", "D", Rule.COMPARE, None),
    ("file replaced, a file again", "F", "F", "LDS", Rule.COMPARE, Reason.TYPE_CHANGED_SINCE),
    ("link replaced, a link again", "L", "L", "FDS", Rule.COMPARE, Reason.TYPE_CHANGED_SINCE),
    ("folder replaced, a folder again", "D", "D", "FLS", Rule.COMPARE, None),
    ("turned into a file", "F", "LD", "F", Rule.COMPARE, Reason.CHANGED_SINCE),
    ("turned into a link", "L", "FD", "L", Rule.COMPARE, Reason.LINK_CHANGED_SINCE),
    ("turned into a folder", "D", "FL", "D", Rule.COMPARE, None),
    ("replaced, a file since", "F", "LD", "LDS", Rule.HOLD, Reason.TYPE_CHANGED_SINCE),
    ("replaced, a link since", "L", "FD", "FDS", Rule.HOLD, Reason.TYPE_CHANGED_SINCE),
    ("replaced, a folder since", "D", "FL", "FLS", Rule.HOLD, Reason.TYPE_CHANGED_SINCE),
)


def _table() -> dict[tuple[str, str, str], Case]:
    """Spell the rows out to one case for each three kinds; two rows for the same three are a mistake."""
    table: dict[tuple[str, str, str], Case] = {}
    for name, now, before, after, rule, reason in _ROWS:
        for letters in product(now, before, after):
            key = (_LETTERS[letters[0]], _LETTERS[letters[1]], _LETTERS[letters[2]])
            if key in table:
                raise ValueError(key)
            table[key] = Case(name, rule, reason)
    return table


CASES = _table()


def undo_change(now: Entry, before: Entry, after: Entry, *, facts: Facts) -> Outcome:
    """Say what shall stand at a path where `now` stands, when the change `before -> after` is undone."""
    case = CASES[now.kind, before.kind, after.kind]
    if case.rule is Rule.BACK:
        return Outcome(case.name, now)
    if case.rule is Rule.HOLD:
        return Outcome(case.name, None, reason=case.reason)
    if case.rule is Rule.PUT:
        return Outcome(case.name, _whole(before, facts))
    if has_same_content(now, before):
        return _with_mode(case, now, now, before, after)
    if has_same_content(now, after):
        return _put_back(case, now, before, after, facts)
    if case.rule is Rule.MERGE:
        return _merged(case, now, before, after, facts)
    return Outcome(case.name, None, reason=case.reason or Reason.CHANGED_SINCE)


def has_same_content(one: Entry, other: Entry) -> bool:
    """Say whether both are known to hold the same; a file whose bytes nobody read is like no other."""
    if one.kind == Kind.FILE and one.digest is None:
        return False
    return one.content == other.content


def _put_back(case: Case, now: Entry, before: Entry, after: Entry, facts: Facts) -> Outcome:
    """`now` holds what the command left: the entry from before comes back, permission bits looked at apart."""
    if before.kind == now.kind:
        return _with_mode(case, before, now, before, after)
    if None not in (now.mode, after.mode) and now.mode != after.mode:
        return Outcome(case.name, None, reason=Reason.PERMISSIONS_CHANGED_SINCE)
    return Outcome(case.name, _whole(before, facts))


def _with_mode(case: Case, content: Entry, now: Entry, before: Entry, after: Entry) -> Outcome:
    """Decide the permission bits for an entry that holds `content`."""
    owner = before.owner or now.owner
    if now.kind == Kind.LINK or now.mode == before.mode or before.mode is None or now.mode is None:
        mode = now.mode
    elif after.kind == Kind.ABSENT and now.kind == Kind.FILE:
        # Somebody made the file anew, with the same bytes and other permissions: it is theirs.
        return Outcome(case.name, None, reason=case.reason)
    elif after.kind != now.kind or after.mode is None or before.mode == after.mode:
        mode = now.mode
    elif now.mode == after.mode:
        mode = before.mode
    else:
        return Outcome(case.name, None, reason=Reason.PERMISSIONS_CHANGED_SINCE)
    return Outcome(case.name, with_mode(content, mode, owner))


def _merged(case: Case, now: Entry, before: Entry, after: Entry, facts: Facts) -> Outcome:
    """All three are files and differ: text is merged, anything else is held."""
    if after.digest is None:
        return Outcome(case.name, None, reason=Reason.CHANGED_SINCE)
    largest = max(entry.size or 0 for entry in (now, before, after))
    if largest > MERGE_BYTES_MAX:
        numbers = {"size_bytes": largest, "limit_bytes": MERGE_BYTES_MAX}
        return Outcome(case.name, None, reason=Reason.LARGE_CHANGED_SINCE, numbers=numbers)
    are_text = [facts.is_text(entry) for entry in (now, before, after)]
    if False in are_text:
        return Outcome(case.name, None, reason=Reason.BINARY_CHANGED_SINCE)
    if None in are_text:
        return Outcome(case.name, None, reason=Reason.CHANGED_SINCE)
    outcome = _with_mode(case, now, now, before, after)
    if outcome.target is None:
        return outcome
    unread = Entry(Kind.FILE, mode=outcome.target.mode, owner=now.owner)
    return Outcome(case.name, unread, merge=True)


def with_mode(entry: Entry, mode: int | None, owner: tuple[int, int] | None) -> Entry:
    """The same entry with these permission bits and this owner."""
    return Entry(
        entry.kind,
        mode=mode,
        size=entry.size,
        digest=entry.digest,
        target=entry.target,
        oid=entry.oid,
        owner=owner,
    )


def _whole(entry: Entry, facts: Facts) -> Entry:
    """The entry with permission bits for certain, where it has any."""
    if entry.mode is not None or entry.kind not in {Kind.FILE, Kind.DIRECTORY}:
        return entry
    return with_mode(entry, facts.file_mode if entry.kind == Kind.FILE else facts.folder_mode, entry.owner)


def default_modes() -> tuple[int, int]:
    """The permission bits that this process gives a new file and a new folder."""
    umask = os.umask(0o077)  # umask(2) cannot be read without being set
    os.umask(umask)
    return 0o666 & ~umask, 0o777 & ~umask

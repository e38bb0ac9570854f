"""The words of a plan as values: item, held, left, choices, decision. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ckpt_run.capture.model import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ckpt_run.capture.model import Entry, Path, Run


class Action:
    """What a plan does at a path."""

    RESTORE = "restore"
    RECOVER = "recover"
    REMOVE = "remove"
    CHMOD = "chmod"
    MERGE = "merge"
    MAKE_FOLDER = "make_folder"
    REMOVE_FOLDER = "remove_folder"


@dataclass(frozen=True, slots=True)
class Item:
    """One path that will change: what stands there, what shall stand there.

    `merged` holds the target's bytes when they come from merging. `standing` names what the folder at the path
    holds, where it has to go. `implied` marks a folder that no change names but a file to be put back needs.
    """

    path: Path
    action: str
    now: Entry
    target: Entry
    merged: bytes | None = None
    standing: frozenset[bytes] = frozenset()
    implied: bool = False


@dataclass(frozen=True, slots=True)
class Held:
    """One path that the plan holds back, and why. `forced` is what *Undo anyway* would do, None if nothing.

    `is_mergeable` says that it is text whose edits overlap: it is left, and the rest is undone all the same.
    """

    path: Path
    reason: str
    numbers: Mapping[str, int | str] = field(default_factory=dict)
    now: Entry | None = None
    forced: Item | None = None
    is_mergeable: bool = False


@dataclass(frozen=True, slots=True)
class Left:
    """One path (or an older change of it) that the undo leaves, and why; it stops nothing."""

    path: Path
    reason: str
    numbers: Mapping[str, int | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plan:
    """What an undo of `runs` (newest first) would do, path by path.

    `already` are paths that are back; `by_time` those of which no witness says who changed them. `kinds` says
    what stands at each folder above a path of the plan; `implied` holds the folders that may have to be made.
    """

    runs: tuple[Run, ...]
    items: tuple[Item, ...]
    held: tuple[Held, ...]
    left: tuple[Left, ...]
    already: tuple[Path, ...]
    by_time: tuple[Path, ...]
    kinds: Mapping[Path, str]
    implied: Mapping[Path, Item]

    @property
    def git_moved(self) -> tuple[str, ...]:
        """What the runs moved in Git, which an undo leaves; each once."""
        return tuple(dict.fromkeys(name for run in self.runs for name in run.git_moved))

    @property
    def background(self) -> tuple[tuple[int, str], ...]:
        """The processes (pid, name) of the runs that were still alive when their command ended."""
        return tuple(dict.fromkeys(one for run in self.runs for one in run.background))


@dataclass(frozen=True, slots=True)
class Choices:
    """What a person decided. A folder stands for everything below it; an empty `only` means everything.

    `keep` leaves these paths as they are; `force` undoes held ones all the same; `rest` leaves the other held
    ones and undoes the rest.
    """

    only: frozenset[Path] = frozenset()
    keep: frozenset[Path] = frozenset()
    force: frozenset[Path] = frozenset()
    rest: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """What will be done, in no order; or, with `stopped`, why nothing is: files that a person must decide on."""

    plan: Plan
    items: tuple[Item, ...]
    kept: tuple[Held, ...]
    left: tuple[Left, ...]
    stopped: tuple[Held, ...]


def action_of(now: Entry, target: Entry, *, is_merge: bool) -> str:
    """Name what turns `now` into `target`; the two are not equal."""
    if target.kind == Kind.ABSENT:
        return Action.REMOVE_FOLDER if now.kind == Kind.DIRECTORY else Action.REMOVE
    if now.kind == Kind.ABSENT:
        return Action.MAKE_FOLDER if target.kind == Kind.DIRECTORY else Action.RECOVER
    if is_merge:
        return Action.MERGE
    return Action.CHMOD if now.content == target.content else Action.RESTORE


def parents(path: Path) -> list[Path]:
    """The folders above a path, innermost first, without the top level."""
    found = []
    while b"/" in path:
        path = path.rpartition(b"/")[0]
        found.append(path)
    return found


def is_covered(path: Path, by: frozenset[Path]) -> bool:
    """Say whether one of the paths is this one or a folder above it; "" covers everything."""
    return bool(by) and (path in by or b"" in by or any(parent in by for parent in parents(path)))

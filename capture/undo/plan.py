"""What an undo would do, path by path: each path folded through `undo_change`, newest run first.

Planning reads the project and writes nothing in it. A plan is what stood there at that moment; only `check`,
under the lock, says that it still holds.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

from ckpt_run.capture.errors import Fault, UndoError
from ckpt_run.capture.model import ABSENT, By, Entry, Kind
from ckpt_run.capture.reasons import Reason
from ckpt_run.capture.undo.change import Facts, default_modes, has_same_content, undo_change, with_mode
from ckpt_run.capture.undo.decide import settle
from ckpt_run.capture.undo.exact import ExactTree
from ckpt_run.capture.undo.items import Action, Held, Item, Left, Plan, action_of, parents
from ckpt_run.capture.undo.merge import merged
from ckpt_run.capture.undo.sources import Sources
from ckpt_run.capture.worktree import ChangedWhileRead, digest_of, kind_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ckpt_run.capture.model import Change, Path, Run
    from ckpt_run.capture.undo.change import Outcome
    from ckpt_run.capture.undo.sources import Contents
    from ckpt_run.capture.worktree import Tree

NO_LIMIT = 1 << 62


def plan_undo(
    runs: Sequence[Run], tree: Tree, contents: Contents, *, scratch: bytes, others: Iterable[Path] = ()
) -> Plan:
    """Plan to take back `runs`, given newest first.

    `scratch` is a private folder outside the project, for merging. `others` are paths among which a file that is
    gone may stand under a new name. Raises UndoError for a path that is none of the project's.
    """
    changes: dict[Path, list[Change]] = {}
    for run in runs:
        for change in run.changes:
            changes.setdefault(change.path, []).append(change)
    with ExactTree(tree) as exact:
        planner = _Planner(exact, Sources(exact, contents), scratch, tuple(others))
        folds = [planner.fold(path, newest_first) for path, newest_first in changes.items()]
        return _gather(tuple(runs), folds, _kinds(exact, changes), planner)


class _Fold:
    """One path's way back: what stands there now, and what would after the changes taken back so far.

    `first` is the oldest entry that the changes know: what *Undo anyway* puts back.
    """

    __slots__ = ("by", "first", "held", "is_merge", "left", "now", "path", "state")

    def __init__(self, path: Path, now: Entry) -> None:
        self.path = path
        self.now = now
        self.state = now
        self.first: Entry | None = None
        self.is_merge = False
        self.held: Held | None = None
        self.left: Left | None = None
        self.by: set[str] = set()


class _Planner:
    """Reads each path once and folds its changes."""

    def __init__(self, tree: Tree, sources: Sources, scratch: bytes, others: Sequence[Path]) -> None:
        self._tree = tree
        self._scratch = scratch
        self._others = others
        self.sources = sources
        self.file_mode, self.folder_mode = default_modes()

    def fold(self, path: Path, changes: Sequence[Change]) -> _Fold:
        """Take the changes of one path back, newest first, until one is a gap or held."""
        if changes[0].reason is not None:
            gap = _Fold(path, ABSENT)  # Undo leaves it: what stands there is not even read
            gap.left = Left(path, changes[0].reason, changes[0].numbers)
            return gap
        _refuse_foreign(path)
        now, problem = self._now(path)
        fold = _Fold(path, now)
        fold.held = problem
        for change in changes:
            if change.reason is not None:
                fold.left = Left(path, change.reason, change.numbers)
                break
            fold.by.add(change.by)
            before = self.sources.known(change.before)
            fold.first = before
            if before is None:
                fold.held = fold.held or Held(path, Reason.BYTES_LOST, now=now)
            elif fold.held is None:
                self._step(fold, before, self.sources.known(change.after) or change.after)
        return fold

    def _now(self, path: Path) -> tuple[Entry, Held | None]:
        try:
            return self._tree.entry(path, limit_bytes=NO_LIMIT), None
        except ChangedWhileRead:
            return ABSENT, Held(path, Reason.CHANGED_WHILE_READ)
        except OSError as error:
            return ABSENT, Held(path, Reason.UNREADABLE_NOW, {"cause": error.strerror or str(error)})

    def _step(self, fold: _Fold, before: Entry, after: Entry) -> None:
        """Take one change back; the fold ends up held where that cannot be."""
        facts = Facts(partial(self.sources.is_text_at, fold.path), self.file_mode, self.folder_mode)
        outcome = undo_change(fold.state, before, after, facts=facts)
        if outcome.target is None:
            fold.held = self._held(fold, outcome, after)
        elif outcome.merge:
            self._merge(fold, outcome.target, before, after)
        else:
            fold.state = outcome.target
            fold.is_merge = fold.is_merge and outcome.target.digest in self.sources.made

    def _merge(self, fold: _Fold, target: Entry, before: Entry, after: Entry) -> None:
        texts = [self.sources.bytes_at(fold.path, entry) for entry in (after, fold.state, before)]
        base, ours, theirs = texts
        if base is None or ours is None or theirs is None:
            fold.held = Held(fold.path, Reason.CHANGED_SINCE, now=fold.now)
            return
        result = merged(base, ours, theirs, scratch=self._scratch)
        if result is None:
            fold.held = Held(fold.path, Reason.OVERLAP, now=fold.now, is_mergeable=True)
            return
        digest = digest_of(result)
        self.sources.made[digest] = result
        fold.state = Entry(Kind.FILE, mode=target.mode, size=len(result), digest=digest, owner=target.owner)
        fold.is_merge = True

    def _held(self, fold: _Fold, outcome: Outcome, after: Entry) -> Held:
        reason = outcome.reason or Reason.CHANGED_SINCE
        numbers = dict(outcome.numbers)
        if reason == Reason.DELETED_SINCE and fold.now.kind == Kind.ABSENT:
            new_name = self._new_name(after)
            if new_name is not None:
                reason, numbers = Reason.RENAMED_SINCE, {"to": os.fsdecode(new_name)}
        return Held(fold.path, reason, numbers, now=fold.now)

    def _new_name(self, entry: Entry) -> Path | None:
        """The path among the others at which the same content stands."""
        if entry.kind not in {Kind.FILE, Kind.LINK} or not entry.size:
            return None
        for path in self._others:
            info = self._tree.status(path)
            if info is None or kind_of(info.st_mode) != entry.kind or info.st_size != entry.size:
                continue
            there, _ = self._now(path)
            if has_same_content(there, entry):
                return path
        return None

    def forced(self, fold: _Fold) -> Item | None:
        """What *Undo anyway* does: the oldest entry known comes back, whatever stands there."""
        first = fold.first
        if first is None or fold.held is None or fold.held.now is None or first == fold.now:
            return None
        if Kind.SPECIAL in (first.kind, fold.now.kind):
            return None
        if first.kind in (Kind.FILE, Kind.DIRECTORY) and first.mode is None:
            mode = self.file_mode if first.kind == Kind.FILE else self.folder_mode
            first = with_mode(first, fold.now.mode if fold.now.kind == first.kind else mode, first.owner)
        return self.item(fold, first)

    def item(self, fold: _Fold, target: Entry) -> Item | None:
        """The item that puts `target` in place; None when its bytes are lost."""
        is_merge = fold.is_merge and target is fold.state
        action = action_of(fold.now, target, is_merge=is_merge)
        data = None
        if target.kind == Kind.FILE and target.content != fold.now.content:
            data = self.sources.bytes_of(target)
            if data is None:
                return None
        standing: frozenset[bytes] = frozenset()
        if fold.now.kind == Kind.DIRECTORY and target.kind != Kind.DIRECTORY:
            standing = _names_in(self._tree, fold.path)
        return Item(fold.path, action, fold.now, target, data if is_merge else None, standing)


def _gather(runs: tuple[Run, ...], folds: Sequence[_Fold], kinds: dict[Path, str], planner: _Planner) -> Plan:
    """Put the folds together: what can be done beside each other, what is held, what is left."""
    folder = Entry(Kind.DIRECTORY, mode=planner.folder_mode)
    implied = {
        path: Item(path, Action.MAKE_FOLDER, ABSENT, folder, implied=True)
        for path, kind in kinds.items()
        if kind == Kind.ABSENT
    }
    wanted: dict[Path, Item] = {}
    held: list[Held] = []
    for fold in folds:
        if fold.held is not None:
            held.append(_held_with(fold.held, planner.forced(fold), kinds))
        elif fold.state != fold.now:
            item = planner.item(fold, fold.state)
            if item is None:
                held.append(Held(fold.path, Reason.BYTES_LOST, now=fold.now))
            else:
                wanted[fold.path] = item
    items, blocked, full = settle(wanted, kinds, implied)
    held += [_held_with(one, wanted[one.path], kinds) for one in blocked]
    named = set(wanted) | {one.path for one in held}
    return Plan(
        runs=runs,
        items=tuple(sorted(items, key=lambda item: item.path)),
        held=tuple(sorted(held, key=lambda one: one.path)),
        left=(*(fold.left for fold in folds if fold.left is not None), *full),
        already=tuple(fold.path for fold in folds if fold.by and fold.path not in named),
        by_time=tuple(fold.path for fold in folds if fold.by == {By.TIME} and fold.path in named),
        kinds=kinds,
        implied=implied,
    )


def _held_with(held: Held, forced: Item | None, kinds: dict[Path, str]) -> Held:
    """The same with what forcing does; a path below a link or file is held for that, whatever else is wrong."""
    stands = {kinds[parent] for parent in parents(held.path)} - {Kind.DIRECTORY, Kind.ABSENT}
    reason = Reason.PARENT_CHANGED_SINCE if stands else held.reason
    numbers = {} if stands else held.numbers
    return Held(held.path, reason, numbers, held.now, forced, held.is_mergeable and not stands)


def _kinds(tree: Tree, paths: Iterable[Path]) -> dict[Path, str]:
    """What stands at each folder above the paths."""
    kinds: dict[Path, str] = {}
    for path in paths:
        for parent in parents(path):
            if parent not in kinds:
                info = tree.status(parent)
                kinds[parent] = Kind.ABSENT if info is None else kind_of(info.st_mode)
    return kinds


def _names_in(tree: Tree, path: Path) -> frozenset[bytes]:
    fd = tree.open_folder(path)
    try:
        return frozenset(os.fsencode(name) for name in os.listdir(fd))
    finally:
        os.close(fd)


def _refuse_foreign(path: Path) -> None:
    """No record of ours names such a path: a damaged or forged one must not reach the files behind it."""
    names = path.split(b"/")
    if not path or any(name in {b"", b".", b".."} or name.lower() == b".git" for name in names) or b"\0" in path:
        raise UndoError(Fault.PATH_OUTSIDE_PROJECT, path=path)

"""Carries out a decision: everything, or nothing. It decides nothing itself.

1 lock, look at every path again               crash: nothing was written
2 rescue and steps into the store, durable     crash: an open record; recover closes it
3 write siblings where their folders stand     crash: recover removes them
4 one rename after the other                   crash: recover goes back by the siblings, or by the rescue
5 read everything back, remove the siblings,   crash: recover goes forward where all targets stand, else back
  give folders their permission bits
6 close the record with the undo's own run     the instant that counts
"""

from __future__ import annotations

import errno
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ckpt_run.capture import durable, place
from ckpt_run.capture.errors import Fault, StoreError, UndoError
from ckpt_run.capture.model import By, Change, Kind, Known, Run, State, Step, UndoRecord
from ckpt_run.capture.place import Stale, is_as
from ckpt_run.capture.reasons import Reason
from ckpt_run.capture.undo.exact import ExactTree
from ckpt_run.capture.undo.items import Action, Held
from ckpt_run.capture.undo.locks import locked
from ckpt_run.capture.undo.recover import loosen, restore_folder_mode, roll_back
from ckpt_run.capture.undo.rescue import STORED_BYTES_MAX, Rescue, Shelf, is_large
from ckpt_run.capture.worktree import ChangedWhileRead, kind_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ckpt_run.capture.model import Entry, Path
    from ckpt_run.capture.store import Store
    from ckpt_run.capture.undo.items import Decision, Item, Left
    from ckpt_run.capture.undo.locks import Held as LocksHeld
    from ckpt_run.capture.undo.sources import Contents
    from ckpt_run.capture.worktree import Tree

    Progress = Callable[[int, int], None]
    """Called with (steps done, steps in all)."""

_LINKABLE = (Kind.FILE, Kind.LINK)


class ChangedSince(Exception):  # noqa: N818  # somebody's doing, not a fault of ours
    """Somebody changed files after the plan was shown; nothing was written. `held` names them."""

    def __init__(self, held: Sequence[Held]) -> None:
        """Hold what changed."""
        super().__init__(held)
        self.held = tuple(held)


class CheckedPlan:
    """A decision that still held when every path was looked at again, under the locks. Only `check` makes one."""

    __slots__ = ("decision", "items")

    def __init__(self, decision: Decision, items: tuple[Item, ...]) -> None:
        """Hold the items in the order in which they are done."""
        self.decision = decision
        self.items = items


@dataclass(frozen=True, slots=True)
class Undone:
    """What an undo did, path by path; `run_id` names it in the store, None when there was nothing to do."""

    run_id: str | None
    restored: tuple[Path, ...]
    recovered: tuple[Path, ...]
    removed: tuple[Path, ...]
    merged: tuple[Path, ...]
    chmod: tuple[Path, ...]
    kept: tuple[Held, ...]
    left: tuple[Left, ...]
    git_moved: tuple[str, ...]
    background: tuple[tuple[int, str], ...]

    @property
    def result(self) -> str:
        """In one word: `restored`, `partial` (some files were left as they are) or `nothing`."""
        if self.kept or self.left:
            return "partial"
        return "nothing" if self.run_id is None else "restored"


@dataclass(frozen=True, slots=True)
class Naming:
    """What the undo is called as a run of its own. `cwd` is absolute; `redoes` is the undo that it takes back."""

    undo_id: str
    argv: tuple[bytes, ...]
    cwd: bytes
    redoes: str | None = None


def undo(
    decision: Decision,
    store: Store,
    tree: Tree,
    contents: Contents,
    naming: Naming,
    *,
    progress: Progress | None = None,
) -> Undone:
    """Lock, check and apply. Raises ChangedSince, UndoError, StoreError; then nothing was changed.

    Only after UndoError(ROLL_BACK_FAILED) something was; its facts say what (`failures`, `kept`).
    """
    with locked(store.folder) as locks, ExactTree(tree) as exact:
        return apply(check(decision, exact, locks), store, exact, contents, naming, progress=progress)


def check(decision: Decision, tree: Tree, locks: LocksHeld) -> CheckedPlan:  # noqa: ARG001  # the proof is the type
    """Look at every path of the decision again, with the locks held. Raises ChangedSince."""
    if decision.stopped:
        raise ChangedSince(decision.stopped)
    changed = [
        Held(item.path, Reason.CHANGED_SINCE, now=item.now) for item in decision.items if not _holds(item, tree)
    ]
    for path, kind in decision.plan.kinds.items():
        info = tree.status(path)
        if kind != (Kind.ABSENT if info is None else kind_of(info.st_mode)):
            changed.append(Held(path, Reason.PARENT_CHANGED_SINCE))
    if changed:
        raise ChangedSince(changed)
    return CheckedPlan(decision, tuple(sorted(decision.items, key=_order)))


def _holds(item: Item, tree: Tree) -> bool:
    try:
        if not is_as(tree.entry(item.path, limit_bytes=place.NO_LIMIT), item.now):
            return False
        if not item.standing:
            return True
        fd = tree.open_folder(item.path)
    except (OSError, ChangedWhileRead):
        return False
    try:
        return frozenset(os.fsencode(name) for name in os.listdir(fd)) == item.standing
    finally:
        os.close(fd)


def _order(item: Item) -> tuple[int, int, Path]:
    """What goes goes deepest first, what comes comes outermost first, permission bits of folders come last."""
    depth = item.path.count(b"/")
    now, target = item.now.kind, item.target.kind
    if now == Kind.DIRECTORY:
        return (4, -depth, item.path) if target == Kind.DIRECTORY else (1, -depth, item.path)
    if target == Kind.ABSENT:
        return (0, -depth, item.path)
    return (2 if target == Kind.DIRECTORY else 3, depth, item.path)


def apply(
    checked: CheckedPlan,
    store: Store,
    tree: Tree,
    contents: Contents,
    naming: Naming,
    *,
    progress: Progress | None = None,
) -> Undone:
    """Carry out the plan, wholly or not at all; see `undo`."""
    decision = checked.decision
    if not checked.items:
        return _undone(decision, (), None)
    if store.open_undos():
        raise UndoError(Fault.ROLL_BACK_FAILED, failures=(), kept=())
    record = _record(checked, tree, naming)
    made = {item.target.digest: item.merged for item in checked.items if item.merged and item.target.digest}
    shelf = Shelf(store, record.id)
    _require_room(tree, record.steps)
    try:
        shelf.save_large(tree, record.steps)
        store.open_undo(record, Rescue(tree, record.steps, made))
    except OSError as error:
        raise UndoError(Fault.STORE_FULL, cause=error.strerror) from error
    except Stale as stale:
        shelf.clear()
        raise ChangedSince([Held(stale.path, Reason.CHANGED_SINCE)]) from None

    def bytes_of(entry: Entry) -> bytes | None:
        return made.get(entry.digest or b"") or contents(entry)

    try:
        _Steps(tree, record.steps, bytes_of, progress).run()
        store.finish_undo(record, {})
    except BaseException as problem:
        _fail(problem, record, store, tree, shelf)
        raise
    shelf.clear()
    return _undone(decision, checked.items, record.run.id)


def _record(checked: CheckedPlan, tree: Tree, naming: Naming) -> UndoRecord:
    steps = [
        Step(item.path, item.now, item.target, durable.temporary_name(naming.undo_id, number))
        for number, item in enumerate(checked.items)
    ]
    started = time.time_ns()
    changes = [_change(step) for step in steps]
    run = Run(
        naming.undo_id,
        naming.argv,
        naming.cwd,
        started,
        ended_ns=started,
        exit_code=0,
        state=State.ENDED,
        changes=changes,
        undoes=[run.id for run in checked.decision.plan.runs],
        redoes=naming.redoes,
    )
    return UndoRecord(naming.undo_id, tree.top, run, steps)


def _change(step: Step) -> Change:
    """The step as a change of the undo's own run: what redo takes back."""
    if is_large(step.now):
        numbers = {"size_bytes": step.now.size or 0, "limit_bytes": STORED_BYTES_MAX}
        return Change(step.path, step.now, step.target, by=By.TRACED, reason=Reason.TOO_LARGE, numbers=numbers)
    return Change(step.path, step.now, step.target, by=By.TRACED, known=Known.COPY)


def _require_room(tree: Tree, steps: Sequence[Step]) -> None:
    """Refuse before the first write where the project's file system has no room for the siblings."""
    needed = sum(step.target.size or 0 for step in steps if step.target.content != step.now.content)
    room = os.fstatvfs(tree.fd)
    if room.f_flag & os.ST_RDONLY:
        raise UndoError(Fault.READ_ONLY_PROJECT, path=tree.top, cause=os.strerror(errno.EROFS))
    if needed > room.f_bavail * room.f_frsize:
        path = max(steps, key=lambda step: step.target.size or 0).path
        raise UndoError(Fault.COULD_NOT_WRITE, path=path, cause=os.strerror(errno.ENOSPC))


class _At(Exception):  # noqa: N818  # carries a failure to where it is told
    """A step failed: which, and why."""

    def __init__(self, path: Path, problem: OSError | Stale) -> None:
        super().__init__(path)
        self.path = path
        self.problem = problem


class _Steps:
    """Steps 3 to 5 of the protocol."""

    def __init__(
        self,
        tree: Tree,
        steps: Sequence[Step],
        contents: Contents,
        progress: Progress | None,
    ) -> None:
        self._tree = tree
        self._steps = steps
        self._contents = contents
        self._progress = progress
        self._prepared: set[Path] = set()
        self._dropped: set[Path] = set()

    def run(self) -> None:
        """Do all of it; raises _At with the step that failed."""
        for step in sorted(self._steps, key=lambda one: one.path.count(b"/")):
            if step.now.kind == step.target.kind == Kind.DIRECTORY:
                self._do(step, lambda step: loosen(self._tree, step.path))
        for step in self._steps:
            self._do(step, self._prepare_early)
        for number, step in enumerate(self._steps):
            self._do(step, self._move)
            if self._progress is not None:
                self._progress(number + 1, len(self._steps))
        for step in self._steps:
            if step.target.kind != Kind.DIRECTORY:
                self._do(step, self._read_back)
        for step in self._steps:
            self._do(step, self._drop)
        # Last, and innermost first: a folder may become one that nothing can be written to or read from.
        for step in sorted(self._steps, key=lambda one: one.path.count(b"/"), reverse=True):
            if step.target.kind == Kind.DIRECTORY:
                self._do(step, lambda step: restore_folder_mode(self._tree, step.path, step.target))
                self._do(step, self._read_back)

    def _do(self, step: Step, what: Callable[[Step], None]) -> None:
        try:
            what(step)
        except (OSError, Stale) as problem:
            raise _At(step.path, problem) from problem

    def _prepare_early(self, step: Step) -> None:
        """Write the siblings before anything is renamed, where the folder to write them in stands already."""
        folder = step.path.rpartition(b"/")[0]
        info = self._tree.status(folder) if folder else os.fstat(self._tree.fd)
        if info is not None and kind_of(info.st_mode) == Kind.DIRECTORY:
            self._prepare(step)

    def _prepare(self, step: Step) -> None:
        if step.path in self._prepared or step.target.kind not in _LINKABLE or _is_chmod(step):
            return
        place.prepare(self._tree, step, self._data(step))
        self._prepared.add(step.path)

    def _data(self, step: Step) -> bytes:
        if step.target.kind != Kind.FILE or _is_chmod(step):
            return b""
        data = self._contents(step.target)
        if data is None:
            raise Stale(step.path)
        return data

    def _move(self, step: Step) -> None:
        if step.now.kind == step.target.kind == Kind.DIRECTORY:
            return
        if step.now.kind == Kind.DIRECTORY:
            self._empty(step.path)
        self._prepare(step)
        place.move(self._tree, step, self._data(step))

    def _empty(self, path: Path) -> None:
        """A folder about to go holds the siblings of what was removed from it; their bytes are in the rescue."""
        for step in self._steps:
            if step.path.rpartition(b"/")[0] == path and step.now.kind in _LINKABLE:
                place.drop(self._tree, step)
                self._dropped.add(step.path)

    def _read_back(self, step: Step) -> None:
        if not is_as(self._tree.entry(step.path, limit_bytes=place.NO_LIMIT), step.target):
            raise Stale(step.path)

    def _drop(self, step: Step) -> None:
        if step.path not in self._dropped:
            place.drop(self._tree, step)


def _is_chmod(step: Step) -> bool:
    return step.now.kind == step.target.kind and step.now.content == step.target.content


def _fail(problem: BaseException, record: UndoRecord, store: Store, tree: Tree, shelf: Shelf) -> None:
    """Roll back, close the record, and say which file was at fault. Returns to raise what is no fault of a file."""
    kept, failures = roll_back(record, tree, shelf)
    if failures:
        raise UndoError(
            Fault.ROLL_BACK_FAILED, path=failures[0].path, cause=failures[0].cause, failures=failures, kept=kept
        ) from problem
    try:
        store.abandon_undo(record.id)
        shelf.clear(but=frozenset(one.rescue for one in kept))
    except (OSError, StoreError):
        pass  # The record stays open, everything stands as before: the next command closes it.
    if isinstance(problem, _At):
        if isinstance(problem.problem, Stale):
            raise ChangedSince([Held(problem.path, Reason.CHANGED_SINCE)]) from problem
        fault = Fault.READ_ONLY_PROJECT if problem.problem.errno == errno.EROFS else Fault.COULD_NOT_WRITE
        raise UndoError(fault, path=problem.path, cause=problem.problem.strerror, kept=kept) from problem


def _undone(decision: Decision, items: Sequence[Item], run_id: str | None) -> Undone:
    def done(*actions: str) -> tuple[Path, ...]:
        return tuple(sorted(item.path for item in items if item.action in actions and not item.implied))

    return Undone(
        run_id=run_id,
        restored=done(Action.RESTORE),
        recovered=done(Action.RECOVER, Action.MAKE_FOLDER),
        removed=done(Action.REMOVE, Action.REMOVE_FOLDER),
        merged=done(Action.MERGE),
        chmod=done(Action.CHMOD),
        kept=decision.kept,
        left=decision.left,
        git_moved=decision.plan.git_moved,
        background=decision.plan.background,
    )

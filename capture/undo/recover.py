"""Takes back an undo that did not end, or closes one that only lacked its closing; any number of times.

What stands at a path and at its sibling tells how far the undo came. Bytes that are neither the entry from before
the undo nor the one it meant to put there are somebody's: they stay, and what was meant for that path is kept beside
the store and named.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ckpt_run.capture import durable, place
from ckpt_run.capture.model import Entry, Kind, Step
from ckpt_run.capture.place import Stale, folder_of, is_as, standing
from ckpt_run.capture.undo.exact import ExactTree
from ckpt_run.capture.undo.locks import undo_lock
from ckpt_run.capture.undo.rescue import Shelf
from ckpt_run.capture.worktree import is_absence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ckpt_run.capture.model import Path, UndoRecord
    from ckpt_run.capture.store import Store
    from ckpt_run.capture.worktree import Tree

_LINKABLE = (Kind.FILE, Kind.LINK)


class Result:
    """How a recovery ended."""

    FORWARD = "forward"
    BACK = "back"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Kept:
    """Bytes that could not go to `path`, because somebody's stand there: they are in the file `rescue`."""

    path: Path
    rescue: bytes


@dataclass(frozen=True, slots=True)
class Failure:
    """A path that could not be put back, the system's words for it, and how it stands.

    `stands` is `before` (as before the undo), `after` (as the undo wanted it) or `between`.
    """

    path: Path
    cause: str
    stands: str


@dataclass(frozen=True, slots=True)
class Recovered:
    """An undo that a crash had left open: which, how it was ended, what was kept, what is still wrong."""

    undo_id: str
    result: str
    kept: tuple[Kept, ...]
    failures: tuple[Failure, ...]


def recover(store: Store, tree: Tree) -> list[Recovered]:
    """End every undo whose process died; nothing while one is alive. Raises StoreError."""
    records = store.open_undos()
    if not records:
        return []
    lock = undo_lock(store.folder)
    if lock is None:
        return []
    with lock, ExactTree(tree) as exact:
        # Newest first: a later undo may have begun on what an earlier one left.
        return [_end(record, store, exact) for record in reversed(store.open_undos())]


def _end(record: UndoRecord, store: Store, tree: Tree) -> Recovered:
    shelf = Shelf(store, record.id)
    if _is_done(record, tree):
        store.finish_undo(record, {})
        shelf.clear()
        return Recovered(record.id, Result.FORWARD, (), ())
    kept, failures = roll_back(record, tree, shelf)
    if failures:
        return Recovered(record.id, Result.OPEN, kept, failures)
    store.abandon_undo(record.id)
    shelf.clear(but=frozenset(one.rescue for one in kept))
    return Recovered(record.id, Result.BACK, kept, ())


def _is_done(record: UndoRecord, tree: Tree) -> bool:
    """Say whether everything stands as the undo wanted it; then its siblings are removed."""
    try:
        for step in record.steps:
            if not is_as(_standing_at(tree, step.path), step.target):
                return False
        for step in record.steps:
            place.drop(tree, step)
    except (OSError, Stale):
        return False
    return True


def _standing_at(tree: Tree, path: Path) -> Entry:
    try:
        with folder_of(tree, path) as (folder, name):
            return standing(folder, name)
    except OSError as error:
        if is_absence(error):
            return Entry(Kind.ABSENT)
        raise


def roll_back(record: UndoRecord, tree: Tree, shelf: Shelf) -> tuple[tuple[Kept, ...], tuple[Failure, ...]]:
    """Put back what stood before the undo, last step first; one path that fails does not stop the others."""
    kept: list[Kept] = []
    failures: list[Failure] = []
    _loosen(record.steps, tree)
    for number, step in reversed(list(enumerate(record.steps))):
        temporary = durable.temporary_name(record.id, number + len(record.steps))
        try:
            _Back(tree, shelf, step, temporary, kept).run()
        except (OSError, Stale) as problem:
            cause = problem.strerror if isinstance(problem, OSError) else None
            failures.append(Failure(step.path, cause or str(problem), _how(tree, step)))
    # Innermost first: a folder may become one that nothing can be read from.
    for step in sorted(record.steps, key=lambda one: one.path.count(b"/"), reverse=True):
        if step.now.kind == Kind.DIRECTORY:
            try:
                restore_folder_mode(tree, step.path, step.now)
            except OSError as problem:
                failures.append(Failure(step.path, problem.strerror or "", _how(tree, step)))
    return tuple(kept), tuple(failures)


def _loosen(steps: Sequence[Step], tree: Tree) -> None:
    """Make the folders of the record writable for their owner, outermost first, so that what is in them can move."""
    for step in sorted(steps, key=lambda one: one.path.count(b"/")):
        if Kind.DIRECTORY in {step.now.kind, step.target.kind}:
            try:
                loosen(tree, step.path)
            except OSError:
                continue  # the step itself says what is wrong


def loosen(tree: Tree, path: Path) -> None:
    """Give the owner of the folder at `path` (if one stands there) all permissions in it. Raises OSError."""
    entry = _standing_at(tree, path)
    if entry.kind == Kind.DIRECTORY and entry.mode is not None and entry.mode & 0o700 != 0o700:
        with folder_of(tree, path) as (folder, name):
            place.set_mode(folder, name, Entry(Kind.DIRECTORY, mode=entry.mode | 0o700))


def restore_folder_mode(tree: Tree, path: Path, wanted: Entry) -> None:
    """Give the folder at `path` (if one stands there) its permission bits."""
    entry = _standing_at(tree, path)
    if entry.kind == Kind.DIRECTORY and wanted.mode is not None and entry.mode != wanted.mode:
        with folder_of(tree, path) as (folder, name):
            place.set_mode(folder, name, wanted)


def _how(tree: Tree, step: Step) -> str:
    try:
        entry = _standing_at(tree, step.path)
    except (OSError, Stale):
        return "between"
    if is_as(entry, step.now):
        return "before"
    return "after" if is_as(entry, step.target) else "between"


class _Back:
    """One step's way back. `forward` is the sibling that the undo made, `backward` the one a roll-back makes."""

    def __init__(self, tree: Tree, shelf: Shelf, step: Step, backward: bytes, kept: list[Kept]) -> None:
        self._tree = tree
        self._shelf = shelf
        self._step = step
        self._forward = step.temporary
        self._backward = backward
        self._kept = kept

    def run(self) -> None:
        """Bring the path back to what stood there. Raises OSError, Stale."""
        step = self._step
        if step.now.kind == Kind.DIRECTORY and step.target.kind == Kind.DIRECTORY:
            return
        try:
            with folder_of(self._tree, step.path) as (folder, name):
                self._in(folder, name)
        except OSError as error:
            if not is_absence(error):
                raise
            # The folder itself is gone, or somebody's link or file: nothing of ours can stand in it.
            if step.now.kind != Kind.ABSENT:
                self._keep_now()

    def _in(self, folder: int, name: bytes) -> None:
        step = self._step
        entry = standing(folder, name)
        if _is_back(entry, step.now):
            self._put_back_swapped(folder, name, self._backward, entry)
        elif self._is_ours(entry):
            self._turn_back(folder, name, entry)
        elif entry.kind != Kind.FILE or not self._is_cured(folder, name):
            self._keep_now()
        self._clean(folder, self._forward)
        self._clean(folder, self._backward)

    def _is_ours(self, entry: Entry) -> bool:
        """Say whether what stands at the path is the undo's doing."""
        now, target = self._step.now, self._step.target
        if entry.kind == Kind.ABSENT:
            # Between the two renames of a step that makes or takes a folder, and where the target is to be absent.
            return target.kind == Kind.ABSENT or Kind.DIRECTORY in {now.kind, target.kind}
        if target.kind != entry.kind:
            return False
        return entry.kind == Kind.DIRECTORY or is_as(entry, target)

    def _turn_back(self, folder: int, name: bytes, entry: Entry) -> None:
        step = self._step
        if entry.kind == Kind.DIRECTORY and _holds_something(folder, name):
            self._keep_now()  # somebody put something into the folder that the undo made
            return
        sibling = standing(folder, self._forward)
        if sibling.content == step.now.content and sibling.kind in _LINKABLE:
            if self._rename_back(folder, name, entry):
                return
        elif sibling.kind in _LINKABLE and sibling.content != step.target.content and entry.kind in _LINKABLE:
            # The undo died between swapping and looking: these bytes are somebody's, and belong at the path.
            durable.exchange(self._forward, name, folder=folder)
            self._keep_now()
            return
        self._put(folder, entry)

    def _rename_back(self, folder: int, name: bytes, entry: Entry) -> bool:
        """The old entry is still there as the sibling: no byte has to be written."""
        if entry.kind in _LINKABLE:
            if not durable.exchange(self._forward, name, folder=folder):
                return False
            if standing(folder, self._forward).content != entry.content:
                durable.exchange(self._forward, name, folder=folder)
                raise Stale(self._step.path)
        else:
            if entry.kind == Kind.DIRECTORY:
                os.rmdir(name, dir_fd=folder)
            durable.rename_new(self._forward, name, folder=folder)
        durable.sync(folder)
        return True

    def _put(self, folder: int, entry: Entry) -> None:
        """Put the old entry back from the rescue, the way the undo put its own in place."""
        step = Step(self._step.path, entry, self._step.now, self._backward)
        data = self._now_bytes() if step.target.kind == Kind.FILE else b""
        self._clean(folder, self._backward)
        self._clean(folder, self._forward)
        if step.target.kind in _LINKABLE and entry.content != step.target.content:
            place.prepare(self._tree, step, data)
        place.move(self._tree, step, data)

    def _put_back_swapped(self, folder: int, name: bytes, sibling: bytes, entry: Entry) -> None:
        """A roll-back that died between swapping and looking: bytes that are nobody we know go back."""
        there = standing(folder, sibling)
        if there.kind in _LINKABLE and not self._is_known(folder, sibling, there):
            if entry.kind in _LINKABLE:
                durable.exchange(sibling, name, folder=folder)
                self._keep_now()
            elif entry.kind == Kind.ABSENT:
                durable.rename_new(sibling, name, folder=folder)

    def _is_known(self, folder: int, sibling: bytes, entry: Entry) -> bool:
        """Say whether the sibling's bytes are the old entry's, the new one's, or the beginning of either."""
        now, target = self._step.now, self._step.target
        if entry.content in {now.content, target.content}:
            return True
        if entry.kind != Kind.FILE:
            return False
        data = _read(folder, sibling)
        wholes = (self._shelf.bytes_of(one) for one in (target, now) if one.kind == Kind.FILE)
        return any(whole is not None and whole.startswith(data) for whole in wholes)

    def _is_cured(self, folder: int, name: bytes) -> bool:
        """Write the old bytes over what a write over them left half way; False where something else stands there."""
        now, target = self._step.now, self._step.target
        if now.kind != Kind.FILE or target.kind != Kind.FILE:
            return False
        old, new = self._shelf.bytes_of(now), self._shelf.bytes_of(target)
        if new is None and standing(folder, self._forward).content == target.content:
            new = _read(folder, self._forward)
        if old is None or new is None or not is_mixture(_read(folder, name), old, new):
            return False
        return place.write_over(folder, name, old, now.mode, lambda found: is_mixture(found, old, new))

    def _now_bytes(self) -> bytes:
        data = self._shelf.bytes_of(self._step.now)
        if data is None:
            raise Stale(self._step.path)
        return data

    def _keep_now(self) -> None:
        """Somebody's entry stands at the path: it stays, and the bytes meant for the path are kept and named."""
        if self._step.now.kind == Kind.FILE:
            self._kept.append(Kept(self._step.path, self._shelf.keep(self._now_bytes())))

    def _clean(self, folder: int, sibling: bytes) -> None:
        """Remove a sibling; bytes that are not ours are kept first."""
        entry = standing(folder, sibling)
        if entry.kind == Kind.ABSENT:
            return
        if entry.kind == Kind.DIRECTORY or entry.kind == Kind.SPECIAL:
            raise Stale(self._step.path)
        if not self._is_known(folder, sibling, entry) and entry.kind == Kind.FILE:
            self._kept.append(Kept(self._step.path, self._shelf.keep(_read(folder, sibling))))
        os.unlink(sibling, dir_fd=folder)
        durable.sync(folder)


def _holds_something(folder: int, name: bytes) -> bool:
    fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        return bool(os.listdir(fd))
    finally:
        os.close(fd)


def _is_back(entry: Entry, now: Entry) -> bool:
    return entry.kind == now.kind == Kind.DIRECTORY or is_as(entry, now)


def _read(folder: int, name: bytes) -> bytes:
    fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=folder)
    with open(fd, "rb") as file:
        return file.read()


def is_mixture(data: bytes, old: bytes, new: bytes) -> bool:
    """Say whether each byte is the old one's or the new one's at the same place, and none goes beyond both."""
    if not min(len(old), len(new)) <= len(data) <= max(len(old), len(new)):
        return False
    return all(
        data[start : start + 4096] in (old[start : start + 4096], new[start : start + 4096])
        or all(
            byte in (old[at : at + 1] + new[at : at + 1]) for at, byte in enumerate(data[start : start + 4096], start)
        )
        for start in range(0, len(data), 4096)
    )

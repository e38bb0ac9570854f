"""A small world for stories about undo: a project, a store, and commands that are Python functions."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path

from ckpt_run.capture.model import ABSENT, By, Change, Entry, Kind, Run, State
from ckpt_run.capture.store import Store, open_store
from ckpt_run.capture.undo.apply import Naming, Undone, undo
from ckpt_run.capture.undo.decide import resolve
from ckpt_run.capture.undo.items import Choices, Plan
from ckpt_run.capture.undo.plan import plan_undo
from ckpt_run.capture.worktree import Tree

Snapshot = dict[bytes, tuple[object, ...]]


def snapshot(top: bytes) -> Snapshot:
    """What lstat and the bytes say of every path below `top`, by a way that knows nothing of the code tested."""
    found: Snapshot = {}
    for folder, folders, files in os.walk(top):
        for name in [*folders, *files]:
            path = os.path.join(folder, name)
            info = os.lstat(path)
            relative = os.path.relpath(path, top)
            mode = stat.S_IMODE(info.st_mode)
            if stat.S_ISLNK(info.st_mode):
                found[relative] = ("link", os.readlink(path))
            elif stat.S_ISDIR(info.st_mode):
                found[relative] = ("folder", mode)
            elif stat.S_ISREG(info.st_mode):
                with open(path, "rb") as file:
                    found[relative] = ("file", mode, file.read())
            else:
                found[relative] = ("special", stat.S_IFMT(info.st_mode))
    return found


class World:
    """A project in `room/project` and its store in `room/store`."""

    def __init__(self, room: Path, *, id_prefix: str = "") -> None:
        room.mkdir(exist_ok=True)
        self.top = os.fsencode(room / "project")
        self.folder = os.fsencode(room / "store")
        self.id_prefix = id_prefix
        os.makedirs(self.top, exist_ok=True)
        self.store: Store = open_store(self.folder, create=True)
        self.tree = Tree(self.top)
        self.runs = 0

    def close(self) -> None:
        self.tree.close()
        self.store.close()

    def at(self, path: str) -> bytes:
        return os.path.join(self.top, path.encode())

    def write(self, path: str, data: bytes | str, mode: int | None = None) -> None:
        place = self.at(path)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, "wb") as file:
            file.write(data if isinstance(data, bytes) else data.encode())
        if mode is not None:
            os.chmod(place, mode)

    def read(self, path: str) -> bytes:
        with open(self.at(path), "rb") as file:
            return file.read()

    def exists(self, path: str) -> bool:
        return os.path.lexists(self.at(path))

    def snapshot(self) -> Snapshot:
        return snapshot(self.top)

    def entries(self) -> tuple[dict[bytes, Entry], dict[bytes, bytes]]:
        entries, contents = {}, {}
        for path in self.snapshot():
            copy = self.tree.copy(path, limit_bytes=1 << 40)
            entries[path] = copy.entry
            if copy.entry.digest is not None:
                contents[copy.entry.digest] = copy.data
        return entries, contents

    def run(self, command: Callable[[], object], *, by: str = By.TIME, gaps: Iterable[bytes] = ()) -> Run:
        """Run the command and record what it changed; `gaps` are paths whose earlier bytes nobody has."""
        before, contents = self.entries()
        command()
        after, more = self.entries()
        changes = []
        for path in sorted({*before, *after}):
            old, new = before.get(path, ABSENT), after.get(path, ABSENT)
            if old != new and Kind.SPECIAL not in (old.kind, new.kind):
                reason = "too_large" if path in gaps else None
                changes.append(Change(path, old, new, by=by, reason=reason, numbers={"size_bytes": 1}))
        self.runs += 1
        run = Run(
            f"{self.id_prefix}run{self.runs}", [b"command"], self.top, self.runs, state=State.ENDED, changes=changes
        )
        self.store.record_run(run, {**contents, **more})
        return run

    def contents(self, entry: Entry) -> bytes | None:
        return None if entry.digest is None else self.store.content(entry.digest)

    def plan(self, *runs: Run, others: Iterable[bytes] = ()) -> Plan:
        """Plan to undo the runs, given newest first."""
        return plan_undo(runs, self.tree, self.contents, scratch=self.folder, others=others)

    def undo(self, *runs: Run, choices: Choices | None = None, redoes: str | None = None) -> Undone:
        """Undo the runs, given newest first."""
        return self.apply(self.plan(*runs), choices=choices, redoes=redoes)

    def apply(self, plan: Plan, *, choices: Choices | None = None, redoes: str | None = None) -> Undone:
        decision = resolve(plan, choices or Choices())
        assert not decision.stopped, decision.stopped
        self.runs += 1
        naming = Naming(f"{self.id_prefix}undo{self.runs}", (b"ckpt", b"undo"), self.top, redoes)
        return undo(decision, self.store, self.tree, self.contents, naming)

    def stray(self) -> list[bytes]:
        """Temporary files that are left in the project."""
        return [path for path in self.snapshot() if os.path.basename(path).startswith(b".ckpt-")]


def change_of(world: World, path: str = "a", old: str = "old\n", new: str = "new\n") -> Run:
    world.write(path, old)
    return world.run(lambda: world.write(path, new))

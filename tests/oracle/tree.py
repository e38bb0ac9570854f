"""Snapshots of a worktree and of Git's own files, by lstat and bytes; nothing is asked of Git or of ckpt."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

UNREADABLE = "unreadable"


class Entry(NamedTuple):
    """What stands at a path: its kind, its twelve permission bits (0 for a link), its digest or link target."""

    kind: str
    mode: int
    content: str | bytes


class Place(NamedTuple):
    """Where and when: inode and mtime in nanoseconds; a file that nobody wrote keeps both."""

    inode: int
    mtime_ns: int


class Tree(NamedTuple):
    """A snapshot: the entries decide whether two trees are equal, the places whether a file was rewritten."""

    entries: dict[bytes, Entry]
    places: dict[bytes, Place]


def snapshot(top: Path) -> Tree:
    """Read everything below `top` but what lies in a `.git` (of the project or of one nested in it)."""
    tree = Tree({}, {})
    for path, status in _below(os.fsencode(top), within_git=False):
        relative = os.path.relpath(path, os.fsencode(top))
        tree.entries[relative] = _entry(path, status)
        tree.places[relative] = Place(status.st_ino, status.st_mtime_ns)
    return tree


def git_state(*tops: Path) -> dict[bytes, tuple[Entry, int]]:
    """Read every file, link and folder in each `.git` below `tops`: entry and mtime in nanoseconds.

    HEAD, refs, the stash, the index and the configuration are those bytes, so all of them are compared. The
    mtime of a folder is compared too: a lock file that came and went again would show there.
    """
    state = {}
    for top in map(os.fsencode, tops):
        for path, status in _below(top, within_git=True):
            state[path] = (_entry(path, status), status.st_mtime_ns)
    return state


def changed(before: Tree, after: Tree) -> set[bytes]:
    """Return the paths whose entries differ, absence included."""
    paths = before.entries.keys() | after.entries.keys()
    return {path for path in paths if before.entries.get(path) != after.entries.get(path)}


def rewritten(before: Tree, after: Tree) -> set[bytes]:
    """Return the paths with equal entries that are another inode now, or (folders aside) have another mtime."""
    found = set()
    for path, entry in before.entries.items():
        if after.entries.get(path) == entry:
            old, new = before.places[path], after.places[path]
            if old.inode != new.inode or (entry.kind != "folder" and old.mtime_ns != new.mtime_ns):
                found.add(path)
    return found


def _below(top: bytes, *, within_git: bool) -> Iterator[tuple[bytes, os.stat_result]]:
    pending = [(top, False)]
    while pending:
        folder, inside = pending.pop()
        try:
            names = os.listdir(folder)
        except PermissionError:
            continue
        for name in sorted(names):
            path = os.path.join(folder, name)
            status = os.lstat(path)
            in_git = inside or name == b".git"
            if in_git == within_git:
                yield path, status
            if stat.S_ISDIR(status.st_mode) and (within_git or not in_git):
                pending.append((path, in_git))


def _entry(path: bytes, status: os.stat_result) -> Entry:
    mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISLNK(status.st_mode):
        return Entry("link", 0, os.readlink(path))
    if stat.S_ISDIR(status.st_mode):
        return Entry("folder", mode, "")
    if not stat.S_ISREG(status.st_mode):
        return Entry("special", mode, oct(stat.S_IFMT(status.st_mode)))
    try:
        with open(path, "rb") as file:
            return Entry("file", mode, hashlib.blake2b(file.read(), digest_size=16).hexdigest())
    except PermissionError:
        return Entry("file", mode, UNREADABLE)

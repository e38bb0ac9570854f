"""A project's files under exactly the names they are asked by, also where the file system folds upper and lower case.

There, after a command renamed `a` to `A`, the path `a` still answers; an undo that believed it would remove the one
file for being `A`, and call it back already for being `a`. It promises nothing about foldings that leave the ASCII
letters of a name alone.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from ckpt_run.capture.model import ABSENT
from ckpt_run.capture.place import is_named_so
from ckpt_run.capture.worktree import Copy, Tree

if TYPE_CHECKING:
    from ckpt_run.capture.model import Path


class ExactTree(Tree):
    """A tree in which a path whose name is spelt differently on disk is absent."""

    __slots__ = ()

    def __init__(self, tree: Tree) -> None:
        """Look at the same files as `tree`, through a descriptor of its own."""
        self.top = tree.top
        self.fd = os.dup(tree.fd)

    def open_folder(self, path: Path) -> int:
        """Open as `Tree` does; FileNotFoundError where a name above is spelt differently."""
        names = path.split(b"/") if path else []
        fd = super().open_folder(b"")
        for name in names:
            try:
                if not is_named_so(fd, name):
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fsdecode(path))
                inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
            finally:
                os.close(fd)
            fd = inner
        return fd

    def status(self, path: Path) -> os.stat_result | None:
        """Look as `Tree` does; None where the name is spelt differently."""
        info = super().status(path)
        return info if info is not None and self._is_so(path) else None

    def _read(self, path: Path, limit_bytes: int, *, keep: bool) -> Copy:
        copy = super()._read(path, limit_bytes, keep=keep)
        return copy if copy.entry is ABSENT or self._is_so(path) else Copy(ABSENT, None, b"")

    def _is_so(self, path: Path) -> bool:
        folder, _, name = path.rpartition(b"/")
        try:
            fd = self.open_folder(folder)
        except OSError:
            return False
        try:
            return is_named_so(fd, name)
        finally:
            os.close(fd)

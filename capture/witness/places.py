"""Where a path that a stopped process wrote really leads, inside the project or not. Changes nothing.

A path is resolved as its process would: from its working folder or descriptor, through links, `..` and mounts, by
the kernel itself (proc(5): /proc/PID/cwd, fd, root). The last name is kept apart, since the call may make, replace or
remove it. What it does not promise: that nothing moves between the look and the call; a place is evidence only.
"""

from __future__ import annotations

import errno
import os
import stat

from .calls import AT_FDCWD

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_LINKS_MAX = 40  # path_resolution(7)
_PATH_FLAGS = os.O_PATH | os.O_CLOEXEC if hasattr(os, "O_PATH") else 0
_STANDARD = {b"/dev/stdin": b"0", b"/dev/stdout": b"1", b"/dev/stderr": b"2"}
_DELETED = b" (deleted)"  # proc(5)


class Blind(Exception):  # noqa: N818  # a fact about a process, not a fault of ours
    """A process does not let us look (it is not dumpable, or belongs to somebody else)."""


class Place:
    """Where a path leads: the project's path, and what stood there (None: nothing)."""

    __slots__ = ("info", "path")

    def __init__(self, path: bytes, info: os.stat_result | None) -> None:
        """Hold the facts; `path` is relative to the top level."""
        self.path = path
        self.info = info


class Places:
    """Finds the places of one project."""

    def __init__(self, top: bytes) -> None:
        """Look below `top`, a real absolute path; whatever other names its mount has are known too."""
        self._prefixes = aliases(top)
        self._rooted = False

    def distrust_root(self) -> None:
        """From now on a process may have another root than ours."""
        self._rooted = True

    def find(self, thread: int, folder: int, path: bytes, *, follow: bool) -> Place | None:
        """Return where the path leads, seen from the thread and the folder's descriptor; None: not in the project.

        `follow` says whether a link as the last name is followed. Raises Blind, or OSError(ENAMETOOLONG).
        """
        full = self.seen_from_here(thread, folder, path)
        for _ in range(_LINKS_MAX):
            found = self._step(full, follow=follow)
            if not isinstance(found, bytes):
                return found
            full = self.seen_from_here(thread, AT_FDCWD, found) if found[:1] == b"/" else found
        return None

    def of_descriptor(self, thread: int, descriptor: int) -> Place | None:
        """Return the place of an open file of the thread; None when it is not in the project."""
        try:
            real = os.readlink(b"/proc/%d/fd/%d" % (thread, descriptor))
        except PermissionError as error:
            raise Blind from error
        except OSError:
            return None
        return self._place_of(real)

    def name_of(self, real: bytes) -> bytes | None:
        """Return the project's path of a real absolute path; None when it lies outside, b"" for the top level."""
        for prefix, inside in self._prefixes.items():
            if real.startswith(prefix):
                return inside + real[len(prefix) :]
            if real == prefix[:-1]:
                return inside[:-1]
        return None

    def _place_of(self, real: bytes) -> Place | None:
        try:
            info = os.lstat(real)
        except OSError:
            info = None
            real = real.removesuffix(_DELETED)
        path = self.name_of(real)
        return Place(path, info) if path else None

    def seen_from_here(self, thread: int, folder: int, path: bytes) -> bytes:
        """Return the path so written that it means here what it means to the thread."""
        if path[:1] != b"/":
            if folder == AT_FDCWD:
                return b"/proc/%d/cwd/%b" % (thread, path)
            return b"/proc/%d/fd/%d/%b" % (thread, folder, path)
        if path.startswith((b"/proc/", b"/dev/")):
            if path.startswith((b"/proc/self/", b"/proc/thread-self/")):
                return b"/proc/%d/%b" % (thread, path.split(b"/", 3)[3])
            if path.startswith(b"/dev/fd/"):
                return b"/proc/%d/fd/%b" % (thread, path[8:])
            if path in _STANDARD:
                return b"/proc/%d/fd/%b" % (thread, _STANDARD[path])
        return b"/proc/%d/root%b" % (thread, path) if self._rooted else path

    def _step(self, full: bytes, *, follow: bool) -> Place | bytes | None:
        """Return the place, or the path that a link there leads to."""
        parent, _, name = full.rstrip(b"/").rpartition(b"/")
        try:
            if name in {b"", b".", b".."}:
                real = _real(full)
                return None if real is None else self._place_of(real)
            real = _real(parent or b"/")
            if real is None:
                return None
            inside = self.name_of(real)
            if inside is None and not follow:
                return None
            stands = (real if real != b"/" else b"") + b"/" + name
            info = os.lstat(stands)
            if follow and stat.S_ISLNK(info.st_mode):
                return self._led_on(real, stands)
        except FileNotFoundError:
            info = None
        except PermissionError as error:
            raise Blind from error
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                raise
            return None  # ENOTDIR, ELOOP, ESRCH: the call will fail as well
        if inside is None:
            return None
        return Place(inside + b"/" + name if inside else name, info)

    def _led_on(self, real: bytes, stands: bytes) -> Place | bytes | None:
        target = os.readlink(stands)
        if target[:1] == b"/":
            # proc(5): what such a link says is where it leads, and is not to be resolved once more.
            return self._place_of(target) if real.startswith(b"/proc/") else target
        return None if real.startswith(b"/proc/") else real + b"/" + target


def _real(folder: bytes) -> bytes | None:
    """Return the real path of a folder; None where it has been removed. Raises OSError."""
    if folder.startswith(b"/proc/") and (folder.endswith(b"/cwd") or folder.rpartition(b"/")[0].endswith(b"/fd")):
        real = os.readlink(folder)  # the link itself says it, in one call instead of three
    else:
        fd = os.open(folder, _PATH_FLAGS)
        try:
            real = os.readlink(b"/proc/self/fd/%d" % fd)
        finally:
            os.close(fd)
    if real.endswith(_DELETED) and not os.path.isdir(real):
        return None
    return real


def aliases(top: bytes, mounts: bytes | None = None) -> Mapping[bytes, bytes]:
    """Return the absolute prefixes under which the project can be written, with what they mean inside it.

    `mounts` is the text of /proc/self/mountinfo (proc(5)). The first is the top level itself; others come from bind
    mounts of the same file system.
    """
    prefixes = {top.rstrip(b"/") + b"/": b""}
    rows = []
    for line in (_mounts() if mounts is None else mounts).splitlines():
        words = line.split(b" ", 5)
        if len(words) == 6:
            rows.append((words[2], _plain(words[3]).rstrip(b"/"), _plain(words[4]).rstrip(b"/")))
    below = [row for row in rows if (top + b"/").startswith(row[2] + b"/")]
    if not below:
        return prefixes
    device, root, point = max(enumerate(below), key=lambda row: (len(row[1][2]), row[0]))[1]
    stored = root + top[len(point) :].rstrip(b"/")
    for other, other_root, other_point in rows:
        if other != device:
            continue
        if (stored + b"/").startswith(other_root + b"/"):
            prefixes.setdefault(other_point + stored[len(other_root) :] + b"/", b"")
        elif other_root.startswith(stored + b"/"):
            inside = other_root[len(stored) + 1 :]
            if not (other_point + b"/").startswith(top + b"/"):
                prefixes.setdefault(other_point + b"/", inside + b"/")
    return prefixes


def _mounts() -> bytes:
    try:
        with open("/proc/self/mountinfo", "rb", buffering=0) as file:
            return file.readall()
    except OSError:
        return b""


def _plain(field: bytes) -> bytes:
    """Undo the octal escapes of a mountinfo field: space, tab, newline, backslash."""
    for escape, byte in ((b"\\040", b" "), (b"\\011", b"\t"), (b"\\012", b"\n"), (b"\\134", b"\\")):
        field = field.replace(escape, byte)
    return field

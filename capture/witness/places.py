"""Where a path that a stopped process wrote really leads, inside the project or not. Changes nothing.

A path is resolved as its process would: from its working folder or descriptor, through links, `..` and mounts, by
the kernel itself (proc(5): /proc/PID/cwd, fd, root). The last name is kept apart, since the call may make, replace or
remove it. What it does not promise: that nothing moves between the look and the call; a place is evidence only. The
name of a folder is believed for a tenth of a second, unless the command moves a folder itself.
"""

from __future__ import annotations

import errno
import os
import stat
import time

from .calls import AT_FDCWD

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_LINKS_MAX = 40  # path_resolution(7)
_PATH_FLAGS = os.O_PATH | os.O_CLOEXEC if hasattr(os, "O_PATH") else 0
_STANDARD = {b"/dev/stdin": b"0", b"/dev/stdout": b"1", b"/dev/stderr": b"2"}
_DELETED = b" (deleted)"  # proc(5)
_DOTS = frozenset({b"", b".", b".."})
_SLASH = ord("/")
_BELIEVED_SECONDS = 0.1


class Blind(Exception):  # noqa: N818  # a fact about a process, not a fault of ours
    """A process does not let us look (it is not dumpable, or belongs to somebody else)."""


class Status:
    """How much a caller wants to know of what stands at a place."""

    NEEDED = 0
    NEEDED_MAYBE_ABSENT = 1  # as NEEDED, and it will often be absent
    UNNEEDED = 2


class Place:
    """Where a path leads: the project's path, and what stood there (None: nothing, or not asked)."""

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
        # (dev, ino) of a folder to its real path and the project's path (None outside), with slashes at the end.
        self._folders: dict[tuple[int, int], tuple[bytes, bytes | None]] = {}
        self._until = 0.0
        self._moving_until = 0.0

    def distrust_root(self) -> None:
        """From now on a process may have another root than ours."""
        self._rooted = True

    def distrust_folders(self) -> None:
        """A folder is about to move: believe no name until it has."""
        self._until = 0.0
        self._moving_until = time.monotonic() + _BELIEVED_SECONDS

    def find(
        self, thread: int, folder: int, path: bytes, *, follow: bool, status: int = Status.NEEDED
    ) -> Place | None:
        """Return where the path leads, seen from the thread and the folder's descriptor; None: not in the project.

        `follow` says whether a link as the last name is followed; `status` (a `Status`) whether the place shall say
        what stands there. Raises Blind, or OSError(ENAMETOOLONG).
        """
        if folder == AT_FDCWD and path[0] != _SLASH:
            full = b"/proc/%d/cwd/%b" % (thread, path)
        else:
            full = self.seen_from_here(thread, folder, path)
        for _ in range(_LINKS_MAX):
            found = self._step(full, follow=follow, status=status)
            if not isinstance(found, bytes):
                return found
            full = self.seen_from_here(thread, AT_FDCWD, found) if found[0] == _SLASH else found
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
        info = _status(real)
        if info is None:
            real = real.removesuffix(_DELETED)
        path = self.name_of(real)
        return Place(path, info) if path else None

    def seen_from_here(self, thread: int, folder: int, path: bytes) -> bytes:
        """Return the path so written that it means here what it means to the thread."""
        if path[0] != _SLASH:
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

    def _step(self, full: bytes, *, follow: bool, status: int) -> Place | bytes | None:
        """Return the place, or the path that a link there leads to."""
        cut = full.rfind(b"/")
        name = full[cut + 1 :]
        try:
            if name in _DOTS:
                return self._ending_in_dots(full)
            real, inside = self._folder(full[:cut] or b"/")
            if inside is None and not follow:
                return None
            info = None
            stands = real + name
            if (follow or status != Status.UNNEEDED) and (
                status != Status.NEEDED_MAYBE_ABSENT or os.access(stands, os.F_OK, follow_symlinks=False)
            ):
                info = _status(stands)
                if follow and info is not None and stat.S_ISLNK(info.st_mode):
                    return self._led_on(real, stands)
            return None if inside is None else Place(inside + name, info)
        except PermissionError as error:
            raise Blind from error
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                raise
            return None  # ENOENT, ENOTDIR, ELOOP, ESRCH: the call will fail as well

    def _ending_in_dots(self, full: bytes) -> Place | bytes | None:
        bare = full.rstrip(b"/")
        if bare and bare != full and bare.rpartition(b"/")[2] not in _DOTS:
            return bare  # slashes at the end: the same place
        real = _real(full)
        return None if real is None else self._place_of(real)

    def _folder(self, parent: bytes) -> tuple[bytes, bytes | None]:
        """Return the real path and the project's path (None: outside) of a folder, each with a slash at its end.

        Raises OSError, FileNotFoundError also where it has been removed.
        """
        info = os.stat(parent)
        key = (info.st_dev, info.st_ino)
        now = time.monotonic()
        if now < self._until:
            folder = self._folders.get(key)
            if folder is not None:
                return folder
        else:
            self._folders.clear()
            self._until = now + _BELIEVED_SECONDS
        real = _real(parent)
        if real is None:
            raise FileNotFoundError(parent)
        inside = self.name_of(real)
        found = (real.rstrip(b"/") + b"/", inside and inside + b"/")
        if now > self._moving_until:
            self._folders[key] = found
        return found

    def _led_on(self, real: bytes, stands: bytes) -> Place | bytes | None:
        target = os.readlink(stands)
        if target[:1] == b"/":
            # proc(5): what such a link says is where it leads, and is not to be resolved once more.
            return self._place_of(target) if real.startswith(b"/proc/") else target
        return None if real.startswith(b"/proc/") else real + target


def _status(path: bytes) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except FileNotFoundError:
        return None


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

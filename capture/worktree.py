"""Reads entries of a project through directory descriptors, never following a link. Knows nothing of Git.

What it promises: no path outside the top level is ever opened, a special file is never opened, and bytes are
given with the fingerprint they were read under. What it does not: that a file stays as it was read.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from _blake2 import blake2b

from ckpt_run.capture.model import ABSENT, Entry, Kind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container

    from ckpt_run.capture.model import Fingerprint, Path

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: a FIFO swapped in between lstat and open must not hang the capture; open(2).
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_CHUNK_BYTES = 1 << 20
_READ_TRIES = 3


class ChangedWhileRead(Exception):  # noqa: N818  # a fact about the file, not a fault of ours
    """A file kept changing while it was read."""


class TooLarge(Exception):  # noqa: N818  # a fact about the file, not a fault of ours
    """A file is larger than the caller's limit; `size_bytes` says how large."""

    def __init__(self, size_bytes: int) -> None:
        """Hold the size in bytes."""
        super().__init__(size_bytes)
        self.size_bytes = size_bytes


def digest_of(data: bytes) -> bytes:
    """BLAKE2b-256 of the bytes."""
    return blake2b(data, digest_size=32).digest()


def fingerprint_of(info: os.stat_result) -> Fingerprint:
    """What lstat says, as a value; see `model.Fingerprint`."""
    if stat.S_ISDIR(info.st_mode):
        return (info.st_dev, info.st_ino, info.st_mode, 0, 0, 0, info.st_uid, info.st_gid)
    return (
        info.st_dev,
        info.st_ino,
        info.st_mode,
        info.st_size,
        info.st_mtime_ns,
        info.st_ctime_ns,
        info.st_uid,
        info.st_gid,
    )


def kind_of(mode: int) -> str:
    """The kind of entry that a st_mode says."""
    kind = stat.S_IFMT(mode)
    if kind == stat.S_IFREG:
        return Kind.FILE
    if kind == stat.S_IFLNK:
        return Kind.LINK
    return Kind.DIRECTORY if kind == stat.S_IFDIR else Kind.SPECIAL


class Copy:
    """An exact entry with its bytes (empty for a link or folder) and the fingerprint it was read under."""

    __slots__ = ("data", "entry", "fingerprint")

    def __init__(self, entry: Entry, fingerprint: Fingerprint | None, data: bytes) -> None:
        """Hold the three as read together; `fingerprint` is None for an absent path."""
        self.entry = entry
        self.fingerprint = fingerprint
        self.data = data


class Tree:
    """A project's files. Holds one descriptor, of the top level; `close` when done (or use as a context)."""

    __slots__ = ("fd", "top")

    def __init__(self, top: bytes) -> None:
        """Open the top level; raises OSError when it is gone."""
        self.top = top
        self.fd = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def __enter__(self) -> Tree:
        """Keep it for the scope."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the top level."""
        self.close()

    def close(self) -> None:
        """Close the top level's descriptor; a second call does nothing."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def open_folder(self, path: Path) -> int:
        """Open the folder at `path` ("" is the top level) name by name, following no link; the caller closes it.

        Raises FileNotFoundError, or NotADirectoryError / OSError(ELOOP) where a file or link stands in the way.
        """
        fd = os.dup(self.fd)
        for name in path.split(b"/") if path else ():
            try:
                inner = os.open(name, _FOLDER_FLAGS, dir_fd=fd)
            finally:
                os.close(fd)
            fd = inner
        return fd

    def status(self, path: Path) -> os.stat_result | None:
        """lstat of the path; None when nothing stands there as itself (a parent may be a link)."""
        folder, _, name = path.rpartition(b"/")
        try:
            fd = self.open_folder(folder)
        except OSError as error:
            if is_absence(error):
                return None
            raise
        try:
            return os.stat(name, dir_fd=fd, follow_symlinks=False)
        except OSError as error:
            if is_absence(error):
                return None
            raise
        finally:
            os.close(fd)

    def fingerprint(self, path: Path) -> Fingerprint | None:
        """The path's fingerprint; None when nothing stands there."""
        info = self.status(path)
        return None if info is None else fingerprint_of(info)

    def copy(self, path: Path, *, limit_bytes: int) -> Copy:
        """Read the exact entry with its bytes.

        Raises TooLarge over `limit_bytes`, ChangedWhileRead, or OSError when it cannot be read.
        """
        return self._read(path, limit_bytes, keep=True)

    def entry(self, path: Path, *, limit_bytes: int) -> Entry:
        """Read the exact entry, its digest but not its bytes; raises as `copy` does."""
        return self._read(path, limit_bytes, keep=False).entry

    def _read(self, path: Path, limit_bytes: int, *, keep: bool) -> Copy:
        folder, _, name = path.rpartition(b"/")
        try:
            fd = self.open_folder(folder)
        except OSError as error:
            if is_absence(error):
                return Copy(ABSENT, None, b"")
            raise
        try:
            for _ in range(_READ_TRIES):
                try:
                    copy = read_at(fd, name, limit_bytes, keep=keep)
                except FileNotFoundError:
                    return Copy(ABSENT, None, b"")
                except OSError as error:
                    # A link or folder that took the file's place between lstat and open: look again.
                    if is_absence(error):
                        continue
                    raise
                if copy is not None:
                    return copy
        finally:
            os.close(fd)
        raise ChangedWhileRead(path)


class Reader(Tree):
    """A tree for reading many paths at once: keeps the last folder open. Only for looking, never before a write."""

    __slots__ = ("_last", "_last_path")

    def __init__(self, top: bytes) -> None:
        """Open the top level; raises OSError when it is gone."""
        super().__init__(top)
        self._last = -1
        self._last_path = b""

    def close(self) -> None:
        """Close both descriptors."""
        super().close()
        if self._last >= 0:
            os.close(self._last)
            self._last = -1

    def open_folder(self, path: Path) -> int:
        """As `Tree.open_folder`, from the folder of the last call where it is the same."""
        if self._last < 0 or path != self._last_path:
            fd = super().open_folder(path)
            if self._last >= 0:
                os.close(self._last)
            self._last, self._last_path = fd, path
        return os.dup(self._last)


def is_absence(error: OSError) -> bool:
    """Say whether the error means that nothing stands at the path as itself."""
    return error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


def read_at(folder: int, name: bytes, limit_bytes: int, *, keep: bool) -> Copy | None:
    """Read the entry `name` of the open folder; None when it changed while it was read.

    `keep` says whether the bytes are given too. Raises FileNotFoundError, TooLarge, OSError.
    """
    info = os.stat(name, dir_fd=folder, follow_symlinks=False)
    print_before = fingerprint_of(info)
    mode = stat.S_IMODE(info.st_mode)
    owner = (info.st_uid, info.st_gid)
    kind = kind_of(info.st_mode)
    if kind == Kind.LINK:
        target = os.readlink(name, dir_fd=folder)
        if fingerprint_of(os.stat(name, dir_fd=folder, follow_symlinks=False)) != print_before:
            return None
        return Copy(Entry(kind, target=target, size=len(target), owner=owner), print_before, b"")
    if kind != Kind.FILE:
        return Copy(Entry(kind, mode=mode, owner=owner), print_before, b"")
    if info.st_size > limit_bytes:
        raise TooLarge(info.st_size)
    fd = os.open(name, _FILE_FLAGS, dir_fd=folder)
    try:
        if fingerprint_of(os.fstat(fd)) != print_before:
            return None
        digest, size, data = _read_bytes(fd, info.st_size, keep=keep)
        # ctime moves with every write (inode(7)); equal fingerprints around the read, from a file that is not
        # racy, mean that nobody wrote meanwhile. The caller treats a racy one as unknown next time.
        if size != info.st_size or fingerprint_of(os.fstat(fd)) != print_before:
            return None
    finally:
        os.close(fd)
    return Copy(Entry(kind, mode=mode, size=size, digest=digest, owner=owner), print_before, data)


def _read_bytes(fd: int, size: int, *, keep: bool) -> tuple[bytes, int, bytes]:
    if size < _CHUNK_BYTES:
        data = os.read(fd, size + 1)
        if len(data) == size:
            return digest_of(data), size, data if keep else b""
        os.lseek(fd, 0, os.SEEK_SET)
    hasher = blake2b(digest_size=32)
    chunks = []
    total = 0
    while chunk := os.read(fd, _CHUNK_BYTES):
        hasher.update(chunk)
        total += len(chunk)
        if total > size:
            break  # it grows under our eyes
        if keep:
            chunks.append(chunk)
    return hasher.digest(), total, b"".join(chunks)


class Survey:
    """What lstat says of every path below the top level, outside `.git` and the folders left out.

    `files` holds files, links and specials; `folders` the folders, `nested` those with a `.git` of their own;
    `unread` the folders in which something could not be looked at; `fresh` the folders not in `known`, which were
    not entered.
    """

    __slots__ = ("files", "folders", "fresh", "nested", "unread")

    def __init__(self) -> None:
        """Start empty."""
        self.files: dict[Path, Fingerprint] = {}
        self.folders: dict[Path, Fingerprint] = {}
        self.nested: set[Path] = set()
        self.unread: set[Path] = set()
        self.fresh: set[Path] = set()


def _note_unseen(found: Survey, folder: Path, error: OSError) -> None:
    """A name without a status is gone since the listing, or lies in a folder that may be listed and not entered."""
    if not is_absence(error):
        found.unread.add(folder)


class SurveyTooLarge(Exception):  # noqa: N818  # a fact about the project, not a fault of ours
    """The project holds more files than a survey may look at."""


def survey(
    tree: Tree,
    *,
    files_max: int,
    left_out: Container[Path],
    known: Container[Path] | None = None,
    start: Path = b"",
) -> Survey:
    """Look at every path below `start`, without entering the folders in `left_out`.

    With `known`, folders that are not in it are named in `fresh` and not entered. Raises SurveyTooLarge when
    there are more than `files_max` files.
    """
    found = Survey()
    files = found.files
    waiting = [start]
    encoding, errors = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()
    while waiting:
        path = waiting.pop()
        try:
            fd = tree.open_folder(path)
        except OSError:
            found.unread.add(path)
            continue
        prefix = path + b"/" if path else b""
        try:
            with os.scandir(fd) as listing:
                for item in listing:
                    name = item.name
                    inner = prefix + name.encode(encoding, errors)  # os.fsencode, without its call
                    if name == ".git":
                        if path:
                            found.nested.add(path)
                        continue
                    try:
                        info = item.stat(follow_symlinks=False)
                    except OSError as error:
                        _note_unseen(found, path, error)
                        continue
                    if not stat.S_ISDIR(info.st_mode):
                        files[inner] = fingerprint_of(info)
                        continue
                    found.folders[inner] = fingerprint_of(info)
                    if inner in left_out:
                        continue
                    if known is not None and inner not in known:
                        found.fresh.add(inner)
                    else:
                        waiting.append(inner)
        except OSError:
            found.unread.add(path)
        finally:
            os.close(fd)
        if len(files) > files_max:
            raise SurveyTooLarge
    return found

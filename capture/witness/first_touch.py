"""Copies on first touch: the entry of a file that has no exact copy yet, taken before the command changes it.

The pack is one file, written only at its end: the bytes of a file, then its record. It is in the page cache when the
call goes on, not yet on disk: a killed process loses nothing, a machine that loses power may.
"""

from __future__ import annotations

import errno
import marshal
import os
import stat
import struct
import time

from ckpt_run.capture import durable
from ckpt_run.capture.model import ABSENT, Entry, Kind
from ckpt_run.capture.reasons import Reason
from ckpt_run.capture.worktree import (
    ChangedWhileRead,
    Copy,
    SurveyTooLarge,
    TooLarge,
    Tree,
    fingerprint_of,
    kind_of,
    survey,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container

    from ckpt_run.capture.model import Fingerprint, Path

_FRAME = struct.Struct("<cQ")
_BYTES, _RECORD = b"B", b"R"
_MARK = b"ckpttch1"
TOO_SLOW = "too_slow"
"""Why a file was not copied: the time for copies was used up. Comes with `limit_seconds`."""


class FirstTouch:
    """What to copy, where to, and how much.

    `exact` holds the paths whose exact entry is known already; all others are copied when they are first touched.
    `pack` is the file to write. Sizes in bytes, times in seconds; `entries_max` limits a folder that moves.
    """

    __slots__ = ("call_seconds_max", "entries_max", "exact", "file_bytes_max", "pack", "run_bytes_max",
                 "run_seconds_max")  # fmt: skip

    def __init__(
        self,
        pack: bytes,
        exact: Container[Path],
        *,
        file_bytes_max: int = 64 << 20,
        run_bytes_max: int = 128 << 20,
        call_seconds_max: float = 2.0,
        run_seconds_max: float = 20.0,
        entries_max: int = 5000,
    ) -> None:
        """Hold the facts as given."""
        self.pack = pack
        self.exact = exact
        self.file_bytes_max = file_bytes_max
        self.run_bytes_max = run_bytes_max
        self.call_seconds_max = call_seconds_max
        self.run_seconds_max = run_seconds_max
        self.entries_max = entries_max


class Touched:
    """The entry of a path just before the command first touched it.

    `offset` says where its bytes are in the pack, None where they are not; then `reason` says why, with `numbers`, or
    is None where the command only changed its permission bits, owner or attributes.
    """

    __slots__ = ("entry", "fingerprint", "numbers", "offset", "reason")

    def __init__(
        self,
        entry: Entry,
        fingerprint: Fingerprint | None,
        offset: int | None,
        reason: str | None = None,
        numbers: dict[str, int | str] | None = None,
    ) -> None:
        """Hold the facts."""
        self.entry = entry
        self.fingerprint = fingerprint
        self.offset = offset
        self.reason = reason
        self.numbers = numbers or {}


class Pack:
    """Writes copies while the command waits."""

    __slots__ = ("_at", "_fd", "_limits", "_noted", "_seconds", "_taken", "_tree", "_written")

    def __init__(self, limits: FirstTouch, fd: int, top: bytes) -> None:
        """Write to an open, empty file; raises OSError."""
        self._limits = limits
        self._fd = fd
        self._tree = Tree(top)
        self._taken: set[Path] = set()
        self._noted: dict[Path, os.stat_result] = {}
        self._seconds = 0.0
        self._written = 0
        self._at = 0
        self._append(_MARK)

    @property
    def descriptors(self) -> list[int]:
        """The descriptors that must stay open."""
        return [self._fd, self._tree.fd]

    def content(self, path: Path) -> None:
        """Keep the entry, bytes included, that stands at a path which is about to change."""
        if path not in self._taken and path not in self._limits.exact:
            self._taken.add(path)
            self._keep(path, self._limits.call_seconds_max)

    def absent(self, path: Path) -> None:
        """Keep that nothing stood at the path."""
        if path not in self._taken and path not in self._limits.exact:
            self._taken.add(path)
            self._record(path, Touched(ABSENT, None, None))

    def bits(self, path: Path, info: os.stat_result) -> None:
        """Keep what stands at a path whose bits, owner or attributes are about to change: its bytes stay."""
        if path in self._taken or path in self._noted or path in self._limits.exact:
            return
        self._noted[path] = info
        entry = Entry(
            kind_of(info.st_mode),
            mode=None if stat.S_ISLNK(info.st_mode) else stat.S_IMODE(info.st_mode),
            size=info.st_size,
            owner=(info.st_uid, info.st_gid),
        )
        self._record(path, Touched(entry, fingerprint_of(info), None))

    def tree(self, folder: Path) -> None:
        """Keep every entry below a folder that is about to move, within the limits of one call."""
        until = time.monotonic() + self._limits.call_seconds_max
        try:
            found = survey(self._tree, files_max=self._limits.entries_max, left_out=(), start=folder)
        except (SurveyTooLarge, OSError):
            numbers: dict[str, int | str] = {"limit_files": self._limits.entries_max}
            self._record(folder + b"/", Touched(Entry(Kind.DIRECTORY), None, None, Reason.TOO_MANY, numbers))
            return
        for path in (*found.folders, *found.files):
            if path not in self._taken and path not in self._limits.exact:
                self._taken.add(path)
                self._keep(path, until - time.monotonic())

    def _keep(self, path: Path, seconds: float) -> None:
        started = time.monotonic()
        if seconds <= 0 or self._seconds > self._limits.run_seconds_max:
            limit = self._limits.call_seconds_max if seconds <= 0 else self._limits.run_seconds_max
            self._missed(path, TOO_SLOW, limit_seconds=int(limit))
        else:
            self._copy(path)
        self._seconds += time.monotonic() - started

    def _copy(self, path: Path) -> None:
        room = self._limits.run_bytes_max - self._written
        limit = self._limits.file_bytes_max
        try:
            copy = self._tree.copy(path, limit_bytes=min(limit, room))
        except TooLarge as error:
            if error.size_bytes > limit:
                self._missed(path, Reason.TOO_LARGE, size_bytes=error.size_bytes, limit_bytes=limit)
            else:
                self._missed(path, Reason.BUDGET, limit_bytes=self._limits.run_bytes_max)
        except ChangedWhileRead:
            self._missed(path, Reason.CHANGED_WHILE_READ)
        except OSError as error:
            self._missed(path, Reason.UNREADABLE, cause=error.strerror or "")
        else:
            self._store(path, copy)

    def _store(self, path: Path, copy: Copy) -> None:
        entry, noted = copy.entry, self._noted.get(path)
        if noted is not None and entry.mode is not None:
            # Its bits were the command's work already; those before are the ones noted then.
            entry.mode, entry.owner = stat.S_IMODE(noted.st_mode), (noted.st_uid, noted.st_gid)
        if entry.kind != Kind.FILE:
            reason = Reason.SPECIAL_FILE if entry.kind == Kind.SPECIAL else None
            self._record(path, Touched(entry, copy.fingerprint, None, reason))
            return
        offset = self._at + _FRAME.size
        try:
            self._append(_FRAME.pack(_BYTES, len(copy.data)), copy.data)
        except OSError as error:
            self._missed(path, Reason.UNREADABLE, cause=error.strerror or "")
            return
        self._written += len(copy.data)
        self._record(path, Touched(entry, copy.fingerprint, offset))

    def _missed(self, path: Path, reason: str, **numbers: int | str) -> None:
        self._record(path, Touched(Entry(Kind.FILE), None, None, reason, numbers))

    def _record(self, path: Path, touched: Touched) -> None:
        entry = touched.entry
        facts = (entry.kind, entry.mode, entry.size, entry.digest, entry.target, entry.owner)
        data = marshal.dumps((path, facts, touched.fingerprint, touched.offset, touched.reason, touched.numbers))
        try:
            self._append(_FRAME.pack(_RECORD, len(data)) + data)
        except OSError:
            return  # a path without a record is one that was not kept

    def _append(self, *parts: bytes) -> None:
        """Write at the end, wholly or not at all: what was begun and failed is cut off. Raises OSError."""
        try:
            for part in parts:
                durable.write_all(self._fd, part)
        except OSError:
            os.ftruncate(self._fd, self._at)
            os.lseek(self._fd, self._at, os.SEEK_SET)
            raise
        self._at += sum(map(len, parts))


def read(pack: bytes) -> dict[Path, Touched]:
    """Read what was kept, by path; a folder that was too large to keep has a `/` at its end. Missing: nothing."""
    found: dict[Path, Touched] = {}
    try:
        file = open(pack, "rb")  # noqa: SIM115  # closed below; the missing one is told apart here
    except FileNotFoundError:
        return found
    with file:
        if file.read(len(_MARK)) != _MARK:
            return found
        while len(header := file.read(_FRAME.size)) == _FRAME.size:
            what, length = _FRAME.unpack(header)
            if what == _BYTES:
                file.seek(length, os.SEEK_CUR)
                continue
            data = file.read(length)
            if len(data) < length:
                break
            path, facts, fingerprint, offset, reason, numbers = marshal.loads(data)
            kind, mode, size, digest, target, owner = facts
            entry = Entry(kind, mode=mode, size=size, digest=digest, target=target, owner=owner)
            found[path] = Touched(entry, fingerprint, offset, reason, numbers)
    return found


def bytes_of(pack: bytes, touched: Touched) -> bytes:
    """Return the bytes that were kept of a file; raises OSError(EIO) where they are not those, or not there."""
    from ckpt_run.capture.worktree import digest_of

    with open(pack, "rb", buffering=0) as file:
        file.seek(touched.offset or 0)
        data = file.read(touched.entry.size or 0) or b""
    if touched.offset is None or digest_of(data) != touched.entry.digest:
        raise OSError(errno.EIO, os.strerror(errno.EIO), os.fsdecode(pack))
    return data

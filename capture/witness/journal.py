"""What the supervisor saw, in a file: written call by call, read when the run has ended.

A record is a header and a path; a torn last one is dropped. Nothing here is durable: a machine that crashes loses the
journal's end, and a journal without its end mark is an incomplete trace.
"""

from __future__ import annotations

import os
import struct
import time

from ckpt_run.capture import durable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from ckpt_run.capture.model import Path

_HEADER = struct.Struct("<BIQI")  # what, thread, monotonic nanoseconds, length of the text
_IDENTITY = struct.Struct("<QQ")
_MARK = b"ckpttrc1"


class Touch:
    """What a call may have done to a path."""

    CONTENT = 1  # opened for writing, or truncated
    NAME = 2  # made, removed, replaced or moved
    BITS = 3  # permission bits, owner, attributes
    TIMES = 4
    INHERITED = 5  # the command was started with it open for writing (a redirected stdout)
    TREE = 6  # a folder moved: everything below it


class GapKind:
    """Why a trace cannot be complete."""

    LOST = "lost"  # the supervisor or its journal did not reach the end
    SURVIVORS = "survivors"  # processes of the command outlived it
    UNREADABLE = "unreadable"  # a process whose paths we may not read
    FOREIGN_CALLS = "foreign_calls"  # calls of an architecture that is not known
    MOUNTS = "mounts"  # mounts, roots or namespaces changed
    HANDLES = "handles"  # files opened by handle, descriptors taken from other processes
    SERVER = "server"  # the command spoke to a local server, which may have written for it
    FAULT = "fault"  # the supervisor could not make sense of a call


_LINKED, _GAP, _PRIVILEGED, _ENDED, _CLOSED = 16, 17, 18, 19, 20


class Gap:
    """One reason why a trace is not complete; `detail` is a path, a socket's address or a name."""

    __slots__ = ("detail", "kind")

    def __init__(self, kind: str, detail: bytes = b"") -> None:
        """Hold the facts."""
        self.kind = kind
        self.detail = detail

    def __eq__(self, other: object) -> bool:
        """Say whether both tell the same."""
        return isinstance(other, Gap) and (self.kind, self.detail) == (other.kind, other.detail)

    def __hash__(self) -> int:
        """Follow equality."""
        return hash((self.kind, self.detail))

    def __repr__(self) -> str:
        """Show the facts that matter in a failed test."""
        return f"Gap({self.kind}, {self.detail!r})"


class Trace:
    """What was seen of a run. Paths are the project's.

    `touched` maps each path to what was done to it, while the command ran; `later` the same for what its survivors
    did after it ended. `trees` are folders that moved: all below was touched. `linked` holds (dev, ino) of
    files with several names that were touched. `privileged` names the programs that were met and would have had
    privileges. `closed` says that every process of the command has ended.
    """

    __slots__ = ("closed", "gaps", "later", "linked", "privileged", "touched", "trees")

    def __init__(self) -> None:
        """Start with nothing seen."""
        self.touched: dict[Path, set[int]] = {}
        self.later: dict[Path, set[int]] = {}
        self.trees: set[Path] = set()
        self.linked: set[tuple[int, int]] = set()
        self.privileged: list[bytes] = []
        self.gaps: list[Gap] = []
        self.closed = False

    @property
    def complete(self) -> bool:
        """Whether nothing that the command's processes did can have been missed."""
        return not self.gaps

    def has_touched(self, path: Path) -> bool:
        """Say whether the command may have changed the path, or a folder above it that moved."""
        return path in self.touched or is_below(path, self.trees)


def is_below(path: Path, folders: Iterable[Path]) -> bool:
    """Say whether the path is one of the folders or lies below one."""
    return any(path == folder or path.startswith(folder + b"/") for folder in folders)


class Writer:
    """Writes a journal; each path once for each kind of touch."""

    __slots__ = ("_fd", "_gaps", "_seen", "failed")

    def __init__(self, fd: int) -> None:
        """Write to an open, empty file."""
        self._fd = fd
        self._seen: dict[bytes, int] = {}
        self._gaps: set[tuple[str, bytes]] = set()
        self.failed = False
        self._write(_MARK)

    def touch(self, kind: int, thread: int, path: Path) -> None:
        """Note that a path may have been changed."""
        seen = self._seen.get(path, 0)
        if not seen & 1 << kind:
            self._seen[path] = seen | 1 << kind
            self._note(kind, thread, path)

    def linked(self, thread: int, device: int, inode: int) -> None:
        """Note that a file with several names was touched."""
        self._note(_LINKED, thread, _IDENTITY.pack(device, inode))

    def gap(self, kind: str, thread: int = 0, detail: bytes = b"") -> None:
        """Note why the trace is not complete; each reason once."""
        if (kind, detail) not in self._gaps:
            self._gaps.add((kind, detail))
            self._note(_GAP, thread, kind.encode("ascii") + b"\0" + detail)

    def privileged(self, thread: int, program: bytes) -> None:
        """Note that a program was met which would have had privileges."""
        self._note(_PRIVILEGED, thread, program)

    def ended(self, *, survivors: bool) -> None:
        """Note that the command has ended; what comes now, its survivors do."""
        if survivors:
            self.gap(GapKind.SURVIVORS)
        self._note(_ENDED, 0, b"")
        self._seen.clear()

    def closed(self) -> None:
        """Note that nobody is left."""
        self._note(_CLOSED, 0, b"")

    def _note(self, what: int, thread: int, text: bytes) -> None:
        self._write(_HEADER.pack(what, thread, time.monotonic_ns(), len(text)) + text)

    def _write(self, data: bytes) -> None:
        # After a failure nothing more is written: a record after a torn one could not be read.
        if self.failed:
            return
        try:
            durable.write_all(self._fd, data)
        except OSError:
            self.failed = True


def read(path: bytes) -> Trace:
    """Read a journal, whole or broken off, of a run that has ended or goes on; a missing one is an empty trace."""
    trace = Trace()
    try:
        with open(path, "rb", buffering=0) as file:
            data = file.readall()
    except OSError as error:
        trace.gaps.append(Gap(GapKind.LOST, os.fsencode(error.strerror or "")))
        return trace
    at = len(_MARK) if data.startswith(_MARK) else len(data)
    ended = False
    while at + _HEADER.size <= len(data):
        what, _thread, _time, length = _HEADER.unpack_from(data, at)
        at += _HEADER.size
        if at + length > len(data):
            break
        text = data[at : at + length]
        at += length
        if what == _ENDED:
            ended = True
        else:
            _take(trace, what, text, later=ended)
    if not ended:
        trace.gaps.append(Gap(GapKind.LOST))
    return trace


def _take(trace: Trace, what: int, text: bytes, *, later: bool) -> None:
    if what == _LINKED:
        trace.linked.add(_IDENTITY.unpack(text))
    elif what == _GAP:
        kind, _, detail = text.partition(b"\0")
        trace.gaps.append(Gap(kind.decode("ascii"), detail))
    elif what == _PRIVILEGED:
        trace.privileged.append(text)
    elif what == _CLOSED:
        trace.closed = True
    else:
        (trace.later if later else trace.touched).setdefault(text, set()).add(what)
        if what == Touch.TREE and not later:
            trace.trees.add(text)

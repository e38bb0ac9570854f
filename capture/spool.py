"""A run's write-ahead journal: begin record and copies, durable before the command starts.

The file `spool` in the run's folder holds the bytes of new copies, then the begin record, then where that begins and
its digest. Its lock is held for the life of the wrapper, so that a run whose lock can be taken is a dead one.
"""

from __future__ import annotations

import marshal
import os
import struct
import time

from ckpt_run.capture import durable
from ckpt_run.capture.errors import Fault, StoreError
from ckpt_run.capture.worktree import digest_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from ckpt_run.capture.project import Project

_TRAILER = struct.Struct("<QQ32s8s")  # where the record begins, its length, its digest, the mark
_MARK = b"ckptrun1"
_SPARED = (b"git0", b"packs")  # the private repository of the project's own, and the links to packs
_BEING_MADE_NS = 10_000_000_000


class Spool:
    """The open spool of a run: its folder and its descriptor, whose flock says that the run is alive."""

    __slots__ = ("fd", "folder", "run_id")

    def __init__(self, run_id: str, folder: bytes, fd: int) -> None:
        """Hold what `open_spool` made."""
        self.run_id = run_id
        self.folder = folder
        self.fd = fd

    @property
    def pack(self) -> bytes:
        """What later runs call this spool when they use its copies."""
        return self.run_id.encode("ascii")

    @property
    def path(self) -> bytes:
        """Where the spool is."""
        return self.folder + b"/spool"

    def commit(self, record: Any, *, at: int, durably: bool) -> None:
        """Write the begin record behind `at` bytes of copies.

        1 write record and trailer    crash: no valid trailer, nothing was started: the folder is removed
        2 sync the spool, its folder, the runs' folder    crash: as before, or the run stands
        After 2 the command may start. Without `durably` (no new bytes) only a crash of the machine could lose the
        record, and then nothing that Git and older packs do not hold.
        """
        data = marshal.dumps(record)
        durable.write_all(self.fd, data + _TRAILER.pack(at, len(data), digest_of(data), _MARK))
        if durably:
            durable.sync_data(self.fd)
            durable.sync_folder(self.folder)
            durable.sync_folder(os.path.dirname(self.folder))

    def retire(self) -> None:
        """The run is recorded, or changed nothing: leave its folder, emptied, as the spare one for the next run.

        Making and removing folders is what a file system is slowest at.
        """
        for name in os.listdir(self.folder):
            if name not in _SPARED:
                _remove(self.folder + b"/" + name)
        for name in os.listdir(self.folder + b"/packs"):
            os.unlink(self.folder + b"/packs/" + name)
        try:
            os.rename(self.folder, _spare(self.folder))
        except OSError:
            remove_folder(self.folder)  # another run left one already
        self.close()

    def remove(self) -> None:
        """The run is recorded, or changed nothing: forget its folder and let the lock go."""
        remove_folder(self.folder)
        self.close()

    def close(self) -> None:
        """Let the lock go; the folder stays."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def open_spool(project: Project, run_id: str) -> Spool:
    """Make the run's folder with an empty, locked spool. Raises StoreError when the store has no room or rights."""
    folder = project.runs + b"/" + run_id.encode("ascii")
    try:
        if not _claim(_spare(folder), folder):
            os.mkdir(folder, 0o700)
            os.mkdir(folder + b"/packs", 0o700)
        fd = durable.create_private(folder + b"/spool")
        durable.lock_descriptor(fd)
    except OSError as error:
        raise store_error(error, folder) from error
    return Spool(run_id, folder, fd)


def _spare(folder: bytes) -> bytes:
    """Where the folder of a run that is over waits for the next run."""
    return os.path.dirname(os.path.dirname(folder)) + b"/memory/spare"


def _claim(spare: bytes, folder: bytes) -> bool:
    try:
        os.rename(spare, folder)
    except OSError:
        return False
    return True


def store_error(error: OSError, path: bytes) -> StoreError:
    """The fault of the store that a failed write means."""
    full = error.errno in durable.NO_ROOM
    return StoreError(Fault.STORE_FULL if full else Fault.STORE_NOT_WRITABLE, path=path, cause=error.strerror)


def read_record(path: bytes) -> Any:
    """The begin record of the spool at `path`; None when it was never finished or is damaged."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        size = os.fstat(fd).st_size
        if size < _TRAILER.size:
            return None
        start, length, digest, mark = _TRAILER.unpack(os.pread(fd, _TRAILER.size, size - _TRAILER.size))
        if mark != _MARK or start + length + _TRAILER.size != size:
            return None
        data = os.pread(fd, length, start)
        if digest_of(data) != digest:
            return None
        record = marshal.loads(data)
    except (OSError, ValueError, EOFError, TypeError):
        return None
    finally:
        os.close(fd)
    return record


class Abandoned:
    """A run's folder whose wrapper is dead: `spool` is locked by us now, `record` its begin record or None."""

    __slots__ = ("record", "spool")

    def __init__(self, spool: Spool, record: Any) -> None:
        """Hold the two."""
        self.spool = spool
        self.record = record


def abandoned(project: Project) -> Iterator[Abandoned]:
    """Every run of the project whose wrapper died, oldest first; each is locked while it is looked at."""
    for folder in sorted(_run_folders(project), key=_made_ns):
        lock = durable.lock(folder + b"/spool", durable.Share.ALONE, wait=False, make=False)
        if lock is None:
            if not os.path.exists(folder + b"/spool") and _made_ns(folder) < time.time_ns() - _BEING_MADE_NS:
                remove_folder(folder)
            continue
        spool = Spool(os.path.basename(folder).decode("ascii"), folder, lock.fd)
        record = read_record(spool.path)
        if record is None and _made_ns(folder) > time.time_ns() - _BEING_MADE_NS:
            spool.close()
            continue  # its wrapper is between making it and taking the lock
        yield Abandoned(spool, record)
        spool.close()


def has_live_run(project: Project) -> bool:
    """Say whether a wrapper of this project is alive now."""
    for folder in _run_folders(project):
        try:
            lock = durable.lock(folder + b"/spool", durable.Share.ALONE, wait=False, make=False)
        except OSError:
            continue
        if lock is not None:
            lock.release()
        elif os.path.exists(folder + b"/spool"):
            return True
    return False


def _run_folders(project: Project) -> list[bytes]:
    try:
        return [project.runs + b"/" + name for name in os.listdir(project.runs)]
    except FileNotFoundError:
        return []


def _made_ns(folder: bytes) -> int:
    try:
        info = os.stat(folder)
        return max(info.st_mtime_ns, info.st_ctime_ns)  # a spare folder has an old mtime; rename(2) sets the ctime
    except FileNotFoundError:
        return 0


def remove_folder(folder: bytes) -> None:
    """Remove a folder of ours and all in it; what is gone already is no matter."""
    try:
        listing = list(os.scandir(folder))
    except FileNotFoundError:
        return
    for item in listing:
        _remove(item.path)
    try:
        os.rmdir(folder)
    except FileNotFoundError:
        return


def _remove(path: bytes) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        remove_folder(path)
        return
    try:
        os.unlink(path)
    except FileNotFoundError:
        return

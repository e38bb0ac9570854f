"""Where a project's folder in the store is. Knows nothing of what lies in it, and nothing of Git.

`$CKPT_HOME`, else `$XDG_STATE_HOME/ckpt`, else `~/.local/state/ckpt` (macOS: `~/Library/Application Support/ckpt`).
One folder a project, named after the worktree's path; a worktree that moved is known by its device, inode and
birth.
"""

from __future__ import annotations

import os
import sys
from _blake2 import blake2b

from ckpt_run.capture import durable
from ckpt_run.capture.errors import Fault, StoreError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_ABOUT = b"/project"
STORE_FORMAT = 1
"""The format of the store's file that this version reads and writes."""
STORE_APPLICATION = 0x636B7074
"""What the header of the store's file says whose it is: "ckpt"."""
_HEADER_BYTES = 100


class Project:
    """One Git worktree and its folder in the store: `top` and `folder`, absolute."""

    __slots__ = ("folder", "top")

    def __init__(self, top: bytes, folder: bytes) -> None:
        """Hold the two; nothing is made or looked at."""
        self.top = top
        self.folder = folder

    @property
    def runs(self) -> bytes:
        """Where the folders of runs in progress are."""
        return self.folder + b"/runs"

    @property
    def memory(self) -> bytes:
        """Where one run leaves what helps the next."""
        return self.folder + b"/memory"

    @property
    def runs_lock(self) -> bytes:
        """Held together by runs, alone by an undo."""
        return self.folder + b"/runs.lock"


def home(environment: Mapping[bytes, bytes]) -> bytes:
    """The store's folder for this user, absolute. Raises StoreError when no home folder is known."""
    named = environment.get(b"CKPT_HOME")
    if named:
        return os.path.abspath(named)
    state = environment.get(b"XDG_STATE_HOME", b"")
    if state.startswith(b"/"):  # XDG Base Directory Specification: a relative path is to be ignored
        return os.path.join(state, b"ckpt")
    user = environment.get(b"HOME") or os.path.expanduser(b"~")
    if not user.startswith(b"/"):
        raise StoreError(Fault.STORE_NOT_WRITABLE, path=user, cause="no home folder is known")
    if sys.platform == "darwin":
        return user + b"/Library/Application Support/ckpt"
    return user + b"/.local/state/ckpt"


def locate(top: bytes, environment: Mapping[bytes, bytes]) -> Project:
    """The project of the worktree at `top`, whether or not its folder exists yet.

    Raises StoreError(STORE_INSIDE_PROJECT) when the store lies inside the worktree: a command could take both.
    """
    base = home(environment)
    if (os.path.realpath(base) + b"/").startswith(top.rstrip(b"/") + b"/"):
        raise StoreError(Fault.STORE_INSIDE_PROJECT, path=base, top=top)
    folder = _folder(base, top)
    if not os.path.isdir(folder):
        moved = _moved(base, top)
        if moved is not None:
            _adopt(moved, folder, top)
    return Project(top, folder)


def _folder(base: bytes, top: bytes) -> bytes:
    return base + b"/projects/" + blake2b(top, digest_size=10).hexdigest().encode()


def prepare(project: Project) -> None:
    """Make the project's folder, private. Raises StoreError when that cannot be, or its file could take no record."""
    if os.path.isdir(project.runs):
        info = os.lstat(project.folder)
        if info.st_uid != os.geteuid() or info.st_mode & 0o077:
            raise StoreError(Fault.STORE_NOT_PRIVATE, path=project.folder)
        refuse_unusable_store(project.folder + b"/store.db")
        return
    try:
        durable.make_private_folder(project.memory + b"/packs")
        durable.write_private(project.folder + _ABOUT, _identity(project.top))
        durable.make_private_folder(project.runs)  # last: where it stands, the rest does
    except OSError as error:
        raise StoreError(Fault.STORE_NOT_WRITABLE, path=project.folder, cause=error.strerror) from error


def refuse_unusable_store(path: bytes) -> None:
    """Raise StoreError where the store's file at `path` could not take a record later: damaged, or a newer format.

    Looks at its header only (https://www.sqlite.org/fileformat.html, section 1.3); no file there is fine.
    """
    try:
        with open(path, "rb", buffering=0) as file:
            head = file.read(_HEADER_BYTES) or b""
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreError(Fault.STORE_NOT_WRITABLE, path=path, cause=error.strerror) from error
    if head[:16] != b"SQLite format 3\0" or int.from_bytes(head[68:72], "big") != STORE_APPLICATION:
        raise StoreError(Fault.STORE_DAMAGED, path=path)
    found = int.from_bytes(head[60:64], "big")
    if found > STORE_FORMAT:
        raise StoreError(Fault.STORE_NEWER, path=path, format=found, known=STORE_FORMAT)


def known_projects(environment: Mapping[bytes, bytes]) -> Iterator[Project]:
    """Every project that the store has a folder of."""
    base = home(environment) + b"/projects"
    try:
        names = sorted(os.listdir(base))
    except FileNotFoundError:
        return
    for name in names:
        top = _recorded(base + b"/" + name)[0]
        if top:
            yield Project(top, base + b"/" + name)


def _identity(top: bytes) -> bytes:
    info = os.stat(top)
    return top + b"\0" + b"%d %d %d" % (info.st_dev, info.st_ino, born_ns(top))


def _recorded(folder: bytes) -> tuple[bytes, bytes]:
    try:
        with open(folder + _ABOUT, "rb") as file:
            top, _, identity = file.read().partition(b"\0")
    except OSError:
        return b"", b""
    return top, identity


def _moved(base: bytes, top: bytes) -> bytes | None:
    """The folder of the project that is at `top` now and was elsewhere: same inode, same birth, old place gone."""
    try:
        names = os.listdir(base + b"/projects")
    except OSError:
        return None
    mine = _identity(top).rpartition(b"\0")[2]
    if mine.endswith(b" 0"):
        return None  # inodes are used again; without a birth time nobody can tell
    for name in names:
        folder = base + b"/projects/" + name
        was, identity = _recorded(folder)
        if identity == mine and was != top and not os.path.lexists(was):
            return folder
    return None


def _adopt(moved: bytes, folder: bytes, top: bytes) -> None:
    try:
        os.rename(moved, folder)
        durable.write_private(folder + _ABOUT, _identity(top))
    except OSError as error:
        raise StoreError(Fault.STORE_NOT_WRITABLE, path=moved, cause=error.strerror) from error


def born_ns(path: bytes) -> int:
    """When the file or folder at `path` was made, in nanoseconds since the epoch; 0 when nobody knows."""
    birth = getattr(os.lstat(path), "st_birthtime", None)  # macOS
    if birth is not None:
        return int(birth * 1_000_000_000)
    if sys.platform != "linux":
        return 0
    return _linux_born_ns(path)


def _linux_born_ns(path: bytes) -> int:
    """statx(2), STATX_BTIME; since Linux 4.11 and glibc 2.28."""
    import ctypes  # no run that changes nothing comes here

    buffer = ctypes.create_string_buffer(256)
    statx = getattr(ctypes.CDLL(None), "statx", None)
    at_fdcwd, no_follow, birth_mask = -100, 0x100, 0x800
    if statx is None or statx(at_fdcwd, path, no_follow, birth_mask, buffer) != 0:
        return 0
    mask = int.from_bytes(buffer.raw[0:4], sys.byteorder)
    seconds = int.from_bytes(buffer.raw[80:88], sys.byteorder)
    nanoseconds = int.from_bytes(buffer.raw[88:92], sys.byteorder)
    return seconds * 1_000_000_000 + nanoseconds if mask & birth_mask else 0

"""The store's folder and file: private, of the right format, whole at first sight, safe by its pragmas.

What it promises: a file that appears under the name `store.db` has every table, and only its owner can read it or the
files that SQLite keeps beside it, whatever the umask. What it does not: that every page is sound; each read finds
that out for itself, and `verify` reads them all.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
import struct
import sys

from . import durable
from .errors import CkptError, Fault, StoreError
from .project import STORE_APPLICATION, STORE_FORMAT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

FILE_NAME = b"store.db"
BESIDE = (b"-wal", b"-shm", b"-journal")
BUSY_SECONDS = 30.0
DIGEST_BYTES = 32  # BLAKE2b-256

# On these a shared-memory file cannot be shared. https://www.sqlite.org/wal.html: "All processes using a database
# must be on the same host computer; WAL does not work over a network filesystem."
NETWORK_FILE_SYSTEMS = frozenset(
    [
        "9p",
        "afpfs",
        "afs",
        "ceph",
        "cifs",
        "fuse.glusterfs",
        "fuse.sshfs",
        "fuse.vmhgfs-fuse",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "prl_fs",
        "smb3",
        "smbfs",
        "vboxsf",
        "virtiofs",
        "webdav",
    ]
)

TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE point (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    recorded INTEGER NOT NULL,            -- the seq of its newest run: the order of points, never the clock
    started_ns INTEGER NOT NULL,
    prompt BLOB,
    session BLOB
);
CREATE INDEX point_recorded ON point (recorded);
CREATE TABLE run (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    point INTEGER NOT NULL REFERENCES point (seq) ON DELETE CASCADE,
    argv BLOB NOT NULL,
    cwd BLOB NOT NULL,
    started_ns INTEGER NOT NULL,
    ended_ns INTEGER,
    exit_code INTEGER,
    state TEXT NOT NULL,
    git_moved TEXT NOT NULL,
    background TEXT NOT NULL,
    label BLOB,
    session BLOB,
    turn BLOB,
    redoes TEXT,
    seal BLOB NOT NULL                    -- a digest over the run, its changes and what it undoes
);
CREATE INDEX run_point ON run (point);
CREATE TABLE undoes (
    seq INTEGER PRIMARY KEY,
    run INTEGER NOT NULL REFERENCES run (seq) ON DELETE CASCADE,
    target TEXT NOT NULL
);
CREATE INDEX undoes_run ON undoes (run);
CREATE TABLE change (
    seq INTEGER PRIMARY KEY,
    run INTEGER NOT NULL REFERENCES run (seq) ON DELETE CASCADE,
    path BLOB NOT NULL,
    by TEXT NOT NULL,
    known TEXT,
    reason TEXT,
    numbers TEXT NOT NULL,
    lines_added INTEGER,
    lines_removed INTEGER,
    before_kind TEXT NOT NULL, before_mode INTEGER, before_size INTEGER, before_digest BLOB,
    before_target BLOB, before_oid TEXT, before_uid INTEGER, before_gid INTEGER,
    after_kind TEXT NOT NULL, after_mode INTEGER, after_size INTEGER, after_digest BLOB,
    after_target BLOB, after_oid TEXT, after_uid INTEGER, after_gid INTEGER
);
CREATE INDEX change_run ON change (run);
CREATE INDEX change_path ON change (path);
CREATE INDEX change_before ON change (before_digest) WHERE before_digest IS NOT NULL;
CREATE INDEX change_after ON change (after_digest) WHERE after_digest IS NOT NULL;
CREATE TABLE content (
    seq INTEGER PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE,
    size INTEGER NOT NULL,
    bytes BLOB NOT NULL
);
CREATE INDEX content_size ON content (size);
CREATE TABLE open_undo (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    record TEXT NOT NULL,
    seal BLOB NOT NULL
);
CREATE TABLE held (                       -- bytes that an open undo needs to go back or forward
    undo INTEGER NOT NULL REFERENCES open_undo (seq) ON DELETE CASCADE,
    digest BLOB NOT NULL,
    PRIMARY KEY (undo, digest)
) WITHOUT ROWID;
CREATE INDEX held_digest ON held (digest);
"""
TABLE_NAMES = frozenset({"meta", "point", "run", "undoes", "change", "content", "open_undo", "held"})

_NOT_WRITABLE = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_AUTH)
_NOT_NOW = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_IOERR)


def connection_to(folder: bytes, *, create: bool) -> sqlite3.Connection:
    """Open the store's file in `folder`, made first if it is not there and `create` is on.

    Raises CkptError(NO_POINTS) where there is none, StoreError where it is not private, not writable, full, damaged,
    or of a newer format.
    """
    path = os.path.join(folder, FILE_NAME)
    with sound(path):
        if create:
            durable.make_private_folder(folder)
        if not os.path.lexists(folder):
            raise CkptError(Fault.NO_POINTS, path=folder)
        _refuse_unsafe_folder(folder)
        if not os.path.lexists(path):
            if not create:
                raise CkptError(Fault.NO_POINTS, path=folder)
            _create(folder)
        _refuse_unsafe_files(path)
        db = _connect(path)
        try:
            _refuse_unknown_format(db, path)
        except BaseException:
            db.close()
            raise
    return db


class sound:  # noqa: N801 - a scope, named by what holds inside it
    """Within it, what SQLite and the system say becomes a StoreError with its fault; `path` is the store's file.

    A class: contextlib costs a start-up what the recording of a small run does.
    """

    __slots__ = ("path",)

    def __init__(self, path: bytes) -> None:
        self.path = path

    def __enter__(self) -> None:
        return

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, (sqlite3.ProgrammingError, sqlite3.InterfaceError)):
            return  # The calling code is wrong, not the store.
        if isinstance(error, sqlite3.Error):
            raise StoreError(_fault_of(error), path=self.path, cause=str(error)) from error
        if isinstance(error, OSError):
            fault = Fault.STORE_FULL if error.errno in durable.NO_ROOM else Fault.STORE_NOT_WRITABLE
            raise StoreError(fault, path=self.path, cause=error.strerror) from error


def _fault_of(error: sqlite3.Error) -> str:
    extended = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    if extended == sqlite3.SQLITE_IOERR_SHMSIZE or extended & 0xFF == sqlite3.SQLITE_FULL:
        return Fault.STORE_FULL
    if extended & 0xFF in _NOT_WRITABLE or extended & 0xFF in _NOT_NOW:
        return Fault.STORE_NOT_WRITABLE
    return Fault.STORE_DAMAGED


def _refuse_unsafe_folder(folder: bytes) -> None:
    """Raise STORE_NOT_PRIVATE or STORE_NOT_WRITABLE; a folder of ours that others could read is closed to them."""
    found = os.stat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise StoreError(Fault.STORE_NOT_PRIVATE, path=folder, mode=stat.S_IMODE(found.st_mode), uid=found.st_uid)
    if found.st_mode & 0o077:
        os.chmod(folder, 0o700)
    if not os.access(folder, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
        raise StoreError(Fault.STORE_NOT_WRITABLE, path=folder, cause=os.strerror(errno.EACCES))


def _refuse_unsafe_files(path: bytes) -> None:
    for name in (path, *(path + suffix for suffix in BESIDE)):
        try:
            found = os.lstat(name)
        except FileNotFoundError:
            continue
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
            raise StoreError(Fault.STORE_NOT_PRIVATE, path=name, mode=stat.S_IMODE(found.st_mode), uid=found.st_uid)
        if found.st_mode & 0o077:
            os.chmod(name, 0o600)
        if name == path and not found.st_size:
            raise StoreError(Fault.STORE_DAMAGED, path=path, cause="the file is empty")


def _connect(path: bytes) -> sqlite3.Connection:
    """Open a file that is there; SQLite gives the files beside it the same mode (os_unix.c, findCreateFileMode)."""
    # mode=rw: never made by SQLite, which would use the umask.
    plain = b"/.-_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
    place = "".join(chr(byte) if byte in plain else f"%{byte:02x}" for byte in os.path.abspath(path))
    db = sqlite3.connect(f"file://{place}?mode=rw", uri=True, timeout=BUSY_SECONDS, isolation_level=None)
    db.row_factory = sqlite3.Row
    # temp_store: nothing of the store is ever written outside its folder, not even by VACUUM.
    for pragma in (
        "foreign_keys=ON",
        "synchronous=FULL",
        "temp_store=MEMORY",
        "cell_size_check=ON",
        "trusted_schema=OFF",
    ):
        db.execute(f"PRAGMA {pragma}")
    if sys.platform == "darwin":  # fsync(2) there does not reach the platter; F_FULLFSYNC does.
        db.execute("PRAGMA fullfsync=ON")
        db.execute("PRAGMA checkpoint_fullfsync=ON")
    return db


def _refuse_unknown_format(db: sqlite3.Connection, path: bytes) -> None:
    application = db.execute("PRAGMA application_id").fetchone()[0]
    found = db.execute("PRAGMA user_version").fetchone()[0]
    if application != STORE_APPLICATION:
        raise StoreError(Fault.STORE_DAMAGED, path=path, cause="not a store's file")
    if found > STORE_FORMAT:
        raise StoreError(Fault.STORE_NEWER, path=path, format=found, known=STORE_FORMAT)
    names = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if found != STORE_FORMAT or not names >= TABLE_NAMES:
        raise StoreError(Fault.STORE_DAMAGED, path=path, cause="tables are missing")


def _create(folder: bytes) -> None:
    """Make the store's file.

    1 a private sibling with all tables, closed, fsync    crash: a stray sibling, removed by the next creation
    2 rename, only where no store.db stands, fsync folder  crash: no store yet, or a whole one
    """
    for suffix in BESIDE:  # Left behind by a store.db that somebody removed: SQLite would play it into the new one.
        if os.path.lexists(os.path.join(folder, FILE_NAME + suffix)):
            raise StoreError(Fault.STORE_DAMAGED, path=folder, cause="store.db is missing")
    sibling = FILE_NAME + b".new-" + os.urandom(8).hex().encode()
    try:
        _write_with_log_that_works(folder, sibling)
        _put_in_place(folder, sibling)
    except (OSError, sqlite3.Error):
        # Another process was first, and may have taken our sibling for a stray; its store is as good.
        if not os.path.lexists(os.path.join(folder, FILE_NAME)):
            raise
    finally:
        _remove_siblings(folder, sibling)
    _remove_siblings(folder, FILE_NAME + b".new-")


def _write_with_log_that_works(folder: bytes, sibling: bytes) -> None:
    path = os.path.join(folder, sibling)
    try:
        _write_tables(path, wal=not _is_on_network(folder))
    except sqlite3.OperationalError as error:
        if _fault_of(error) == Fault.STORE_FULL:
            raise
        _remove_siblings(folder, sibling)
        _write_tables(path, wal=False)


def _put_in_place(folder: bytes, sibling: bytes) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        durable.rename_new(sibling, FILE_NAME, folder=handle)
        durable.sync(handle)
    finally:
        os.close(handle)


def _write_tables(path: bytes, *, wal: bool) -> None:
    """Write the empty tables, whole in the one file when this returns. Raises sqlite3.Error, OSError."""
    os.close(durable.create_private(path))
    db = _connect(path)
    try:
        # Not with the write-ahead log: what fails in its checkpoint as the file is closed, SQLite tells nobody
        # (https://www.sqlite.org/c3ref/close.html), and the log is not renamed with the file.
        db.execute("PRAGMA journal_mode=DELETE")
        db.executescript(
            f"BEGIN EXCLUSIVE; {TABLES} PRAGMA application_id={STORE_APPLICATION};"
            f" PRAGMA user_version={STORE_FORMAT}; COMMIT;"
        )
        if wal:
            db.execute("PRAGMA journal_mode=WAL")
    finally:
        db.close()
    if os.path.lexists(path + b"-wal"):
        raise OSError(errno.EIO, os.strerror(errno.EIO), os.fsdecode(path))
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        durable.sync(handle)
    finally:
        os.close(handle)


def _remove_siblings(folder: bytes, prefix: bytes) -> None:
    for name in os.listdir(folder):
        if name.startswith(prefix):
            try:
                os.unlink(os.path.join(folder, name))
            except FileNotFoundError:
                continue  # Another process removed it first.


def _is_on_network(folder: bytes) -> bool:
    """Say whether the folder is on a file system that other hosts may share. Asked once, when a store is made."""
    import psutil

    place = os.path.join(os.fsdecode(os.path.realpath(folder)), "")
    try:
        partitions = psutil.disk_partitions(all=True)
    except (OSError, psutil.Error):
        return True  # No /proc, say: a rollback journal is safe anywhere.
    best, kind = "", ""
    for partition in partitions:
        mount = os.path.join(partition.mountpoint, "")
        if place.startswith(mount) and len(mount) >= len(best):
            best, kind = mount, partition.fstype
    return kind.lower() in NETWORK_FILE_SYSTEMS


def header_is_ours(path: bytes) -> bool:
    """Say whether the file begins like a store's (https://www.sqlite.org/fileformat.html, section 1.3)."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        head = os.read(handle, 100)
    finally:
        os.close(handle)
    return head[:16] == b"SQLite format 3\0" and head[68:72] == struct.pack(">I", STORE_APPLICATION)

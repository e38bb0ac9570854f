"""The only fsync, rename, lock and temporary name. Knows nothing of projects.

What it promises: a call that returned has its effect on disk if its name says `durable` or `sync`, and only in
the page cache otherwise. What it does not: that a file system honours fsync.
"""

from __future__ import annotations

import errno
import fcntl
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What the system says when there is no room left."""
_TEMPORARY_PREFIX = b".ckpt-"
_RENAME_NOREPLACE = 1  # renameat2(2), linux/fs.h; since Linux 3.15
_RENAME_EXCHANGE = 2
_AT_FDCWD = -100
_MACOS_SWAP = 2  # renameatx_np(2): RENAME_SWAP
_MACOS_EXCLUSIVE = 4  # renameatx_np(2): RENAME_EXCL


def write_all(fd: int, data: bytes) -> None:
    """Write every byte of `data` to `fd`; raises OSError (ENOSPC, EIO) as the system says it."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def sync_data(fd: int) -> None:
    """Make the bytes of `fd`, and its size, durable."""
    getattr(os, "fdatasync", os.fsync)(fd)  # macOS has no fdatasync.


def sync(fd: int) -> None:
    """Make the bytes and the metadata of `fd` durable; for a directory, its names."""
    try:
        os.fsync(fd)
    except OSError as error:
        # fsync(2): a file system that cannot sync a directory answers EINVAL; there is then nothing to wait for.
        if error.errno != errno.EINVAL:
            raise


def sync_folder(path: bytes) -> None:
    """Make the names in the folder at `path` durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sync(fd)
    finally:
        os.close(fd)


def make_private_folder(path: bytes) -> None:
    """Make the folder, and those above it, with mode 0700 whatever the umask; one that stands is left."""
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path)
    if parent and parent != path:
        make_private_folder(parent)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return
    os.chmod(path, 0o700)


def create_private(path: bytes, *, folder: int | None = None) -> int:
    """Create a file that was not there, mode 0600 whatever the umask, and give its descriptor."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600, dir_fd=folder)
    try:
        os.fchmod(fd, 0o600)
    except OSError:
        os.close(fd)
        os.unlink(path, dir_fd=folder)
        raise
    return fd


def write_private(path: bytes, data: bytes) -> None:
    """Write a private file anew; atomic for a reader, not durable.

    All writers of a path share one sibling and take turns by its lock: what a dead one left, the next one uses.
    """
    temporary = path + _TEMPORARY_PREFIX + b"part"
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    is_written = False
    while not is_written:
        fd = os.open(temporary, flags, 0o600)
        try:
            lock_descriptor(fd)
            # Whoever had the lock before us may have renamed what we opened: then it is the whole file at `path`.
            is_written = _is_at(temporary, fd)
            if is_written:
                _fill_and_rename(fd, temporary, path, data)
        finally:
            os.close(fd)


def _is_at(path: bytes, fd: int) -> bool:
    try:
        there, here = os.lstat(path), os.fstat(fd)
    except FileNotFoundError:
        return False
    return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)


def _fill_and_rename(fd: int, temporary: bytes, path: bytes, data: bytes) -> None:
    """Give the file all and only these bytes and its name; where that fails, it goes. The lock is held."""
    try:
        os.fchmod(fd, 0o600)
        os.ftruncate(fd, 0)
        write_all(fd, data)
        os.rename(temporary, path)
    except OSError:
        os.unlink(temporary)
        raise


def temporary_name(token: str, number: int) -> bytes:
    """Name a sibling on its way into place: hidden, unique to `token` (an undo's id) and `number`."""
    return b"%s%s-%d.tmp" % (_TEMPORARY_PREFIX, token.encode("ascii"), number)


def is_temporary_name(name: bytes) -> bool:
    """Say whether `name` looks like one that `temporary_name` makes."""
    return name.startswith(_TEMPORARY_PREFIX) and name.endswith(b".tmp")


def replace(source: bytes, target: bytes, *, folder: int) -> None:
    """Rename within the open folder; what stands at `target` is replaced."""
    os.rename(source, target, src_dir_fd=folder, dst_dir_fd=folder)


def rename_new(source: bytes, target: bytes, *, folder: int) -> None:
    """Rename within the open folder, only if nothing stands at `target`; raises FileExistsError otherwise.

    Where the kernel or file system cannot (ENOSYS, EINVAL, ENOTSUP), a hard link, which never replaces either,
    does the same for files and links; for a folder there is then only a check and a rename.
    """
    problem = _rename_flags(source, target, folder, _RENAME_NOREPLACE, _MACOS_EXCLUSIVE)
    if problem == 0:
        return
    if problem not in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        raise OSError(problem, os.strerror(problem), os.fsdecode(target))
    try:
        os.link(source, target, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except PermissionError:  # link(2): EPERM for a folder, and where the file system has no hard links.
        _refuse_existing(target, folder)
        os.rename(source, target, src_dir_fd=folder, dst_dir_fd=folder)
        return
    os.unlink(source, dir_fd=folder)


def _refuse_existing(target: bytes, folder: int) -> None:
    try:
        os.lstat(target) if folder == _AT_FDCWD else os.stat(target, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), os.fsdecode(target))


def exchange(one: bytes, other: bytes, *, folder: int) -> bool:
    """Swap two names of the open folder in one step; False where the system or file system cannot.

    Raises OSError for any other failure, FileNotFoundError when one of them is gone.
    """
    problem = _rename_flags(one, other, folder, _RENAME_EXCHANGE, _MACOS_SWAP)
    if problem in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        return False
    if problem:
        raise OSError(problem, os.strerror(problem), os.fsdecode(other))
    return True


def _rename_flags(source: bytes, target: bytes, folder: int, linux: int, macos: int) -> int:
    """Call renameat2(2) or renameatx_np(2); 0, or the errno (ENOSYS where libc has neither)."""
    import ctypes  # ctypes costs a start-up what no capture needs; only an undo comes here.

    libc = ctypes.CDLL(None, use_errno=True)
    function = getattr(libc, "renameat2", None)  # glibc 2.28, musl 1.2.6
    flags = linux
    if function is None:
        function, flags = getattr(libc, "renameatx_np", None), macos
    if function is None:
        return errno.ENOSYS
    while True:
        if function(folder, source, folder, target, flags) == 0:
            return 0
        problem = ctypes.get_errno()
        if problem != errno.EINTR:
            return problem


class Lock:
    """A lock that dies with its process: flock(2) on a private file. A context manager; `release` by hand too."""

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        """Hold the descriptor whose open file description owns the lock."""
        self.fd = fd

    def release(self) -> None:
        """Let go; a second call does nothing."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __enter__(self) -> Lock:
        """Keep it for the scope."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go."""
        self.release()


class Share:
    """How a lock is shared."""

    ALONE = fcntl.LOCK_EX
    TOGETHER = fcntl.LOCK_SH


def lock_descriptor(fd: int) -> None:
    """Take the lock of an open file alone, waiting for it; it goes when `fd` is closed or the process dies."""
    fcntl.flock(fd, Share.ALONE)


def lock(path: bytes, share: int, *, wait: bool, make: bool = True) -> Lock | None:
    """Take the lock at `path`; None when somebody holds it and `wait` is off, or no file is there and `make` is off.

    Raises OSError when the file cannot be opened or the file system has no locks.
    """
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT if make else 0)
    try:
        fd = os.open(path, flags, 0o600)
    except FileNotFoundError:
        if make:
            raise
        return None
    try:
        fcntl.flock(fd, share if wait else share | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    except OSError:
        os.close(fd)
        raise
    return Lock(fd)

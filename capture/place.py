"""Puts ONE entry in place. At each instant the path holds a whole entry, and nobody's bytes are lost.

1 prepare  write a sibling, its owner and mode, fsync   crash: a stray sibling, the path as before
2 move     look again, then swap sibling and path       crash: the new entry stands, the old one is the sibling
           look at what came out; swap back if it is not what was expected
           fsync the folder                             crash: either name, both whole
3 drop     look again, unlink the sibling, fsync        crash: as after 2, or done

In place (the file has other names, or an owner that a new file cannot have), step 2 writes over the file instead: a
crash leaves a mixture of both, which the sibling and the rescue tell apart from somebody's work. Where a folder
goes or comes, the path is absent between two steps. Where a system cannot swap, step 2 is a look and a rename.

It knows nothing of records and roll-backs. It does not promise to see a write that comes through a descriptor
opened before step 2 and used after step 3.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ckpt_run.capture import durable
from ckpt_run.capture.model import ABSENT, Entry, Kind
from ckpt_run.capture.worktree import digest_of, is_absence, kind_of, read_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ckpt_run.capture.model import Path, Step
    from ckpt_run.capture.worktree import Tree

NO_LIMIT = 1 << 62
_LINKABLE = (Kind.FILE, Kind.LINK)
_NOFOLLOW = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


class Stale(Exception):  # noqa: N818  # somebody's doing, not a fault of ours
    """What stands at `path` is not what was expected; it was left as it is."""

    def __init__(self, path: Path) -> None:
        """Hold the path."""
        super().__init__(path)
        self.path = path


@contextmanager
def folder_of(tree: Tree, path: Path) -> Iterator[tuple[int, bytes]]:
    """Hold the folder of `path` open, no link followed; gives its descriptor and the bare name."""
    folder, _, name = path.rpartition(b"/")
    fd = tree.open_folder(folder)
    try:
        yield fd, name
    finally:
        os.close(fd)


def standing(folder: int, name: bytes) -> Entry:
    """The exact entry at `name`, ABSENT where nothing stands; raises Stale while it keeps changing, OSError."""
    for _ in range(3):
        try:
            copy = read_at(folder, name, NO_LIMIT, keep=False)
        except FileNotFoundError:
            return ABSENT
        except OSError as error:
            if is_absence(error):
                continue
            raise
        if copy is not None:
            return copy.entry if is_named_so(folder, name) else ABSENT
    raise Stale(name)


def is_named_so(folder: int, name: bytes) -> bool:
    """Say whether the entry that answers to `name` is spelt so, and not in other upper and lower case."""
    other = name.swapcase()
    if other == name:
        return True
    try:
        there = os.stat(other, dir_fd=folder, follow_symlinks=False)
        here = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return True
    if (here.st_dev, here.st_ino) != (there.st_dev, there.st_ino):
        return True
    return name in (os.fsencode(one) for one in os.listdir(folder))


def is_as(entry: Entry, expected: Entry) -> bool:
    """Say whether `entry` is the expected one; permission bits count where they are known."""
    if entry.kind == Kind.FILE and entry.digest is None:
        return False
    if entry.content != expected.content:
        return False
    return entry.mode == expected.mode or entry.mode is None or expected.mode is None


def prepare(tree: Tree, step: Step, data: bytes) -> None:
    """Write the file or link that shall stand at the path as its sibling, whole and durable. Raises OSError."""
    target = step.target
    owner = target.owner or step.now.owner
    with folder_of(tree, step.path) as (folder, name):
        if target.kind == Kind.LINK:
            os.symlink(target.target or b"", step.temporary, dir_fd=folder)
            if owner is not None and owner != (os.geteuid(), os.getegid()):
                _give(lambda: os.chown(step.temporary, *owner, dir_fd=folder, follow_symlinks=False))
            return
        fd = durable.create_private(step.temporary, folder=folder)
        try:
            durable.write_all(fd, data)
            if owner is not None and _owner(os.fstat(fd)) != owner:
                _give(lambda: os.fchown(fd, *owner))
            if step.now.kind == Kind.FILE:
                _copy_attributes(folder, name, fd)
            os.fchmod(fd, 0o600 if target.mode is None else target.mode)
            durable.sync(fd)
        finally:
            os.close(fd)


def move(tree: Tree, step: Step, data: bytes) -> None:
    """Turn `step.now` into `step.target` at the path; a file or link to be put there was prepared before.

    Raises Stale, with everything as it was, when something else stands at the path or its folder was moved away;
    OSError when the system refuses.
    """
    with folder_of(tree, step.path) as (folder, name):
        _refuse_moved(tree, step.path, folder)
        entry = standing(folder, name)
        if not _is_expected(entry, step.now):
            if is_as(entry, step.target) and _has_other_names(folder, name):
                return  # written through another name of the same file, an earlier step of the same undo
            raise Stale(step.path)
        back: list[Callable[[], None]] = []
        try:
            _turn(folder, name, step, data, back)
            _refuse_moved(tree, step.path, folder)
        except Stale:
            for undo in reversed(back):
                undo()
            raise
        durable.sync(folder)


def _is_expected(entry: Entry, expected: Entry) -> bool:
    # A folder that had to be made writable for the undo has other permission bits meanwhile.
    return entry.kind == expected.kind == Kind.DIRECTORY or is_as(entry, expected)


def _turn(folder: int, name: bytes, step: Step, data: bytes, back: list[Callable[[], None]]) -> None:
    """Do the one or two renames, each with its way back."""
    now, target, sibling = step.now, step.target, step.temporary
    if now.kind in _LINKABLE and target.kind in _LINKABLE:
        if now.content == target.content:
            set_mode(folder, name, target)
            back.append(lambda: set_mode(folder, name, now))
        elif _has_to_stay(folder, name, step):
            _write_over_expected(folder, name, step, data)
        else:
            _swap(folder, name, step, back)
        return
    if now.kind == Kind.DIRECTORY:
        _remove_folder(folder, name, step)
        back.append(lambda: make_folder(folder, name, now))
    elif now.kind != Kind.ABSENT:
        durable.rename_new(name, sibling, folder=folder)
        back.append(lambda: durable.rename_new(sibling, name, folder=folder))
        if not is_as(standing(folder, sibling), now):
            raise Stale(step.path)
    try:
        if target.kind == Kind.DIRECTORY:
            make_folder(folder, name, target)
            back.append(lambda: os.rmdir(name, dir_fd=folder))
        elif target.kind != Kind.ABSENT:
            durable.rename_new(sibling, name, folder=folder)
            back.append(lambda: durable.rename_new(name, sibling, folder=folder))
    except FileExistsError:
        raise Stale(step.path) from None


def _remove_folder(folder: int, name: bytes, step: Step) -> None:
    try:
        os.rmdir(name, dir_fd=folder)
    except OSError as error:
        # rmdir(2): ENOTEMPTY, or EEXIST by POSIX: somebody put something into it.
        if error.errno in {errno.ENOTEMPTY, errno.EEXIST}:
            raise Stale(step.path) from None
        raise


def _swap(folder: int, name: bytes, step: Step, back: list[Callable[[], None]]) -> None:
    sibling = step.temporary
    try:
        is_swapped = durable.exchange(sibling, name, folder=folder)
    except FileNotFoundError:
        raise Stale(step.path) from None
    if not is_swapped:
        durable.replace(sibling, name, folder=folder)
        return
    back.append(lambda: _swap_back(folder, name, sibling))
    if not is_as(standing(folder, sibling), step.now):
        raise Stale(step.path)


def _swap_back(folder: int, name: bytes, sibling: bytes) -> None:
    durable.exchange(sibling, name, folder=folder)


def _has_other_names(folder: int, name: bytes) -> bool:
    info = os.stat(name, dir_fd=folder, follow_symlinks=False)
    return stat.S_ISREG(info.st_mode) and info.st_nlink > 1


def _has_to_stay(folder: int, name: bytes, step: Step) -> bool:
    """Say whether the file must keep its inode: it has other names, or an owner its sibling could not get."""
    if step.now.kind != Kind.FILE or step.target.kind != Kind.FILE:
        return False
    info = os.stat(name, dir_fd=folder, follow_symlinks=False)
    sibling = os.stat(step.temporary, dir_fd=folder, follow_symlinks=False)
    return info.st_nlink > 1 or _owner(sibling) != (step.target.owner or _owner(info))


def _write_over_expected(folder: int, name: bytes, step: Step, data: bytes) -> None:
    def is_expected(found: bytes) -> bool:
        return digest_of(found) == step.now.digest

    wanted = step.now.mode if step.target.mode is None else step.target.mode
    if not write_over(folder, name, data, wanted, is_expected):
        raise Stale(step.path)


def write_over(folder: int, name: bytes, data: bytes, mode: int | None, is_expected: Callable[[bytes], bool]) -> bool:
    """Write `data` over the file at `name`, durable, its inode kept.

    False, with nothing written, where the bytes of the very file that was opened are not the expected ones: a save
    by renaming may have put another file there.
    """
    mode_found = stat.S_IMODE(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    fd = _open_to_write(folder, name)
    try:
        if not is_expected(_read_all(fd)):
            if stat.S_IMODE(os.fstat(fd).st_mode) != mode_found:
                os.fchmod(fd, mode_found)
            return False
        os.lseek(fd, 0, os.SEEK_SET)
        durable.write_all(fd, data)
        os.ftruncate(fd, len(data))
        if mode is not None and stat.S_IMODE(os.fstat(fd).st_mode) != mode:
            os.fchmod(fd, mode)
        durable.sync(fd)
    finally:
        os.close(fd)
    return True


def _read_all(fd: int) -> bytes:
    with open(fd, "rb", closefd=False) as file:
        return file.read()


def _open_to_write(folder: int, name: bytes) -> int:
    try:
        return os.open(name, os.O_RDWR | _NOFOLLOW, dir_fd=folder)
    except PermissionError:
        # Our own file, read-only for us: writable for the moment; the mode it shall have comes after its bytes.
        info = os.stat(name, dir_fd=folder, follow_symlinks=False)
        mode = stat.S_IMODE(info.st_mode)
        set_mode(folder, name, Entry(kind_of(info.st_mode), mode=mode | stat.S_IRUSR | stat.S_IWUSR))
        try:
            return os.open(name, os.O_RDWR | _NOFOLLOW, dir_fd=folder)
        except OSError:
            set_mode(folder, name, Entry(kind_of(info.st_mode), mode=mode))
            raise


def drop(tree: Tree, step: Step) -> None:
    """Remove the sibling, whose bytes are known: the old entry or the new one. Raises Stale when they are not."""
    try:
        with folder_of(tree, step.path) as (folder, _):
            entry = standing(folder, step.temporary)
            if entry.kind == Kind.ABSENT:
                return
            if entry.content not in {step.now.content, step.target.content}:
                raise Stale(step.path)
            os.unlink(step.temporary, dir_fd=folder)
            durable.sync(folder)
    except OSError as error:
        if not is_absence(error):  # else the folder itself has gone, and the sibling before it
            raise


def make_folder(folder: int, name: bytes, entry: Entry) -> None:
    """Make a folder that was not there, for now writable for its owner whatever its mode says."""
    os.mkdir(name, 0o700, dir_fd=folder)
    if entry.mode is not None:
        set_mode(folder, name, Entry(Kind.DIRECTORY, mode=entry.mode | 0o700))
    if entry.owner is not None and entry.owner != (os.geteuid(), os.getegid()):
        owner = entry.owner
        _give(lambda: os.chown(name, *owner, dir_fd=folder, follow_symlinks=False))


def set_mode(folder: int, name: bytes, entry: Entry) -> None:
    """Give the file or folder at `name` the permission bits of `entry`, never through a link."""
    if entry.mode is None:
        return
    kind = os.O_DIRECTORY if entry.kind == Kind.DIRECTORY else 0
    try:
        fd = os.open(name, os.O_RDONLY | _NOFOLLOW | kind, dir_fd=folder)
    except PermissionError:
        if not hasattr(os, "O_PATH"):
            raise
        # What we may not read we may still own: O_PATH asks for no permission (open(2), since Linux 2.6.39).
        fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC | kind, dir_fd=folder)
        try:
            if stat.S_ISLNK(os.fstat(fd).st_mode):
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fsdecode(name)) from None
            os.chmod(b"/proc/self/fd/%d" % fd, entry.mode)
        finally:
            os.close(fd)
        return
    try:
        os.fchmod(fd, entry.mode)
        durable.sync(fd)
    finally:
        os.close(fd)


def _refuse_moved(tree: Tree, path: Path, folder: int) -> None:
    """Raise Stale when the open folder is no longer the one at its place in the project."""
    try:
        again = tree.open_folder(path.rpartition(b"/")[0])
    except OSError as error:
        if is_absence(error):
            raise Stale(path) from None
        raise
    try:
        here, there = os.fstat(folder), os.fstat(again)
    finally:
        os.close(again)
    if (here.st_dev, here.st_ino) != (there.st_dev, there.st_ino):
        raise Stale(path)


def _owner(info: os.stat_result) -> tuple[int, int]:
    return (info.st_uid, info.st_gid)


def _give(give: Callable[[], None]) -> None:
    """Hand an entry to its owner where the system lets us; `_has_to_stay` looks at what came of it."""
    try:
        give()
    except PermissionError:
        return


def _copy_attributes(folder: int, name: bytes, to: int) -> None:
    """Give the new file the extended attributes of the one it replaces, as far as the system lets us."""
    if not hasattr(os, "listxattr"):
        return
    try:
        fd = os.open(name, os.O_RDONLY | _NOFOLLOW, dir_fd=folder)
    except OSError:
        return  # whether the path may be replaced is decided in `move`
    try:
        for attribute in os.listxattr(fd):
            try:
                os.setxattr(to, attribute, os.getxattr(fd, attribute))
            except OSError as error:
                if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EIO}:
                    raise
    except OSError as error:
        if error.errno != errno.ENOTSUP:
            raise
    finally:
        os.close(fd)

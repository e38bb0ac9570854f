"""The supervisor: looks at each call of the command that can change a file, notes it, and lets it go on.

It never refuses a call and never changes one. What it cannot make sense of is a gap of the trace. The order for each
call is: read, copy on first touch, let go on, note; so the command waits for nothing that can be done afterwards,
and a note is only made of a caller that stood still while it was read.
"""

from __future__ import annotations

import errno
import os
import stat
import struct

from .calls import (
    ARCH_X86_64,
    AT_EMPTY_PATH,
    AT_FDCWD,
    AT_SYMLINK_NOFOLLOW,
    O_CREAT,
    O_EXCL,
    O_TMPFILE_BIT,
    WRITE_FLAGS,
    X32_BIT,
    Form,
)
from .journal import GapKind, Touch
from .places import Blind, Place, Status
from .privileges import has_privileges
from .servers import ADDRESS_BYTES_MAX, Servers

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _thread
    from collections.abc import Callable

    from .calls import Call, Machine
    from .first_touch import Pack
    from .journal import Writer
    from .kernel import Listener, Memory
    from .places import Places

_SEEN_OFTEN = frozenset({b"/dev/null", b"/dev/tty", b"/dev/zero"})
_GAP_KINDS = {"open_by_handle_at": GapKind.HANDLES, "pidfd_getfd": GapKind.HANDLES}
_BITS_OR_TIMES = frozenset({Touch.BITS, Touch.TIMES})
_SYS_CONNECT = 3  # linux/net.h
_RESOLVE_IN_ROOT = 0x10  # linux/openat2.h
_OPEN_HOW = struct.Struct("=QQQ")
_GONE = (errno.ESRCH, errno.EFAULT, errno.ENOENT)
Seen = tuple[int, Place]
if TYPE_CHECKING:
    Look = Callable[[Call, int, tuple[int, ...]], list[Seen]]


class Supervisor:
    """Serves the listener until no caller is left; `lock` is held while a call is looked at and noted."""

    def __init__(
        self,
        machine: Machine,
        memory: Memory,
        places: Places,
        journal: Writer,
        lock: _thread.LockType,
        pack: Pack | None,
    ) -> None:
        """Hold what it works with."""
        self._memory = memory
        self._places = places
        self._journal = journal
        self._lock = lock
        self._pack = pack
        self._nofollow = machine.nofollow
        self._servers = Servers()
        self._blind = False
        forms: dict[str, Look] = {
            Form.OPEN: self._open,
            Form.OPEN_HOW: self._open_how,
            Form.NAMES: self._names,
            Form.CONTENT: self._content,
            Form.BITS: self._bits,
            Form.TIMES: self._times,
            Form.DESCRIPTOR: self._descriptor,
            Form.GAP: self._gap,
            Form.EXECUTE: self._execute,
            Form.CONNECT: self._connect,
            Form.LISTEN: self._listen,
        }
        # One step from a call to the way to look at it; most of the time goes by in steps.
        self._known = {
            (arch, number | bit): (forms[call.form], call)
            for arch, table in machine.tables.items()
            for number, call in table.items()
            for bit in ((0, X32_BIT) if arch == ARCH_X86_64 else (0,))
        }

    def serve(self, listener: Listener) -> None:
        """Look at every call until none can come."""
        pack, lock = self._pack, self._lock
        while (call := listener.next()) is not None:
            with lock:
                thread = call[1]
                seen = self._look(call)
                if listener.let_go_on(call[0]):
                    for touch, place in seen:
                        self._note(thread, touch, place)
                        if place.info is None and pack is not None and touch not in _BITS_OR_TIMES:
                            pack.absent(place.path)

    def touch_inherited(self) -> None:
        """Note the project's files that the command is started with, open for writing."""
        for name in os.listdir("/proc/self/fd"):
            try:
                if not os.get_inheritable(int(name)):
                    continue
                with open(f"/proc/self/fdinfo/{name}", "rb", buffering=0) as file:
                    flags = int(file.readall().split(b"flags:")[1].split()[0], 8)
                place = self._places.of_descriptor(os.getpid(), int(name))
            except (OSError, IndexError):
                continue  # the descriptor of this listing itself
            if flags & 3 and place is not None and place.info is not None and stat.S_ISREG(place.info.st_mode):
                self._keep(Touch.INHERITED, place)
                self._note(os.getpid(), Touch.INHERITED, place)

    def _look(self, call: tuple[int, ...]) -> list[Seen]:
        _, thread, number, arch = call[:4]
        known = self._known.get((arch, number))
        seen: list[Seen] = []
        try:
            if known is None:
                self._journal.gap(GapKind.FOREIGN_CALLS, thread, b"%#x" % arch)
            elif not self._blind:
                seen = known[0](known[1], thread, call[4:])
                if self._pack is not None:
                    for touch, place in seen:
                        self._keep(touch, place)
        except Blind:
            self._journal.gap(GapKind.UNREADABLE, thread, _name(thread))
        except OSError as error:
            # The caller died, or gave an address that is none: nothing will happen.
            if error.errno == errno.EPERM:
                self._journal.gap(GapKind.UNREADABLE, thread, _name(thread))
            elif error.errno not in _GONE:
                self._journal.gap(GapKind.FAULT, thread, os.fsencode(error.strerror or ""))
        except Exception as error:  # noqa: BLE001  # the command must go on; the trace says that it is not whole
            self._journal.gap(GapKind.FAULT, thread, repr(error).encode(errors="replace"))
        return seen

    def _keep(self, touch: int, place: Place) -> None:
        """Copy what stands there, if that is the first touch."""
        pack, info = self._pack, place.info
        if pack is None or info is None:
            return
        if touch == Touch.BITS:
            pack.bits(place.path, info)
        elif touch == Touch.TREE:
            pack.tree(place.path)
        elif touch != Touch.TIMES:
            pack.content(place.path)

    def _note(self, thread: int, touch: int, place: Place) -> None:
        self._journal.touch(touch, thread, place.path)
        info = place.info
        if info is not None and info.st_nlink > 1 and touch != Touch.NAME and not stat.S_ISDIR(info.st_mode):
            self._journal.linked(thread, info.st_dev, info.st_ino)

    def _at(
        self,
        touch: int,
        thread: int,
        arguments: tuple[int, ...],
        where: tuple[int | None, int],
        *,
        follow: bool,
        status: int = Status.NEEDED,
    ) -> list[Seen]:
        folder, path_index = where
        path = self._memory.string(thread, arguments[path_index])
        if not path or path in _SEEN_OFTEN or _is_gits(path):
            return []
        descriptor = AT_FDCWD if folder is None else _signed(arguments[folder])
        return self._find(touch, thread, descriptor, path, follow=follow, status=status)

    def _find(
        self, touch: int, thread: int, folder: int, path: bytes, *, follow: bool, status: int = Status.NEEDED
    ) -> list[Seen]:
        place = self._places.find(thread, folder, path, follow=follow, status=status)
        return [] if place is None or place.path == b".git" or _is_gits(place.path) else [(touch, place)]

    def _open(self, call: Call, thread: int, arguments: tuple[int, ...]) -> list[Seen]:
        flags = arguments[call.flags or 0]
        if flags & O_TMPFILE_BIT:
            return []  # a file without a name; it gets one by linkat
        status = Status.NEEDED_MAYBE_ABSENT if flags & O_CREAT else Status.NEEDED
        return self._at(Touch.CONTENT, thread, arguments, call.places[0], follow=self._follows(flags), status=status)

    def _follows(self, flags: int) -> bool:
        # open(2): O_CREAT with O_EXCL does not follow a link either.
        return not flags & self._nofollow and flags & (O_CREAT | O_EXCL) != O_CREAT | O_EXCL

    def _open_how(self, _call: Call, thread: int, arguments: tuple[int, ...]) -> list[Seen]:
        flags, _, resolve = _OPEN_HOW.unpack(self._memory.read(thread, arguments[2], _OPEN_HOW.size))
        if not flags & WRITE_FLAGS or flags & O_TMPFILE_BIT:
            return []
        path = self._memory.string(thread, arguments[1])
        if resolve & _RESOLVE_IN_ROOT:
            path = b"./" + path.lstrip(b"/")
        return self._find(Touch.CONTENT, thread, _signed(arguments[0]), path, follow=self._follows(flags))

    def _names(self, call: Call, thread: int, arguments: tuple[int, ...]) -> list[Seen]:
        seen: list[Seen] = []
        moves = len(call.places) > 1
        status = Status.NEEDED_MAYBE_ABSENT if moves or self._pack is not None else Status.UNNEEDED
        for where in call.places:
            seen += self._at(Touch.NAME, thread, arguments, where, follow=False, status=status)
        # What lies below a folder moves with it, at both ends.
        if moves and any(place.info and stat.S_ISDIR(place.info.st_mode) for _, place in seen):
            seen += [(Touch.TREE, place) for _, place in seen]
            self._places.distrust_folders()
        return seen

    def _content(self, call: Call, thread: int, arguments: tuple[int, ...]) -> list[Seen]:
        return self._at(Touch.CONTENT, thread, arguments, call.places[0], follow=True)

    def _bits(self, call: Call, thread: int, arguments: tuple[int, ...]) -> list[Seen]:
        return self._metadata(Touch.BITS, call, thread, arguments)

    def _times(self, call: Call, thread: int, arguments: tuple[int, ...]) -> list[Seen]:
        return self._metadata(Touch.TIMES, call, thread, arguments)

    def _metadata(self, touch: int, call: Call, thread: int, arguments: tuple[int, ...]) -> list[Seen]:
        folder, path = call.places[0]
        flags = 0 if call.flags is None else arguments[call.flags]
        # utimensat(2) without a path, or AT_EMPTY_PATH with an empty one: the descriptor itself.
        if folder is not None and (
            not arguments[path] or (flags & AT_EMPTY_PATH and not self._memory.string(thread, arguments[path]))
        ):
            return self._opened(touch, thread, _signed(arguments[folder]))
        follow = call.follow and not flags & AT_SYMLINK_NOFOLLOW
        return self._at(touch, thread, arguments, call.places[0], follow=follow)

    def _descriptor(self, _call: Call, thread: int, arguments: tuple[int, ...]) -> list[Seen]:
        return self._opened(Touch.BITS, thread, _signed(arguments[0]))

    def _opened(self, touch: int, thread: int, descriptor: int) -> list[Seen]:
        if descriptor == AT_FDCWD:
            return self._find(touch, thread, AT_FDCWD, b".", follow=True)
        place = self._places.of_descriptor(thread, descriptor)
        return [] if place is None or _is_gits(place.path) else [(touch, place)]

    def _gap(self, call: Call, thread: int, arguments: tuple[int, ...]) -> list[Seen]:
        if call.name == "socketcall":  # the 32-bit door to connect, whose arguments are in memory
            if arguments[0] == _SYS_CONNECT:
                self._journal.gap(GapKind.SERVER, thread)
            return []
        self._journal.gap(_GAP_KINDS.get(call.name, GapKind.MOUNTS), thread, call.name.encode("ascii"))
        self._places.distrust_root()
        # To look into a file system that the command itself serves would wait for the command, which waits for us.
        if call.name == "move_mount" or (
            call.name == "mount" and arguments[2] and self._memory.string(thread, arguments[2]).startswith(b"fuse")
        ):
            self._blind = True
        return []

    def _execute(self, call: Call, thread: int, arguments: tuple[int, ...]) -> list[Seen]:
        folder, index = call.places[0]
        path = self._memory.string(thread, arguments[index])
        if path:
            program = self._places.seen_from_here(
                thread, AT_FDCWD if folder is None else _signed(arguments[folder]), path
            )
            if has_privileges(program):
                self._journal.privileged(thread, path)
        return []

    def _connect(self, _call: Call, thread: int, arguments: tuple[int, ...]) -> list[Seen]:
        size = min(arguments[2], ADDRESS_BYTES_MAX)
        if size > 2:
            server = self._servers.foreign(thread, self._memory.read(thread, arguments[1], size))
            if server is not None:
                self._journal.gap(GapKind.SERVER, thread, server)
        return []

    def _listen(self, _call: Call, thread: int, arguments: tuple[int, ...]) -> list[Seen]:
        self._servers.listens(thread, _signed(arguments[0]))
        return []


def _is_gits(path: bytes) -> bool:
    """Whether a path, as written, leads into a folder of Git's own: such files are never a change of a project."""
    return b".git/" in path and (path.startswith(b".git/") or b"/.git/" in path) and b"/.." not in path


def _signed(argument: int) -> int:
    """Read an argument as the int that the kernel takes it for."""
    argument &= 0xFFFFFFFF
    return argument - (1 << 32) if argument & 0x80000000 else argument


def _name(thread: int) -> bytes:
    try:
        with open(b"/proc/%d/comm" % thread, "rb", buffering=0) as file:
            return (file.readall() or b"").rstrip(b"\n")
    except OSError:
        return b""

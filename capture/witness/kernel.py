"""The doors to the kernel that Python lacks: seccomp(2), prctl(2), process_vm_readv(2). Linux only.

Importing this costs some milliseconds (ctypes), so only a traced run does.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import struct

from . import filter as bpf

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from .calls import Machine

_PR_SET_NAME, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 15, 36, 38  # linux/prctl.h
_SET_MODE_FILTER = 1  # linux/seccomp.h
# SPEC_ALLOW (4.17): the command's speculation stays as it was. WAIT_KILLABLE_RECV (5.19): a signal does not make a
# call that is being looked at start again. NEW_LISTENER (5.0).
_SPEC_ALLOW, _NEW_LISTENER, _WAIT_KILLABLE_RECV = 4, 8, 32
_RECV, _SEND, _SET_FLAGS = 0xC0502100, 0xC0182101, 0x40082104  # SECCOMP_IOCTL_NOTIF_*
_SYNC_WAKE_UP = 1  # linux/seccomp.h, since 6.6
_CONTINUE = 1  # SECCOMP_USER_NOTIF_FLAG_CONTINUE, since 5.5
_POLLHUP = 16
_ATTRIBUTES_BYTES, _SIGNAL_SET_BYTES = 512, 128  # posix_spawnattr_t is 336 in glibc and musl; sigset_t is 128
_SETSIGDEF, _SETSIGMASK = 4, 8  # spawn.h
_PAGE_BYTES = 4096  # pages of aarch64 may be larger; this divides them
_STRING_BYTES_MAX = 4096  # PATH_MAX
_FIRST_READ_BYTES = 256

_libc = ctypes.CDLL(None, use_errno=True)
_read_memory = _libc.process_vm_readv
_read_memory.restype = ctypes.c_ssize_t
_NONE, _ONE, _TWO = ctypes.c_ulong(0), ctypes.c_ulong(1), ctypes.c_ulong(2)


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def adopt_orphans() -> None:
    """Make descendants whose parent died children of this process; raises OSError."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def set_name(name: bytes) -> None:
    """Set what ps(1) shows for this thread, at most 15 bytes; raises OSError."""
    text = ctypes.create_string_buffer(name)
    _prctl(_PR_SET_NAME, ctypes.addressof(text))


class Filtered:
    """A thread under the filter: the listener's descriptor, and whether it had to give up new privileges."""

    __slots__ = ("listener", "no_new_privs")

    def __init__(self, listener: int, *, no_new_privs: bool) -> None:
        """Hold the facts."""
        self.listener = listener
        self.no_new_privs = no_new_privs


def filter_this_thread(machine: Machine, forms: Container[str], forms_unprivileged: Container[str]) -> Filtered:
    """Put the calling thread, and what it starts, under the filter; raises OSError (EBUSY, EINVAL, ENOSYS, …).

    `no_new_privs` is set only where the kernel refuses without it (EACCES: no CAP_SYS_ADMIN; seccomp(2)); then the
    second set of forms is told.
    """
    try:
        return Filtered(_install(machine, forms), no_new_privs=False)
    except PermissionError as error:
        if error.errno != errno.EACCES:
            raise
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    return Filtered(_install(machine, forms_unprivileged), no_new_privs=True)


def _install(machine: Machine, forms: Container[str]) -> int:
    code = ctypes.create_string_buffer(bpf.packed(bpf.program(machine, forms)))
    program = ctypes.create_string_buffer(struct.pack("@HP", len(code) // 8, ctypes.addressof(code)))
    number = errno.EINVAL
    for flags in (_NEW_LISTENER | _SPEC_ALLOW | _WAIT_KILLABLE_RECV, _NEW_LISTENER | _SPEC_ALLOW):
        fd = int(
            _libc.syscall(
                ctypes.c_long(machine.seccomp), _SET_MODE_FILTER, ctypes.c_ulong(flags), ctypes.byref(program)
            )
        )
        if fd >= 0:
            return fd
        number = ctypes.get_errno()
        if number != errno.EINVAL:
            break
    raise OSError(number, os.strerror(number))


class Command:
    """What to start: the file, its arguments and environment, the signal mask, the signals set to their default."""

    __slots__ = ("argv", "defaults", "environment", "mask", "path")

    def __init__(
        self,
        path: bytes,
        argv: Sequence[bytes],
        environment: Mapping[bytes, bytes],
        mask: Iterable[int],
        defaults: Iterable[int],
    ) -> None:
        """Hold the facts."""
        self.path = path
        self.argv = list(argv)
        self.environment = environment
        self.mask = tuple(mask)
        self.defaults = tuple(defaults)

    def spawn(self) -> int:
        """Start it as posix_spawn(3) does and return its pid; raises OSError. Other threads go on meanwhile.

        os.posix_spawn would stop the thread that answers the very execve of it.
        """
        pid = ctypes.c_int(0)
        attributes = ctypes.create_string_buffer(_ATTRIBUTES_BYTES)
        _libc.posix_spawnattr_init(attributes)
        _libc.posix_spawnattr_setsigmask(attributes, _signal_set(self.mask))
        _libc.posix_spawnattr_setsigdefault(attributes, _signal_set(self.defaults))
        _libc.posix_spawnattr_setflags(attributes, ctypes.c_short(_SETSIGDEF | _SETSIGMASK))
        variables = [name + b"=" + value for name, value in self.environment.items()]
        number = _libc.posix_spawn(
            ctypes.byref(pid), self.path, None, attributes, _strings(self.argv), _strings(variables)
        )
        _libc.posix_spawnattr_destroy(attributes)
        if number:
            raise OSError(number, os.strerror(number), os.fsdecode(self.path))
        return pid.value

    def spawn_untraced(self) -> int:
        """Start it by the plain door; raises OSError."""
        return os.posix_spawn(self.path, self.argv, self.environment, setsigmask=self.mask, setsigdef=self.defaults)


def _strings(words: Sequence[bytes]) -> ctypes.Array[ctypes.c_char_p]:
    return (ctypes.c_char_p * (len(words) + 1))(*words, None)


def _signal_set(numbers: Iterable[int]) -> ctypes.Array[ctypes.c_char]:
    members = ctypes.create_string_buffer(_SIGNAL_SET_BYTES)
    _libc.sigemptyset(members)
    for number in numbers:
        _libc.sigaddset(members, number)
    return members


class Listener:
    """Where the stopped calls of the command arrive."""

    __slots__ = ("_answer", "_call", "_fd")

    def __init__(self, fd: int) -> None:
        """Hold the descriptor that the filter gave."""
        self._fd = fd
        self._call = bytearray(80)  # struct seccomp_notif
        self._answer = bytearray(24)  # struct seccomp_notif_resp
        try:
            # The answer wakes the caller on this processor, where its data is warm.
            fcntl.ioctl(fd, _SET_FLAGS, _SYNC_WAKE_UP)
        except OSError:
            return  # before 6.6: the scheduler chooses

    def next(self) -> tuple[int, ...] | None:
        """Wait for a call: (id, thread, number, architecture, six arguments); None when none can come any more."""
        call = self._call
        while True:
            call[:] = _NO_CALL  # the kernel refuses a buffer that is not zero
            try:
                fcntl.ioctl(self._fd, _RECV, call, True)  # noqa: FBT003  # positional only
            except OSError as error:
                # ENOENT: the caller died meanwhile; since 6.11 also: every caller has gone.
                if error.errno == errno.EINTR or (error.errno == errno.ENOENT and not self._is_over()):
                    continue
                return None
            return _CALL.unpack_from(call)

    def let_go_on(self, call_id: int) -> bool:
        """Let the call go on as if nothing had been; False if its caller is not waiting any more.

        True proves that the caller stood still all the time, so what was read from it was its own.
        """
        _ANSWER.pack_into(self._answer, 0, call_id, 0, 0, _CONTINUE)
        try:
            fcntl.ioctl(self._fd, _SEND, self._answer, True)  # noqa: FBT003  # positional only
        except OSError:
            return False
        return True

    def _is_over(self) -> bool:
        poll = struct.pack("=ihh", self._fd, 0, 0)
        asked = ctypes.create_string_buffer(poll, len(poll))
        return _libc.poll(asked, ctypes.c_ulong(1), 0) == 1 and bool(struct.unpack("=ihh", asked.raw)[2] & _POLLHUP)


_NO_CALL = bytes(80)
_CALL = struct.Struct("=QI4xiI8x6Q")
_ANSWER = struct.Struct("=QqiI")


class Memory:
    """Reads the memory of stopped processes."""

    __slots__ = ("_address", "_data", "_from", "_into", "_vectors")

    def __init__(self) -> None:
        """Prepare the buffers once; they are used for every call."""
        self._data = ctypes.create_string_buffer(_STRING_BYTES_MAX + 1)
        self._address = ctypes.addressof(self._data)
        self._vectors = (ctypes.c_uint64 * 6)(self._address)
        # Made once: to have ctypes check and convert arguments costs as much as the call.
        self._into = ctypes.c_void_p(ctypes.addressof(self._vectors))
        self._from = ctypes.c_void_p(ctypes.addressof(self._vectors) + 16)

    def read(self, thread: int, address: int, size: int) -> bytes:
        """Read up to `size` bytes (at most 4096), fewer where the memory ends; raises OSError."""
        got = self._fetch(thread, address, size)
        return self._data.raw[:got]

    def string(self, thread: int, address: int) -> bytes:
        """Read the string at the address, without its NUL; raises OSError, ENAMETOOLONG over PATH_MAX."""
        for size in (min(_FIRST_READ_BYTES, _PAGE_BYTES - address % _PAGE_BYTES), _STRING_BYTES_MAX):
            got = self._fetch(thread, address, size)
            self._data[got] = b"\0"
            text: bytes = self._data.value
            if len(text) < got:
                return text
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))

    def _fetch(self, thread: int, address: int, size: int) -> int:
        vectors = self._vectors
        first = _PAGE_BYTES - address % _PAGE_BYTES
        vectors[1] = size
        vectors[2] = address
        if size <= first:
            vectors[3] = size
            got = _read_memory(thread, self._into, _ONE, self._from, _ONE, _NONE)
        else:
            # A transfer stops between two pieces, never inside one: so a piece ends where a page does.
            vectors[3], vectors[4], vectors[5] = first, address + first, size - first
            got = _read_memory(thread, self._into, _ONE, self._from, _TWO, _NONE)
        if got < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return int(got)

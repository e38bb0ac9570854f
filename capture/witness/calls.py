"""The system calls that can change a file, for each machine: their numbers, and where their paths stand.

Pure data. Numbers are those of Linux 6.17 (arch/x86/entry/syscalls/syscall_64.tbl and syscall_32.tbl,
scripts/syscall.tbl for aarch64). A call on a descriptor alone that was opened for writing (write, ftruncate,
fallocate, copy_file_range) is not here: its opening was.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

AT_FDCWD = -100
AT_SYMLINK_NOFOLLOW = 0x100
AT_EMPTY_PATH = 0x1000
O_EXCL, O_CREAT, O_NOFOLLOW = 0o200, 0o100, {"x86_64": 0o400000, "aarch64": 0o100000}
O_TMPFILE_BIT = 0o20000000
WRITE_FLAGS = 0o1103
"""O_WRONLY, O_RDWR, O_CREAT, O_TRUNC (asm-generic/fcntl.h; the same on all machines here): such an open can write."""

X32_BIT = 0x40000000  # __X32_SYSCALL_BIT, asm/unistd.h: the same numbers with 32-bit pointers
ARCH_X86_64 = 0xC000003E  # linux/audit.h
ARCH_I386 = 0x40000003
ARCH_AARCH64 = 0xC00000B7


class Form:
    """What a call does with its paths."""

    OPEN = "open"  # may change the bytes of the file, or make it; flags say whether
    OPEN_HOW = "open_how"  # openat2: the flags are in memory
    NAMES = "names"  # makes, removes or moves the names themselves
    CONTENT = "content"  # truncate
    BITS = "bits"  # permission bits, owner, attributes
    TIMES = "times"
    DESCRIPTOR = "descriptor"  # as BITS, through a descriptor
    GAP = "gap"  # what follows cannot be traced
    EXECUTE = "execute"
    CONNECT = "connect"
    LISTEN = "listen"


class Call:
    """One call: name, form, and which arguments are what.

    `places` holds (index of the folder's descriptor or None, index of the path); `flags` is the index of the flags
    or None; `follow` says whether a link as the last name is followed when no flag says otherwise.
    """

    __slots__ = ("flags", "follow", "form", "name", "places")

    def __init__(
        self,
        name: str,
        form: str,
        *places: tuple[int | None, int],
        flags: int | None = None,
        follow: bool = False,
    ) -> None:
        """Hold the facts as given."""
        self.name = name
        self.form = form
        self.places = places
        self.flags = flags
        self.follow = follow


_OLD = (None, 0)
_AT = (0, 1)
_CALLS = (
    Call("open", Form.OPEN, _OLD, flags=1, follow=True),
    Call("openat", Form.OPEN, _AT, flags=2, follow=True),
    Call("openat2", Form.OPEN_HOW, _AT, flags=2, follow=True),
    Call("creat", Form.CONTENT, _OLD, follow=True),
    Call("truncate", Form.CONTENT, _OLD, follow=True),
    Call("truncate64", Form.CONTENT, _OLD, follow=True),
    Call("rename", Form.NAMES, _OLD, (None, 1)),
    Call("renameat", Form.NAMES, _AT, (2, 3)),
    Call("renameat2", Form.NAMES, _AT, (2, 3)),
    Call("unlink", Form.NAMES, _OLD),
    Call("unlinkat", Form.NAMES, _AT),
    Call("rmdir", Form.NAMES, _OLD),
    Call("link", Form.NAMES, (None, 1)),
    Call("linkat", Form.NAMES, (2, 3)),
    Call("symlink", Form.NAMES, (None, 1)),
    Call("symlinkat", Form.NAMES, (1, 2)),
    Call("mkdir", Form.NAMES, _OLD),
    Call("mkdirat", Form.NAMES, _AT),
    Call("mknod", Form.NAMES, _OLD),
    Call("mknodat", Form.NAMES, _AT),
    Call("chmod", Form.BITS, _OLD, follow=True),
    Call("fchmod", Form.DESCRIPTOR),
    Call("fchmodat", Form.BITS, _AT, follow=True),
    Call("fchmodat2", Form.BITS, _AT, flags=3, follow=True),
    Call("chown", Form.BITS, _OLD, follow=True),
    Call("chown32", Form.BITS, _OLD, follow=True),
    Call("lchown", Form.BITS, _OLD),
    Call("lchown32", Form.BITS, _OLD),
    Call("fchown", Form.DESCRIPTOR),
    Call("fchown32", Form.DESCRIPTOR),
    Call("fchownat", Form.BITS, _AT, flags=4, follow=True),
    Call("setxattr", Form.BITS, _OLD, follow=True),
    Call("lsetxattr", Form.BITS, _OLD),
    Call("fsetxattr", Form.DESCRIPTOR),
    Call("setxattrat", Form.BITS, _AT, flags=2, follow=True),
    Call("removexattr", Form.BITS, _OLD, follow=True),
    Call("lremovexattr", Form.BITS, _OLD),
    Call("fremovexattr", Form.DESCRIPTOR),
    Call("removexattrat", Form.BITS, _AT, flags=2, follow=True),
    Call("file_setattr", Form.BITS, _AT, flags=4, follow=True),
    Call("utime", Form.TIMES, _OLD, follow=True),
    Call("utimes", Form.TIMES, _OLD, follow=True),
    Call("futimesat", Form.TIMES, _AT, follow=True),
    Call("utimensat", Form.TIMES, _AT, flags=3, follow=True),
    Call("utimensat_time64", Form.TIMES, _AT, flags=3, follow=True),
    Call("mount", Form.GAP),
    Call("move_mount", Form.GAP),
    Call("umount", Form.GAP),
    Call("umount2", Form.GAP),
    Call("pivot_root", Form.GAP),
    Call("chroot", Form.GAP),
    Call("setns", Form.GAP),
    Call("open_by_handle_at", Form.GAP, flags=2),
    Call("pidfd_getfd", Form.GAP),
    Call("socketcall", Form.GAP),
    Call("execve", Form.EXECUTE, _OLD, follow=True),
    Call("execveat", Form.EXECUTE, _AT, follow=True),
    Call("connect", Form.CONNECT),
    Call("listen", Form.LISTEN),
)

_X86_64 = (
    "open 2 creat 85 openat 257 openat2 437 truncate 76 rename 82 renameat 264 renameat2 316 unlink 87 unlinkat 263"
    " rmdir 84 link 86 linkat 265 symlink 88 symlinkat 266 mkdir 83 mkdirat 258 mknod 133 mknodat 259 chmod 90"
    " fchmod 91 fchmodat 268 fchmodat2 452 chown 92 lchown 94 fchown 93 fchownat 260 setxattr 188 lsetxattr 189"
    " fsetxattr 190 setxattrat 463 removexattr 197 lremovexattr 198 fremovexattr 199 removexattrat 466"
    " file_setattr 469 utime 132 utimes 235 futimesat 261 utimensat 280 mount 165 move_mount 429 umount2 166"
    " pivot_root 155 chroot 161 setns 308 open_by_handle_at 304 pidfd_getfd 438 execve 59 execveat 322 connect 42"
    " listen 50"
)
_I386 = (
    "open 5 creat 8 openat 295 openat2 437 truncate 92 truncate64 193 rename 38 renameat 302 renameat2 353 unlink 10"
    " unlinkat 301 rmdir 40 link 9 linkat 303 symlink 83 symlinkat 304 mkdir 39 mkdirat 296 mknod 14 mknodat 297"
    " chmod 15 fchmod 94 fchmodat 306 fchmodat2 452 chown 182 chown32 212 lchown 16 lchown32 198 fchown 95"
    " fchown32 207 fchownat 298 setxattr 226 lsetxattr 227 fsetxattr 228 setxattrat 463 removexattr 235"
    " lremovexattr 236 fremovexattr 237 removexattrat 466 file_setattr 469 utime 30 utimes 271 futimesat 299"
    " utimensat 320 utimensat_time64 412 mount 21 move_mount 429 umount 22 umount2 52 pivot_root 217 chroot 61"
    " setns 346 open_by_handle_at 342 pidfd_getfd 438 socketcall 102 execve 11 execveat 358 connect 362 listen 363"
)
_AARCH64 = (
    "openat 56 openat2 437 truncate 45 renameat 38 renameat2 276 unlinkat 35 linkat 37 symlinkat 36 mkdirat 34"
    " mknodat 33 fchmod 52 fchmodat 53 fchmodat2 452 fchown 55 fchownat 54 setxattr 5 lsetxattr 6 fsetxattr 7"
    " setxattrat 463 removexattr 14 lremovexattr 15 fremovexattr 16 removexattrat 466 file_setattr 469 utimensat 88"
    " mount 40 move_mount 429 umount2 39 pivot_root 41 chroot 51 setns 268 open_by_handle_at 265 pidfd_getfd 438"
    " execve 221 execveat 281 connect 203 listen 201"
)
IO_URING_SETUP = 425  # one number on every machine


def _table(numbers: str) -> dict[int, Call]:
    words = numbers.split()
    by_name = {call.name: call for call in _CALLS}
    return {int(number): by_name[name] for name, number in zip(words[::2], words[1::2], strict=True)}


class Machine:
    """A machine: its own architecture first, then others whose calls are known; number of seccomp(2)."""

    __slots__ = ("nofollow", "seccomp", "tables")

    def __init__(self, name: str, seccomp: int, tables: Mapping[int, dict[int, Call]]) -> None:
        """Hold the facts; `tables` maps an audit architecture to its calls by number."""
        self.nofollow = O_NOFOLLOW[name]
        self.seccomp = seccomp
        self.tables = dict(tables)


def machine(name: str) -> Machine | None:
    """Return the machine of that name (as os.uname says it), or None where it is not known."""
    if name == "x86_64":
        return Machine(name, 317, {ARCH_X86_64: _table(_X86_64), ARCH_I386: _table(_I386)})
    if name == "aarch64":
        return Machine(name, 277, {ARCH_AARCH64: _table(_AARCH64)})
    return None

"""What goes on after the command ended, and which process is which.

A survivor is told by the variable `CKPT_RUN` in the environment it was started with. Not found: a process that
was started with an emptied environment (sudo, `env -i`), that belongs to another user, that wrote over its
environment for the sake of its title, or a daemon that was there before and works for the command.
"""

from __future__ import annotations

import errno
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

MARK = "CKPT_RUN"
"""The variable that names a run's id in the environment of its command."""

Identity = tuple[int, int, str]
"""A process for good: its pid, its start in clock ticks since boot, and which boot that was."""

_SHORT_NS = 1_000_000_000
_EXEC_LOOKS_MAX = 3


def survivors(run_id: str, since_ns: int, *, newer_than_pid: int | None = None) -> list[tuple[int, str]]:
    """Return (pid, name) of the processes of the run that are still alive, in order of pid.

    `since_ns` is when the run started, in nanoseconds since the epoch. `newer_than_pid` is the wrapper's own
    pid, for the wrapper itself: while a run is shorter than a second, pids cannot have come full circle (32,768
    of them at least), so that only newer processes are looked at. Costs 0.1 ms where there are none.
    """
    if not sys.platform.startswith("linux"):
        return _named(_marked_elsewhere(run_id))
    if newer_than_pid is not None and (
        time.time_ns() - since_ns > _SHORT_NS or _last_pid() < newer_than_pid  # started again at the lowest
    ):
        newer_than_pid = None
    mark = b"\0" + f"{MARK}={run_id}".encode() + b"\0"
    own = os.getpid()
    return _named(
        pid
        for name in os.listdir("/proc")
        if name.isdigit() and (pid := int(name)) != own and (newer_than_pid is None or pid > newer_than_pid)
        if mark in b"\0" + _environment(pid)
    )


def identity(pid: int) -> Identity | None:
    """Return which process has this pid now, or None if none does (a zombie has ended)."""
    if not sys.platform.startswith("linux"):
        return _identity_elsewhere(pid)
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as stat:
            # proc(5): the name, field 2, may hold anything; the state is field 3, the start field 22.
            fields = stat.readall().rpartition(b")")[2].split()
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.ESRCH}:
            return None
        raise
    return None if fields[0] in {b"Z", b"X"} else (pid, int(fields[19]), _boot_id())


def is_same_process(known: Identity) -> bool:
    """Whether the process that `identity` told of is still alive: not ended, not another one with its pid."""
    return identity(known[0]) == tuple(known)


def _boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id", "rb", buffering=0) as boot:
        return boot.readall().decode("ascii").strip()


def _last_pid() -> int:
    """The pid given last in this pid namespace (proc(5), loadavg), 0 if the system does not say."""
    try:
        with open("/proc/loadavg", "rb", buffering=0) as load:
            return int(load.readall().split()[-1])
    except (OSError, ValueError, IndexError):
        return 0


def _environment(pid: int) -> bytes:
    """The environment that a process was started with; empty where it has ended or is not ours to read."""
    block = b""
    try:
        for _ in range(_EXEC_LOOKS_MAX):
            with open(f"/proc/{pid}/environ", "rb", buffering=0) as environ:
                block = environ.readall()
            if block:
                break
            # Empty in the middle of an execve too (fs/proc/base.c, environ_read, 6.18); a kernel thread or a
            # zombie has no program, and fails here.
            os.readlink(f"/proc/{pid}/exe")
            time.sleep(0.0005)
    except OSError:
        return b""
    return block


def _named(pids: Iterable[int]) -> list[tuple[int, str]]:
    """Add the names; only here psutil is imported, which costs 26 ms."""
    found = []
    for pid in sorted(pids):
        import psutil

        try:
            process = psutil.Process(pid)
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append((pid, process.name()))
        except psutil.Error:
            continue  # it ended meanwhile
    return found


def _marked_elsewhere(run_id: str) -> list[int]:
    """The marked processes on a system without /proc."""
    import psutil

    marked = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(MARK) == run_id:
                marked.append(process.pid)
        except (psutil.Error, OSError):
            continue  # it ended meanwhile, or is another user's
    return marked


def _identity_elsewhere(pid: int) -> Identity | None:
    import psutil

    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return pid, round(process.create_time() * 100), str(int(psutil.boot_time()))
    except psutil.NoSuchProcess:
        return None

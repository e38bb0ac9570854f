"""A traced command: the wrapper's side, and the process between the wrapper and the command.

    wrapper ── supervisor ── command ── …

The supervisor is the command's parent and adopts its orphans, so it may look at all of them, whatever the kernel's
ptrace scope (Yama 1 lets only ancestors read), and knows without asking when the last one is gone. It tells the
wrapper how the command stands, as wait(2) would.

1 the wrapper forks the supervisor   a failure here: nothing has started
2 a thread of it takes the filter    refused: it says so and ends, the command is started untraced
3 that thread spawns the command     which inherits the filter; so no descriptor has to be passed
4 it closes what is not its own, goes into a group of its own, and serves
                                     killed: waiting calls fail with ENOSYS, none hangs; we adopt the command
5 the command ends                   the journal says so, then the wrapper hears it
6 the last descendant ends           the journal is closed, the supervisor ends
                                     the wrapper killed at any time: 4 to 6 go on
"""

from __future__ import annotations

import errno
import os

from . import kernel
from .between import ENDED, FAILED, NEWS, REFUSED, STARTED, Between
from .verdict import Verdict, why_refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from .calls import Machine
    from .first_touch import FirstTouch

_CONTINUED = 0xFFFF  # W_CONTINUED, bits/waitstatus.h


class Session:
    """One traced command. `spawn` and `waitpid` serve as those of `os` do.

    `verdict` says whether it is traced in truth, once `spawn` has returned. `supervisor` is the pid of the process
    between, 0 without one; `command` the command's.
    """

    def __init__(self, machine: Machine, top: bytes, journal: bytes, first_touch: FirstTouch | None) -> None:
        """Hold the facts; nothing is started yet."""
        self._machine = machine
        self._top = top
        self._journal = journal
        self._first_touch = first_touch
        self._news = -1
        self.command = 0
        self._status: int | None = None
        self._stopped: int | None = None
        self._told_stop = False
        self._ended: int | None = None
        self.supervisor = 0
        self.survivors = False
        self.verdict = Verdict(works=False)

    def spawn(
        self,
        path: bytes,
        argv: Sequence[bytes],
        environment: Mapping[bytes, bytes],
        *,
        setsigmask: Iterable[int] = (),
        setsigdef: Iterable[int] = (),
    ) -> int:
        """Start the command, traced where the kernel lets us, and return its pid; raises OSError as posix_spawn."""
        command = kernel.Command(path, argv, environment, setsigmask, setsigdef)
        try:
            supervisor = self._forked(command)
        except OSError as error:
            return self._untraced(command, error.errno or 0)
        what, first, second = self._heard_first()
        if what == STARTED:
            self.supervisor = supervisor
            self.verdict = Verdict(works=True, no_new_privs=bool(second))
            self.command = first
            return first
        os.waitpid(supervisor, 0)
        self._hang_up()
        if what == FAILED:
            raise OSError(first, os.strerror(first), os.fsdecode(path))
        return self._untraced(command, first)

    def wait(self) -> int:
        """Wait for the command to end; its status as os.waitpid gives it."""
        if self._news >= 0:
            os.set_blocking(self._news, True)
            self._listen()
        return self._ended if self._ended is not None else os.waitpid(self.command, 0)[1]

    def waitpid(self, pid: int, options: int) -> tuple[int, int]:
        """Say how the command stands, as os.waitpid(pid, options) with WNOHANG does; SIGCHLD says when to ask."""
        if pid != self.command:
            return os.waitpid(pid, options)
        self._listen()
        if self._ended is not None:
            return pid, self._ended
        if self._news < 0:
            return os.waitpid(pid, options)  # the supervisor was killed: the command is our child now
        if options & os.WUNTRACED and self._stopped is not None:
            status, self._stopped = self._stopped, None
            self._told_stop = True
            return pid, status
        if options & os.WCONTINUED and self._told_stop and not is_stopped(pid):
            self._told_stop = False  # each continuation once, or who asks until there is no news never ends
            return pid, _CONTINUED
        return 0, 0

    def end(self, *, wait: bool = False) -> None:
        """Leave the supervisor to the command's survivors; with `wait`, or without survivors, see it end."""
        if self.supervisor and (wait or not self.survivors):
            try:
                os.waitpid(self.supervisor, 0)
            except ChildProcessError:
                pass  # reaped already, by a wait for any child
            self.supervisor = 0
        self._hang_up()

    def _untraced(self, command: kernel.Command, number: int) -> int:
        self.verdict = Verdict(works=False, why=why_refused(number), errno=number)
        self.command = command.spawn_untraced()
        return self.command

    def _forked(self, command: kernel.Command) -> int:
        kernel.adopt_orphans()  # so that a killed supervisor leaves the command to us
        journal = os.open(self._journal, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self._news, telling = os.pipe()
        wrapper = os.getpid()
        try:
            pid = os.fork()
            if not pid:
                Between(self._machine, self._top, journal, self._first_touch, telling, wrapper).live(command)
        except OSError:
            self._hang_up()
            raise
        finally:
            os.close(telling)
            os.close(journal)
        return pid

    def _heard_first(self) -> tuple[bytes, int, int]:
        news = self._read()
        os.set_blocking(self._news, False)
        if len(news) < NEWS.size:
            return REFUSED, errno.EPIPE, 0
        what, first, second = NEWS.unpack(news)
        return what, first, second

    def _listen(self) -> None:
        while self._news >= 0 and self._ended is None:
            try:
                news = self._read()
            except BlockingIOError:
                return
            if len(news) < NEWS.size:
                # A process lets go of its pipes before its children: only once it is reaped is the command ours.
                self._hang_up()
                self.survivors = True
                os.waitpid(self.supervisor, 0)
                self.supervisor = 0
                return
            what, status, survivors = NEWS.unpack(news)
            if what == ENDED:
                self._ended, self.survivors = status, bool(survivors)
            elif os.WIFSTOPPED(status):
                self._stopped = status
            else:
                self._stopped = None

    def _read(self) -> bytes:
        while True:
            try:
                return os.read(self._news, NEWS.size)
            except InterruptedError:
                continue

    def _hang_up(self) -> None:
        if self._news >= 0:
            os.close(self._news)
            self._news = -1


def is_stopped(pid: int) -> bool:
    """Say whether a process is stopped by a signal (proc(5): state T)."""
    try:
        with open(b"/proc/%d/stat" % pid, "rb", buffering=0) as file:
            text = file.readall() or b""
    except OSError:
        return False
    return text.rpartition(b") ")[2][:1] == b"T"

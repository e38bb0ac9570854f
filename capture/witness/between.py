"""The process between wrapper and command: starts it under the filter, serves it, reaps it, outlives the wrapper.

It never returns into the wrapper's code and holds none of its descriptors; no signal but SIGKILL and SIGSTOP reaches
it. The protocol stands in `session`.
"""

from __future__ import annotations

import _thread
import errno
import gc
import os
import struct

from . import kernel
from .calls import Form
from .first_touch import Pack
from .journal import GapKind, Writer
from .places import Places
from .supervisor import Supervisor

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Callable
    from typing import NoReturn

    from .calls import Machine
    from .first_touch import FirstTouch
    from .kernel import Command
else:
    import _signal

NEWS = struct.Struct("=cii")
"""What the wrapper is told: what, and two numbers (pid and whether privileges are given up; errno; status)."""
STARTED, FAILED, REFUSED, STATUS, ENDED = b"S", b"F", b"R", b"W", b"E"

_FORMS = frozenset(
    {Form.OPEN, Form.OPEN_HOW, Form.NAMES, Form.CONTENT, Form.BITS, Form.TIMES, Form.DESCRIPTOR, Form.GAP,
     Form.CONNECT, Form.LISTEN}
)  # fmt: skip
_DUMPED = 0x80  # bits/waitstatus.h
_CONTINUED = 0xFFFF
_NAME = b"ckpt-witness"


class Between:
    """The process between. `live` is all its life."""

    def __init__(
        self,
        machine: Machine,
        top: bytes,
        journal: int,
        first_touch: FirstTouch | None,
        telling: int,
        wrapper: int,
    ) -> None:
        """Hold what the wrapper hands over: descriptors of the journal and of the pipe to it, and its pid."""
        self._machine = machine
        self._top = top
        self._journal_fd = journal
        self._first_touch = first_touch
        self._telling = telling
        self._wrapper = wrapper
        self._lock = _thread.allocate_lock()
        self._listener = -1
        self._command = 0

    def live(self, command: Command) -> NoReturn:
        """Start the command, serve it and its descendants to the last, and end."""
        status = 1
        try:
            gc.freeze()  # a collection would write to, and so copy, every page that is shared with the wrapper: 8 ms
            _signal.pthread_sigmask(_signal.SIG_BLOCK, _signal.valid_signals())
            _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
            self._live(command)
            status = 0
        finally:
            os._exit(status)

    def _live(self, command: Command) -> None:
        kernel.adopt_orphans()
        pack = self._pack()
        journal = Writer(self._journal_fd)
        supervisor = Supervisor(self._machine, kernel.Memory(), Places(self._top), journal, self._lock, pack)
        supervisor.touch_inherited()
        if not self._started(command, lambda: self._serve(supervisor, journal)):
            return
        with self._lock:  # nothing is being looked at, so no descriptor in use is closed
            self._withdraw(pack)
        self._reap(journal)
        with self._lock:
            journal.closed()

    def _pack(self) -> Pack | None:
        limits = self._first_touch
        if limits is None:
            return None
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        return Pack(limits, os.open(limits.pack, flags, 0o600), self._top)

    def _started(self, command: Command, serve: Callable[[], None]) -> bool:
        """Start the command from a thread under the filter; the filter is the thread's alone, and its children's."""
        filtered, served, done = (_thread.allocate_lock() for _ in range(3))
        news = [(REFUSED, errno.EAGAIN, 0)]

        def begin() -> None:
            try:
                under = kernel.filter_this_thread(self._machine, _FORMS, _FORMS | {Form.EXECUTE})
                self._listener = under.listener
                filtered.release()
                served.acquire()  # where execve is told, the very first one must be answered
                news[0] = (FAILED, errno.EIO, 0)
                self._command = command.spawn()
                news[0] = (STARTED, self._command, int(under.no_new_privs))
            except OSError as error:
                news[0] = (news[0][0], error.errno or errno.EIO, 0)
            finally:
                if self._listener < 0:
                    filtered.release()
                done.release()

        for lock in (filtered, served, done):
            lock.acquire()
        _thread.start_new_thread(begin, ())
        filtered.acquire()
        if self._listener >= 0:
            _thread.start_new_thread(serve, ())
        served.release()
        done.acquire()
        self._tell(*news[0])
        return bool(self._command)

    def _withdraw(self, pack: Pack | None) -> None:
        """Let go of all that was the wrapper's: a pipe kept open here would keep its reader waiting."""
        os.setpgid(0, 0)
        own = {self._listener, self._journal_fd, self._telling, *(pack.descriptors if pack else ())}
        for fd in {int(name) for name in os.listdir("/proc/self/fd")} - own:
            try:
                os.close(fd)
            except OSError:
                continue  # the listing's own, closed already
        null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        for fd in {0, 1, 2} - own - {null}:
            os.dup2(null, fd, inheritable=False)
        os.chdir("/")
        kernel.set_name(_NAME)

    def _serve(self, supervisor: Supervisor, journal: Writer) -> None:
        try:
            supervisor.serve(kernel.Listener(self._listener))
        except BaseException as error:  # noqa: BLE001  # nobody hears of it but through the journal
            journal.gap(GapKind.FAULT, detail=repr(error).encode(errors="replace"))
        # Without this thread nobody answers: calls that come now must fail, not wait.
        os.close(self._listener)

    def _reap(self, journal: Writer) -> None:
        """Wait for every descendant; say how the command stands."""
        while True:
            try:
                news = os.waitid(os.P_ALL, 0, os.WEXITED | os.WSTOPPED | os.WCONTINUED)
            except ChildProcessError:
                return
            if news is None or news.si_pid != self._command:
                continue
            status = _status(news.si_code, news.si_status)
            if news.si_code not in {os.CLD_EXITED, os.CLD_KILLED, os.CLD_DUMPED}:
                self._tell(STATUS, status, 0)
                continue
            survivors = _has_children()
            with self._lock:  # what the command did last has been noted
                journal.ended(survivors=survivors)
            self._tell(ENDED, status, int(survivors))

    def _tell(self, what: bytes, first: int, second: int) -> None:
        try:
            os.write(self._telling, NEWS.pack(what, first, second))
        except OSError:
            return  # the wrapper is gone
        if what in {STATUS, ENDED} and os.getppid() == self._wrapper:
            os.kill(self._wrapper, _signal.SIGCHLD)


def _has_children() -> bool:
    """Reap the dead; say whether anybody lives."""
    while True:
        try:
            if not os.waitpid(-1, os.WNOHANG)[0]:
                return True
        except ChildProcessError:
            return False


def _status(code: int, status: int) -> int:
    """Write what waitid(2) says as wait(2) would."""
    if code == os.CLD_EXITED:
        return status << 8
    if code == os.CLD_CONTINUED:
        return _CONTINUED
    if code in {os.CLD_STOPPED, os.CLD_TRAPPED}:
        return status << 8 | 0x7F
    return status | (_DUMPED if code == os.CLD_DUMPED else 0)

"""Runs the command as if nobody stood between: its streams, signals, terminal, exit code.

The command is a child in the caller's own process group and session, and gets every inherited descriptor,
the signal mask and the dispositions that the caller was started with. What cannot be kept:

- Python ignores SIGPIPE and SIGXFSZ as it starts and forgets what they were: the command gets them default.
  SIGCHLD ignored by a parent is default too, because its exit code would be lost.
- SIGSTOP and SIGKILL sent to the wrapper's pid alone cannot be passed on; SIGPIPE, SIGXFSZ and a value sent
  with sigqueue are not.
- A signal for the whole group is told from one for the wrapper by `sentinel`. Where there is none (the first
  10 ms, because it costs 1 ms, or no process to spare), or where the same signal comes twice within some 0.1 ms,
  the command may get it once more than sent; never once less.
- Stopped by its own pid, the command stops the wrapper only where a shell with job control is the parent.

What goes on after the command ended is `background`'s. Nothing is printed here.
"""

from __future__ import annotations

import errno
import os

from .program import found

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import TracebackType
    from typing import NoReturn, Protocol, TypeVar

    Started = TypeVar("Started")

    class Door(Protocol):
        """Starts the command and tells how it stands, as `os.posix_spawn` and `os.waitpid` do."""

        def spawn(
            self,
            path: bytes,
            argv: Sequence[bytes],
            environment: Mapping[bytes, bytes],
            *,
            setsigmask: Iterable[int],
            setsigdef: Iterable[int],
        ) -> int:
            """Start it; gives its pid, raises OSError."""

        def waitpid(self, pid: int, options: int) -> tuple[int, int]:
            """Say how it stands, asked after each SIGCHLD."""
else:
    import _signal  # the enums of `signal` cost 4 to 8 ms, and the numbers are the same

EXIT_NOT_EXECUTABLE = 126
EXIT_NOT_FOUND = 127
EXIT_SIGNAL = 128

_SHELL = b"/bin/sh"
_SENTINEL_AFTER_S = 0.01


def _numbers(*names: str) -> frozenset[int]:
    return frozenset(int(getattr(_signal, name)) for name in names if hasattr(_signal, name))


# Blocked, a signal is kept even where it is ignored: an EPIPE of our own would be passed on as a SIGPIPE.
HELD = frozenset(map(int, _signal.valid_signals())) - _numbers("SIGKILL", "SIGSTOP", "SIGPIPE", "SIGXFSZ")
"""The signals held while a command runs: all others. A fault of our own still kills (signal(7): forced)."""

_STOPPING = _numbers("SIGTSTP", "SIGTTIN", "SIGTTOU")
_HARMLESS = _STOPPING | _numbers("SIGCHLD", "SIGCONT", "SIGURG", "SIGWINCH", "SIGINFO")
_FROM_A_TERMINAL = _STOPPING | _numbers("SIGINT", "SIGQUIT", "SIGHUP", "SIGCONT", "SIGWINCH", "SIGINFO")


class Ended:
    """How a command ended, or why it did not start.

    `exit_code` follows the shell: its own code, 128+n for signal n, 127 not found, 126 not executable. `signal`
    is the number that ended it, or that came before it could start. Where it was not executed, `started` is
    False, `pid` 0, and `path` and `errno` say which file would not and the system's error.
    """

    __slots__ = ("errno", "exit_code", "path", "pid", "signal", "started")

    def __init__(
        self,
        exit_code: int,
        *,
        pid: int = 0,
        signal: int | None = None,
        path: bytes | None = None,
        errno: int | None = None,
    ) -> None:
        """Hold the facts as given; a command with a pid was started."""
        self.exit_code = exit_code
        self.pid = pid
        self.started = pid != 0
        self.signal = signal
        self.path = path
        self.errno = errno

    def __repr__(self) -> str:
        """Show the facts that matter in a failed test."""
        return f"Ended({self.exit_code}, pid={self.pid}, signal={self.signal}, {self.path!r}, {self.errno})"


class NotStartedError(Exception):
    """Nothing could be executed in this process's place; `ended` says why."""

    def __init__(self, ended: Ended) -> None:
        """Hold the facts."""
        super().__init__(ended)
        self.ended = ended


class SignalsHeld:
    """A scope in which no signal ends or interrupts this process; made by `signals_held`."""

    def __init__(self) -> None:
        """Hold nothing yet."""
        self.depth = 0
        self.mask: set[int] = set()
        self.command_ended = False
        self._interrupt: object = None

    def __enter__(self) -> SignalsHeld:
        """Hold every signal; the mask that was there is the command's."""
        self.depth += 1
        if self.depth == 1:
            self.command_ended = False
            self.mask = set(map(int, _signal.pthread_sigmask(_signal.SIG_BLOCK, HELD)))
            # Python's own handler would raise where the caller cannot expect it, instead of ending us.
            self._interrupt = _signal.getsignal(_signal.SIGINT)
            if self._interrupt is _signal.default_int_handler:
                _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
            if _signal.getsignal(_signal.SIGCHLD) == _signal.SIG_IGN:
                _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let signals through again: those for a command that has ended are dropped, others take effect."""
        self.depth -= 1
        if self.depth:
            return
        if self.command_ended:
            for number in _signal.sigpending() & (HELD - self.mask):
                _signal.sigwait({number})
        _signal.pthread_sigmask(_signal.SIG_SETMASK, self.mask)
        if self._interrupt is _signal.default_int_handler:
            _signal.signal(_signal.SIGINT, _signal.default_int_handler)


_held = SignalsHeld()


def signals_held() -> SignalsHeld:
    """Return the scope in which signals are held: enter it before the command, leave it after the record.

    Processes started inside inherit the mask, so a Ctrl-C does not end them either. A signal that comes before
    the command starts keeps `run` from starting it, and takes effect when the scope ends; `run` passes on those
    that come while it runs; what comes after it ended is dropped. Scopes nest.
    """
    return _held


def ending_signal() -> int | None:
    """Say which held signal would end this process (a number), or None. Asking costs 1 us."""
    for number in sorted(map(int, _signal.sigpending())):
        if number not in _HARMLESS and _signal.getsignal(number) == _signal.SIG_DFL:
            return number
    return None


def die_of(number: int) -> NoReturn:
    """End this process as signal `number` would, without a core file of ours."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if number not in {_signal.SIGKILL, _signal.SIGSTOP}:
        _signal.signal(number, _signal.SIG_DFL)
    os.kill(os.getpid(), number)
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, {number})
    os._exit(EXIT_SIGNAL + number)  # the first process of a container does not die of its own signals


def environment_given() -> dict[bytes, bytes]:
    """Return the environment that this process was started with, without what Python added to it.

    In the C locale Python sets LC_CTYPE for itself (PEP 538), and would hand it on.
    """
    environment = dict(os.environb)
    if environment.get(b"LC_CTYPE") in {b"C.UTF-8", b"C.utf8", b"UTF-8"}:
        try:
            with open("/proc/self/environ", "rb", buffering=0) as block:
                given = block.readall()
        except OSError:
            return environment
        if b"\0LC_CTYPE=" not in b"\0" + given:
            del environment[b"LC_CTYPE"]
    return environment


def run(
    argv: Sequence[bytes],
    environment: Mapping[bytes, bytes],
    *,
    on_started: Callable[[int], None] | None = None,
    door: Door | None = None,
) -> Ended:
    """Run the command to its end and say how it ended; `on_started` is called with its pid.

    Signals sent to this process meanwhile reach the command. A signal that came while they were held, before
    the command could start, is reported as `Ended(128+n, signal=n)` with `started` False. Through a `door` the
    command is started and waited for by it.
    """
    with _held:
        _stop_if_asked()
        number = ending_signal()
        if number is not None:
            return Ended(EXIT_SIGNAL + number, signal=number)
        started = _spawned(argv, environment, door)
        if isinstance(started, Ended):
            return started
        try:
            if on_started is not None:
                on_started(started)
            return _watched(started, door)
        finally:
            _held.command_ended = True


def exec_instead(argv: Sequence[bytes], environment: Mapping[bytes, bytes]) -> NoReturn:
    """Become the command: same pid, nothing of ours stays. Raises NotStartedError where it cannot be executed."""
    for number in _numbers("SIGPIPE", "SIGXFSZ"):
        _signal.signal(number, _signal.SIG_DFL)
    if _held.depth:
        _signal.pthread_sigmask(_signal.SIG_SETMASK, _held.mask)

    def execute(path: bytes, argv: list[bytes], environment: Mapping[bytes, bytes]) -> NoReturn:
        os.execve(path, argv, environment)

    raise NotStartedError(_executed(argv, environment, execute))


def _spawned(argv: Sequence[bytes], environment: Mapping[bytes, bytes], door: Door | None) -> int | Ended:
    begin = os.posix_spawn if door is None else door.spawn

    def spawn(path: bytes, argv: list[bytes], environment: Mapping[bytes, bytes]) -> int:
        return begin(path, argv, environment, setsigmask=_held.mask, setsigdef=_numbers("SIGPIPE", "SIGXFSZ"))

    return _executed(argv, environment, spawn)


def _executed(
    argv: Sequence[bytes],
    environment: Mapping[bytes, bytes],
    execute: Callable[[bytes, list[bytes], Mapping[bytes, bytes]], Started],
) -> Started | Ended:
    """Find the command and execute it; what is no program, and has no `#!`, is a script of /bin/sh (execvp(3))."""
    path, error = found(argv[0], environment)
    if not error:
        try:
            return execute(path, list(argv), environment)
        except OSError as fault:
            error = fault.errno or errno.EIO
    if error == errno.ENOEXEC:
        try:
            return execute(_SHELL, [_SHELL, path, *argv[1:]], environment)
        except OSError as fault:
            error = fault.errno or errno.EIO
    code = EXIT_NOT_FOUND if error == errno.ENOENT else EXIT_NOT_EXECUTABLE
    return Ended(code, path=path, errno=error)


def _watched(pid: int, door: Door | None) -> Ended:
    """Pass signals on until the command has ended."""
    from .sentinel import Sentinel  # while the command starts: nobody waits for it

    sentinel = Sentinel()
    early: set[int] = set()  # came before there was a sentinel
    try:
        while True:
            arrived = _next_signal(within_s=None if sentinel.was_started else _SENTINEL_AFTER_S)
            if arrived is None:
                early = set(map(int, _signal.sigpending()))
                sentinel.start(HELD)
                continue
            number, from_kernel = arrived
            if number == _signal.SIGCHLD:
                ended = _news(pid, os.waitpid if door is None else door.waitpid)
                if ended is not None:
                    return ended
                continue
            seen = None if number in early else sentinel.has_seen(number)
            early.discard(number)
            if not _reached_already(pid, number, seen=seen, from_kernel=from_kernel):
                _send(pid, number)
    finally:
        sentinel.end()


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except PermissionError:
        pass  # it has become another user (sudo), and would have refused the sender as well


def _next_signal(*, within_s: float | None) -> tuple[int, bool] | None:
    """Wait for a signal; say whether the kernel itself sent it (a terminal, a timer), as far as can be known.

    None if none came within that many seconds.
    """
    if hasattr(_signal, "sigwaitinfo"):
        info = _signal.sigwaitinfo(HELD) if within_s is None else _signal.sigtimedwait(HELD, within_s)
        # sigaction(2): positive codes are the kernel's
        return (int(info.si_signo), info.si_code > 0) if info else None
    if within_s is not None:
        return None  # macOS has no sigtimedwait either
    # Nor does it keep a signal whose default is to be ignored, unless there is a handler.
    for number in _HARMLESS - _STOPPING:
        _signal.signal(number, lambda _number, _frame: None)
    number = int(_signal.sigwait(HELD))
    return number, number in _FROM_A_TERMINAL and _in_foreground()


def _in_foreground() -> bool:
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def _reached_already(pid: int, number: int, *, seen: bool | None, from_kernel: bool) -> bool:
    """Whether a signal was for the whole group, and the command, as a member of it, has it from the sender.

    `seen` is what the sentinel says, None where nobody can.
    """
    to_group = (from_kernel and number in _FROM_A_TERMINAL) if seen is None else seen
    # A shell as the command makes a group of its own: a signal for ours does not reach it, unless it was typed
    # at the terminal, which is then not for it.
    return to_group and (from_kernel or os.getpgid(pid) == os.getpgrp())


def _news(pid: int, waitpid: Callable[[int, int], tuple[int, int]]) -> Ended | None:
    """What the command did: None if it goes on, be it stopped or continued."""
    stopped_with_it = False
    while True:
        changed, status = waitpid(pid, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
        if not changed:
            # A shell's `fg` continues the group, the command included. If it is stopped still, it is our turn.
            if stopped_with_it:
                _send(pid, _signal.SIGCONT)
            return None
        if os.WIFSTOPPED(status):
            if _shell_watches():
                _stop(os.WSTOPSIG(status))
                stopped_with_it = True
        elif os.WIFCONTINUED(status):
            stopped_with_it = False
        else:
            code = os.waitstatus_to_exitcode(status)
            return Ended(code, pid=pid) if code >= 0 else Ended(EXIT_SIGNAL - code, pid=pid, signal=-code)


def _shell_watches() -> bool:
    """Whether the parent is a shell with job control: in our session, in another group."""
    parent = os.getppid()
    try:
        return os.getsid(parent) == os.getsid(0) and os.getpgid(parent) != os.getpgrp()
    except OSError:
        return False


def _stop(number: int) -> None:
    """Stop this process by the same signal as the command was, until SIGCONT."""
    if number not in _STOPPING or _signal.getsignal(number) != _signal.SIG_DFL:
        number = int(_signal.SIGSTOP)
    os.kill(os.getpid(), number)
    if number != _signal.SIGSTOP:
        _signal.pthread_sigmask(_signal.SIG_UNBLOCK, {number})  # stops here
        _signal.pthread_sigmask(_signal.SIG_BLOCK, {number})


def _stop_if_asked() -> None:
    """Take a stop that was held before the command starts (Ctrl-Z during the baseline)."""
    for number in _STOPPING.intersection(map(int, _signal.sigpending())) - _held.mask:
        _signal.pthread_sigmask(_signal.SIG_UNBLOCK, {number})
        _signal.pthread_sigmask(_signal.SIG_BLOCK, {number})

"""Tells a signal for the whole process group from one for the wrapper alone.

The sentinel is a forked process in the same group that holds every signal, does nothing, and ends with the
wrapper. What it got too was sent to the group. Linux signals the newest member of a group first
(kernel/signal.c, __kill_pgrp_info over a list that attach_pid prepends to; 6.18), so it is never late.
It holds no descriptor but its two pipes, and no folder. Signals sent one by one to every process by its name
would look like one for the group: it therefore takes another name.
"""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Iterable
    from typing import NoReturn
else:
    import _signal

_NAME = b"signal-watch"
_ANSWER_MS_MAX = 200


class Sentinel:
    """A member of the group that only looks, once started."""

    __slots__ = ("_answers", "_pid", "_questions", "was_started")

    def __init__(self) -> None:
        """Be blind until started."""
        self.was_started = False
        self._pid = 0
        self._questions = -1
        self._answers = -1

    def start(self, held: Iterable[int]) -> None:
        """Fork the process; the caller holds the signals `held` already. Stays blind without process or pipe."""
        self.was_started = True
        pipes: list[int] = []
        try:
            pipes += os.pipe()
            pipes += os.pipe()
            pid = os.fork()
        except OSError:
            for descriptor in pipes:
                os.close(descriptor)
            return
        if not pid:
            _watch(pipes[0], pipes[3], held)
        os.close(pipes[0])
        os.close(pipes[3])
        os.set_blocking(pipes[2], False)
        self._pid, self._questions, self._answers = pid, pipes[1], pipes[2]

    def has_seen(self, number: int) -> bool | None:
        """Whether the group got this signal, once for each time it did; None if nobody can say."""
        if not self._pid:
            return None
        try:
            os.write(self._questions, bytes([number]))
            for _ in range(_ANSWER_MS_MAX):
                try:
                    answer = os.read(self._answers, 1)
                except BlockingIOError:
                    time.sleep(0.001)
                    continue
                if answer:
                    return answer == b"1"
                break
        except OSError:
            pass  # it was killed: the caller goes by what else it knows
        # Killed, or stopped with the group while only the wrapper was continued.
        self.end()
        return None

    def end(self) -> None:
        """End the sentinel and leave nothing of it."""
        if self._pid:
            os.close(self._questions)
            os.close(self._answers)
            os.kill(self._pid, _signal.SIGKILL)
            os.waitpid(self._pid, 0)
            self._pid = 0


def _watch(questions: int, answers: int, held: Iterable[int]) -> NoReturn:
    """Answer each number on the pipe with whether that signal came; end when the wrapper has."""
    try:
        _signal.pthread_sigmask(_signal.SIG_BLOCK, held)
        _let_go_of_everything_but({questions, answers})
        _take_another_name()
        while question := os.read(questions, 1):
            number = question[0]
            came = number in _signal.sigpending()
            if came:
                _signal.sigwait({number})
            os.write(answers, b"1" if came else b"0")
    finally:
        os._exit(0)


def _let_go_of_everything_but(kept: set[int]) -> None:
    for name in os.listdir("/dev/fd"):
        if int(name) not in kept:
            try:
                os.close(int(name))
            except OSError:
                pass  # the one that listed the folder
    os.chdir("/")


def _take_another_name() -> None:
    """Change what `ps`, `pkill` and `killall` see, where the system lets us (Linux; proc(5), stat: arg_start)."""
    try:
        with open("/proc/self/comm", "wb", buffering=0) as comm:
            comm.write(_NAME)
        with open("/proc/self/stat", "rb") as stat:
            fields = stat.read().rpartition(b")")[2].split()
        start, end = int(fields[45]), int(fields[46])
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            memory.seek(start)
            memory.write(_NAME[: end - start - 1].ljust(end - start, b"\0"))
    except (OSError, IndexError, ValueError):
        pass  # a system without /proc, or one that forbids it: it keeps the wrapper's name

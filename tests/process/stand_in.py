"""A tiny driver in the wrapper's place: it holds the signals, runs its arguments, exits with their exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

import ckpt_run

SOURCES = os.path.dirname(os.path.dirname(ckpt_run.__file__))
PYTHON = [sys.executable, "-ISE"]
on_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
SHORT_S = 20

DRIVER = f"""
import os, sys, _signal
sys.path.insert(0, {SOURCES!r})
from ckpt_run.shim import process
def refuse(*_): raise OSError(11, "no process to spare")
if "NO_SIGWAITINFO" in os.environ: del _signal.sigwaitinfo
if "NO_FORK" in os.environ: os.fork = refuse
def pause(name):
    if os.environ.get("PAUSE") == name:
        os.write(2, b"paused\\n")
        os.read(0, 1)
argv = [os.fsencode(word) for word in sys.argv[1:]]
if "EXEC" in os.environ:
    try:
        process.exec_instead(argv, process.environment_given())
    except process.NotStartedError as error:
        os.write(2, repr(error.ended).encode())
        sys.exit(error.ended.exit_code)
with process.signals_held():
    pause("before")
    ended = process.run(argv, process.environment_given())
    if "TELL" in os.environ: os.write(2, repr(ended).encode())
    pause("after")
sys.exit(ended.exit_code)
"""

COUNTER = """
import os, signal, sys
held = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
signal.pthread_sigmask(signal.SIG_BLOCK, held)
os.write(1, b"ready\\n")
while True:
    number = signal.sigwait(held)
    os.write(1, b"got %d\\n" % number)
    if number == signal.SIGRTMIN + 5: sys.exit(9)
"""
LAST = signal.SIGRTMIN + 5 if sys.platform.startswith("linux") else signal.SIGUSR2
PASSED_ON = [
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGWINCH,
    signal.SIGCONT,
    signal.SIGALRM,
    signal.SIGABRT,
    signal.SIGTSTP,
    signal.SIGTTIN,
]


def wrapped(driver: list[str], *command: str, **more: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*driver, *command], check=False, capture_output=True, timeout=SHORT_S, **more)  # type: ignore[call-overload, no-any-return]


def env(**more: str) -> dict[str, str]:
    return {**os.environ, **more}

"""What of a command goes on after it ended, and which process is which."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest

from ckpt_run.shim import background

SLEEPER = ["sh", "-c", "exec sleep 60"]


@pytest.fixture(name="daemon")
def _daemon(request: pytest.FixtureRequest) -> Iterator[int]:
    """A marked process in a session of its own, whose parent has ended."""
    line = "setsid sh -c 'echo $$; exec >&-; exec sleep 60' & wait -n 2>/dev/null; exit 0"
    if not sys.platform.startswith("linux"):
        pytest.skip("setsid(1) is Linux's")
    variables = {**os.environ, background.MARK: "run-1"}
    started = subprocess.Popen(["sh", "-c", line], stdout=subprocess.PIPE, env=variables, text=True)
    assert started.stdout is not None
    pid = int(started.stdout.readline())
    started.stdout.close()
    yield pid
    os.kill(pid, 9)
    started.kill()
    started.wait()


def test_a_daemon_of_the_run_is_found_and_named(daemon: int) -> None:
    while psutil.Process(daemon).name() != "sleep":
        time.sleep(0.005)
    found = background.survivors("run-1", time.time_ns())
    assert (daemon, "sleep") in found
    assert (daemon, "sleep") in background.survivors("run-1", time.time_ns(), newer_than_pid=1)


def test_a_process_of_another_run_or_none_is_not_found(daemon: int) -> None:
    for other in ["run-", "run-11", "run-2", ""]:
        assert background.survivors(other, time.time_ns()) == []


def test_older_processes_are_not_looked_at_in_a_short_run_but_are_in_a_long_one(daemon: int) -> None:
    newest = subprocess.Popen(["true"])
    newest.wait()
    if newest.pid < daemon:
        pytest.skip("pids have just come full circle")
    assert background.survivors("run-1", time.time_ns(), newer_than_pid=newest.pid) == []
    long_ago = time.time_ns() - 5_000_000_000
    assert background.survivors("run-1", long_ago, newer_than_pid=newest.pid) != []


def test_pids_that_came_full_circle_are_all_looked_at(daemon: int) -> None:
    assert background.survivors("run-1", time.time_ns(), newer_than_pid=2**31) != []


def test_looking_where_nothing_goes_on_imports_nothing_heavy() -> None:
    source = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(background.__file__))))
    script = (
        f"import sys, os, time; sys.path.insert(0, {source!r}); from ckpt_run.shim import background;"
        "print(background.survivors('none', time.time_ns(), newer_than_pid=os.getpid()), 'psutil' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-ISE", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[] False\n"


def test_a_process_is_the_same_until_it_has_ended() -> None:
    process = subprocess.Popen(SLEEPER)
    known = background.identity(process.pid)
    assert known is not None
    assert background.is_same_process(known)
    process.kill()
    deadline = time.monotonic() + 20
    while background.is_same_process(known) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not background.is_same_process(known), "a zombie has ended"
    process.wait()
    assert background.identity(process.pid) is None
    assert not background.is_same_process(known)


def test_another_process_with_its_pid_or_another_boot_is_not_the_same() -> None:
    known = background.identity(os.getpid())
    assert known is not None
    pid, start, boot = known
    assert background.is_same_process((pid, start, boot))
    assert not background.is_same_process((pid, start + 1, boot))
    assert not background.is_same_process((pid, start, "another boot"))

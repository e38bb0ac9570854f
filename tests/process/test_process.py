"""A command run by the wrapper is as without it: streams, exit codes, signals, descriptors."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from .stand_in import COUNTER, LAST, PASSED_ON, PYTHON, SHORT_S, SOURCES, env, on_linux, wrapped

# --- streams and exit codes


def test_bytes_pass_both_ways_untouched(driver: list[str]) -> None:
    data = bytes(range(256)) * 5_000
    done = wrapped(driver, "sh", "-c", "tee /dev/stderr", input=data)
    assert (done.returncode, done.stdout, done.stderr) == (0, data, data)


def test_every_exit_code_is_kept_and_nothing_leaks(tmp_path: Path) -> None:
    script = f"""
import os, sys
sys.path.insert(0, {SOURCES!r})
from ckpt_run.shim import process
run = lambda code: process.run([b"sh", b"-c", b"exit %d" % code], os.environb)
run(0)
before = sorted(os.listdir("/dev/fd"))
for code in range(256):
    ended = run(code)
    assert (ended.exit_code, ended.started, ended.signal) == (code, True, None), (code, ended)
assert sorted(os.listdir("/dev/fd")) == before
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    print("no child left")
"""
    done = subprocess.run([*PYTHON, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("no child left\n", "")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGINT, signal.SIGABRT])
def test_ended_by_a_signal_is_128_and_its_number(driver: list[str], number: int) -> None:
    done = wrapped(driver, "sh", "-c", f"ulimit -c 0; kill -{number} $$", env=env(TELL="1"))
    assert done.returncode == 128 + number
    assert f"signal={number}".encode() in done.stderr


def test_a_broken_pipe_ends_the_command(driver: list[str]) -> None:
    line = '"$@" yes | head -n 1; echo "${PIPESTATUS[0]}"'
    done = subprocess.run(["bash", "-c", line, "bash", *driver], capture_output=True, timeout=SHORT_S, check=True)
    assert (done.stdout, done.stderr) == (b"y\n141\n", b"")


def make(path: Path, text: str = "", mode: int = 0o755) -> str:
    path.write_text(text)
    path.chmod(mode)
    return str(path)


@pytest.mark.parametrize("how", ["RUN", "EXEC"])
def test_what_cannot_be_executed_has_the_exit_code_of_a_shell(driver: list[str], tmp_path: Path, how: str) -> None:
    make(tmp_path / "plain", "echo no", mode=0o644)
    make(tmp_path / "lost", "#!/nowhere/interpreter\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "bin" / "folder").mkdir(parents=True)
    make(tmp_path / "bin" / "plain", "echo no", mode=0o644)
    path = f"{tmp_path}/bin:{os.environ['PATH']}"
    for command in ["./absent", "./plain", "./folder", "./plain/below", "absent", "plain", "folder", ""]:
        there = {"cwd": tmp_path, "env": env(PATH=path, TELL="1", **{how: "1"})}
        bare = subprocess.run(
            ["bash", "-c", '"$0"', command], check=False, capture_output=True, timeout=SHORT_S, **there
        )  # type: ignore[call-overload]
        done = wrapped(driver, command, **there)
        assert done.returncode == bare.returncode, (command, bare.stderr, done.stderr)
        assert done.returncode in {126, 127}
        assert b"pid=0" in done.stderr
    # A shell says 127 here from bash 5.2 on, and said 126 before.
    assert wrapped(driver, "./lost", cwd=tmp_path, env=env(**{how: "1"})).returncode == 127


@pytest.mark.parametrize("how", ["RUN", "EXEC"])
def test_a_file_without_interpreter_line_is_a_script_of_sh(driver: list[str], tmp_path: Path, how: str) -> None:
    make(tmp_path / "bare script", 'echo "$0" "$@"; exit 4')
    done = wrapped(driver, "bare script", "a b", env=env(PATH=f"{tmp_path}:/usr/bin:/bin", **{how: "1"}))
    assert (done.returncode, done.stdout.decode()) == (4, f"{tmp_path}/bare script a b\n")


def test_the_command_is_looked_up_on_the_path_it_is_given(tmp_path: Path) -> None:
    from ckpt_run.shim import program

    make(tmp_path / "ls")
    assert program.found(b"ls", {b"PATH": os.fsencode(tmp_path)}) == (os.fsencode(tmp_path / "ls"), 0)
    assert program.found(b"ls", {b"PATH": b"/nowhere"})[1] != 0
    assert program.found(b"sh", {})[1] == 0


# --- what the command inherits


@on_linux
@pytest.mark.parametrize("how", ["RUN", "EXEC"])
@pytest.mark.parametrize("ignored", ["", "trap '' INT HUP USR1;"])
def test_signal_mask_and_dispositions_are_those_the_wrapper_was_given(
    driver: list[str], how: str, ignored: str
) -> None:
    def seen(prefix: Sequence[str]) -> list[tuple[bytes, int]]:
        line = ignored + 'exec "$@"'
        argv = ["sh", "-c", line, "sh", *prefix, "grep", "^Sig[BIC]", "/proc/self/status"]
        said = subprocess.run(argv, env=env(**{how: "1"}), capture_output=True, check=True).stdout
        return [(line[:6], int(line[8:], 16) & ~internal) for line in said.splitlines()]

    # glibc's posix_spawn ignores its own two signals in the child (2.36, spawni.c: is_internal_signal).
    internal = 1 << 31 | 1 << 32
    assert len(seen([])) == 3
    assert seen(driver) == seen([])


def test_descriptors_group_session_limits_and_environment_are_inherited(driver: list[str], tmp_path: Path) -> None:
    script = (
        "import os, resource, sys; parent = int(sys.argv[1]) and os.getppid();"
        "print(sorted(os.listdir('/dev/fd')), os.umask(0), os.nice(0), os.getcwd(),"
        "resource.getrlimit(resource.RLIMIT_NOFILE), sorted(os.environb.items()),"
        "os.getpgrp() == os.getpgid(parent), os.getsid(0) == os.getsid(parent)); os.write(3, b'three')"
    )

    def seen(prefix: Sequence[str]) -> str:
        line = 'umask 027; ulimit -n 99; cd "$0"; exec 3>three; exec nice -n 3 "$@"'
        # What LC_CTYPE is in the C locale is Python's own doing, and must not reach the command.
        environment = {"PATH": os.environ["PATH"], "ODD": "\udcff", "LC_CTYPE": "POSIX"}
        argv = ["sh", "-c", line, str(tmp_path), *prefix, *PYTHON, "-c", script, str(len(prefix))]
        return subprocess.run(argv, env=environment, capture_output=True, text=True, check=True).stdout

    assert seen(driver) == seen([])
    assert (tmp_path / "three").read_text() == "three"


@on_linux
def test_what_python_adds_to_the_environment_does_not_reach_the_command(driver: list[str]) -> None:
    done = wrapped(driver, "/usr/bin/env", env={"A": "b"})
    assert done.stdout == b"A=b\n"


# --- signals


def reader(process: subprocess.Popen[bytes]) -> Iterator[bytes]:
    assert process.stdout is not None
    return iter(process.stdout.readline, b"")


def sentinels(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    return [one for one in psutil.Process(process.pid).children() if one.name() == "signal-watch"]


@pytest.fixture(name="counting", params=["", "NO_SIGWAITINFO"])
def _counting(driver: list[str], request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[bytes]]:
    """A wrapper, leader of its own session, whose command writes a line for each signal it gets."""
    argv = [*driver, *PYTHON, "-c", COUNTER]
    more = {request.param: "1"} if request.param else {}
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, env=env(**more), start_new_session=True)
    assert next(reader(process)) == b"ready\n"
    while not sentinels(process):  # the command can be faster; what that means, the docstring says
        time.sleep(0.005)
    yield process
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def rest(process: subprocess.Popen[bytes]) -> list[bytes]:
    """What the counter wrote, once the last signal is sent to the wrapper's pid; it exits with 9."""
    time.sleep(0.1)
    os.kill(process.pid, LAST)
    lines = list(reader(process))
    assert process.wait(SHORT_S) == 9
    assert lines.pop() == b"got %d\n" % LAST
    return lines


@on_linux
def test_a_signal_for_the_wrapper_reaches_the_command_once(counting: subprocess.Popen[bytes]) -> None:
    for number in PASSED_ON:
        os.kill(counting.pid, number)
        assert next(reader(counting)) == b"got %d\n" % number
    assert rest(counting) == []


@on_linux
def test_a_signal_for_the_group_reaches_the_command_once(counting: subprocess.Popen[bytes]) -> None:
    for _ in range(3):
        for number in PASSED_ON:
            os.killpg(counting.pid, number)
            assert next(reader(counting)) == b"got %d\n" % number
            time.sleep(0.01)
    assert rest(counting) == []


@on_linux
def test_a_group_killed_leaves_nobody(counting: subprocess.Popen[bytes]) -> None:
    family = [psutil.Process(counting.pid), *psutil.Process(counting.pid).children(recursive=True)]
    os.killpg(counting.pid, signal.SIGKILL)
    assert counting.wait(SHORT_S) == -signal.SIGKILL
    assert len(psutil.wait_procs(family, SHORT_S)[0]) == 3


@on_linux
def test_signals_for_the_group_and_the_wrapper_are_told_apart(counting: subprocess.Popen[bytes]) -> None:
    for send in [os.killpg, os.kill, os.kill, os.killpg, os.kill]:
        send(counting.pid, signal.SIGTERM)
        assert next(reader(counting)) == b"got 15\n"
        time.sleep(0.02)
    assert rest(counting) == []


@on_linux
def test_a_signal_sent_by_name_reaches_the_command(counting: subprocess.Popen[bytes]) -> None:
    """As `pkill -f` does: to each process that shows the wrapper's name, one by one."""
    family = [psutil.Process(counting.pid), *psutil.Process(counting.pid).children()]
    named = [one for one in family if any("stand-in-wrapper" in word for word in one.cmdline())]
    assert len(family) == 3
    for one in named:
        one.send_signal(signal.SIGINT)
    assert next(reader(counting)) == b"got 2\n"
    assert rest(counting) == []


@on_linux
def test_the_sentinel_holds_nothing_and_ends_with_a_killed_wrapper(counting: subprocess.Popen[bytes]) -> None:
    (sentinel,) = sentinels(counting)
    assert len(os.listdir(f"/proc/{sentinel.pid}/fd")) == 2
    assert sentinel.cwd() == "/"
    os.kill(counting.pid, signal.SIGKILL)
    assert psutil.wait_procs([sentinel], SHORT_S)[0]


@on_linux
@pytest.mark.parametrize("harm", [signal.SIGKILL, signal.SIGSTOP])
def test_without_its_sentinel_the_wrapper_still_passes_signals_on(
    counting: subprocess.Popen[bytes], harm: int
) -> None:
    (sentinel,) = sentinels(counting)
    sentinel.send_signal(harm)
    os.kill(counting.pid, signal.SIGTERM)
    assert next(reader(counting)) == b"got 15\n"
    assert rest(counting) == []


def test_a_default_command_dies_of_the_signal_the_wrapper_gets(driver: list[str]) -> None:
    for number in [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGUSR1]:
        line = "echo ready; exec sleep 60"
        with subprocess.Popen([*driver, "sh", "-c", line], stdout=subprocess.PIPE) as process:
            assert next(reader(process)) == b"ready\n"
            process.send_signal(number)
            assert process.wait(SHORT_S) == 128 + number


@on_linux
def test_a_timer_set_before_the_wrapper_was_started_reaches_the_command(driver: list[str]) -> None:
    """The idiom `alarm 1; exec COMMAND`: SIGALRM comes from the kernel, to the wrapper alone."""
    line = "import os, signal, sys; signal.setitimer(signal.ITIMER_REAL, 0.3); os.execv(sys.argv[1], sys.argv[1:])"
    done = subprocess.run([*PYTHON, "-c", line, *driver, "sleep", "60"], timeout=SHORT_S, check=False)
    assert done.returncode == 128 + signal.SIGALRM


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_signal_before_the_start_ends_the_wrapper_and_no_command_starts(
    driver: list[str], tmp_path: Path, number: int
) -> None:
    argv = [*driver, "touch", str(tmp_path / "started")]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=env(PAUSE="before", TELL="1")
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == b"paused\n"
        process.send_signal(number)
        _, said = process.communicate(b".", timeout=SHORT_S)
    assert process.returncode == -number
    assert f"pid=0, signal={number}".encode() in said
    assert not (tmp_path / "started").exists()


def test_a_harmless_or_ignored_signal_before_the_start_does_not_keep_it_from_starting(driver: list[str]) -> None:
    argv = ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", *driver, "sh", "-c", "exit 5"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=env(PAUSE="before")) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == b"paused\n"
        for number in [signal.SIGWINCH, signal.SIGHUP, signal.SIGCONT]:
            process.send_signal(number)
        process.communicate(b".", timeout=SHORT_S)
    assert process.returncode == 5


def test_a_signal_after_the_end_leaves_the_record_and_the_exit_code(driver: list[str]) -> None:
    argv = [*driver, "sh", "-c", "exit 6"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=env(PAUSE="after")) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == b"paused\n"
        for number in [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]:
            process.send_signal(number)
        process.communicate(b".", timeout=SHORT_S)
    assert process.returncode == 6


def test_to_die_of_a_signal_shows_it_to_the_parent_and_leaves_no_core(tmp_path: Path) -> None:
    script = f"import sys; sys.path.insert(0, {SOURCES!r}); from ckpt_run.shim import process; process.die_of(3)"
    done = subprocess.run(
        [*PYTHON, "-c", script],
        cwd=tmp_path,
        timeout=SHORT_S,
        check=False,
        preexec_fn=lambda: resource.setrlimit(
            resource.RLIMIT_CORE, (resource.getrlimit(resource.RLIMIT_CORE)[1],) * 2
        ),
    )
    assert done.returncode == -signal.SIGQUIT
    assert list(tmp_path.iterdir()) == []


def test_a_command_stopped_under_a_parent_without_job_control_can_be_continued(driver: list[str]) -> None:
    line = "echo $$; kill -STOP $$; exit 4"
    with subprocess.Popen([*driver, "sh", "-c", line], stdout=subprocess.PIPE) as process:
        pid = int(next(reader(process)))
        time.sleep(0.2)
        os.kill(pid, signal.SIGCONT)
        assert process.wait(SHORT_S) == 4

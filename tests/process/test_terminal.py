"""Keys, jobs and the window's size, through a pseudo-terminal and an interactive bash as the parent."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest

from .stand_in import COUNTER, LAST, PYTHON, SHORT_S, env, on_linux


class Shell:
    """An interactive bash on a pseudo-terminal, with job control."""

    def __init__(self, driver: list[str], cwd: Path, **more: str) -> None:
        variables = {**env(**more), "PS1": "<prompt>", "TERM": "dumb"}
        argv = ["--norc", "--noprofile", "-i"]
        self.bash = pexpect.spawn("bash", argv, cwd=str(cwd), env=variables, timeout=SHORT_S, echo=False)
        self.bash.expect_exact("<prompt>")
        self.say("bind 'set enable-bracketed-paste off'; w() { " + " ".join(driver) + ' "$@"; }')
        (cwd / "counter.py").write_text(COUNTER)
        self.count = f"w {' '.join(PYTHON)} counter.py"

    def say(self, line: str) -> str:
        self.bash.sendline(line)
        self.bash.expect_exact("<prompt>")
        return os.fsdecode(self.bash.before or b"")

    def start(self, line: str, until: str) -> None:
        self.bash.sendline(line)
        self.bash.expect_exact(until)
        time.sleep(0.1)

    def press(self, key: str) -> None:
        self.bash.sendcontrol(key)

    def numbers(self) -> list[int]:
        """The signals that the counter says it got, once `LAST` is sent to the wrapper's group."""
        time.sleep(0.2)
        os.killpg(os.tcgetpgrp(self.bash.child_fd), LAST)
        self.bash.expect_exact("<prompt>")
        return [int(one) for one in re.findall(r"got (\d+)", os.fsdecode(self.bash.before or b""))][:-1]


@pytest.fixture(name="shell")
def _shell(driver: list[str], tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(driver, tmp_path)
    yield shell
    shell.bash.close(force=True)


@on_linux
@pytest.mark.parametrize("lacking", ["NOTHING", "NO_FORK", "NO_SIGWAITINFO"])
def test_keys_reach_the_command_once(driver: list[str], tmp_path: Path, lacking: str) -> None:
    shell = Shell(driver, tmp_path, **{lacking: "1"})
    shell.start(shell.count, "ready")
    for key in ["c", "\\", "z", "c"]:
        shell.press(key)
        time.sleep(0.1)
    shell.bash.setwinsize(33, 77)
    assert shell.numbers() == [signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGINT, signal.SIGWINCH]
    assert shell.say("echo =$?").strip() == "=9"
    shell.bash.close(force=True)


def test_ctrl_c_ends_the_command_and_the_shell_goes_on(shell: Shell) -> None:
    shell.start("w sh -c 'echo here; exec sleep 60'", "here")
    shell.press("c")
    shell.bash.expect_exact("<prompt>")
    assert shell.say("echo =$?").strip() == "=130"


def test_the_command_sees_the_new_size_of_the_window(shell: Shell) -> None:
    line = "w bash -c 'trap \"stty size; exit\" WINCH; echo here; while :; do sleep 0.1; done'"
    shell.start(line, "here")
    shell.bash.setwinsize(44, 55)
    shell.bash.expect_exact("44 55")
    shell.bash.expect_exact("<prompt>")


def test_ctrl_z_stops_the_job_and_fg_and_bg_continue_it(shell: Shell) -> None:
    shell.start('w bash -c \'trap "echo continued" CONT; echo here; read x; echo "got $x"; exit 8\'', "here")
    for _ in range(2):
        shell.press("z")
        shell.bash.expect(r"Stopped[^\r\n]*\r\n")
        shell.bash.expect_exact("<prompt>")
        assert "Stopped" in shell.say("jobs")
        shell.bash.sendline("fg")
        time.sleep(0.2)
    shell.bash.sendline("word")
    shell.bash.expect_exact("<prompt>")
    said = os.fsdecode(shell.bash.before or b"")
    assert "got word" in said
    assert shell.say("echo =$?").strip() == "=8"


def test_a_background_job_that_reads_stops_until_it_is_in_the_foreground(shell: Shell) -> None:
    shell.say("w bash -c 'read x; echo \"got $x\"' &")
    time.sleep(0.5)
    assert re.search(r"Stopped.*tty input", shell.say("jobs -l"))
    shell.bash.sendline("fg")
    time.sleep(0.3)
    shell.bash.sendline("later")
    shell.bash.expect_exact("got later")
    shell.bash.expect_exact("<prompt>")


@on_linux
@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGTSTP])
def test_a_command_stopped_by_its_pid_shows_as_a_stopped_job(shell: Shell, number: int) -> None:
    shell.start(f"w sh -c 'echo here; kill -{int(number)} $$; echo back; exit 3'", "here")
    shell.bash.expect_exact("Stopped")
    shell.bash.expect_exact("<prompt>")
    assert ("(signal)" in shell.say("jobs -l")) == (number == signal.SIGSTOP)
    shell.start("fg", "back")
    shell.bash.expect_exact("<prompt>")
    assert shell.say("echo =$?").strip().endswith("=3")


def test_an_interactive_shell_as_the_command_has_its_own_jobs(shell: Shell) -> None:
    shell.start("w env PS1='<inner>' bash --norc --noprofile -i", "<inner>")
    shell.start("sleep 60", "")
    time.sleep(0.2)
    shell.press("z")
    shell.bash.expect_exact("Stopped")
    shell.bash.expect_exact("<inner>")
    shell.bash.sendline("kill -KILL %1; sleep 0.2; exit 12")
    shell.bash.expect_exact("<prompt>")
    assert shell.say("echo =$?").strip() == "=12"
    assert shell.say("sh -c 'stty size >/dev/null && echo terminal kept'").strip() == "terminal kept"

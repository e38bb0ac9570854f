"""A traced run: its record holds what the command did and nobody else's work, and first touches are put back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from ckpt_run.capture import witness

PROBED = witness.probe()
pytestmark = pytest.mark.skipif(not PROBED.works, reason=f"no traced witness here: {PROBED}")
TOOLS = Path(sysconfig.get_path("scripts"))
SECONDS_MAX = 30.0
# Waits for the command's start, then saves files by renaming over them and edits one that stands there.
NEIGHBOUR = """
import os, sys, time
until = time.monotonic() + 20
while not os.path.exists("started") and time.monotonic() < until:
    time.sleep(0.001)
for number in range(20):
    with open(f"theirs/save{number}~", "w") as file:
        file.write("saved by a neighbour\\n")
    os.replace(f"theirs/save{number}~", f"theirs/save{number}")
with open("edited.txt", "a") as file:
    file.write("an edit\\n")
open("theirs/done", "w").close()
"""
BUSY = """
i=0; touch started
while [ $i -lt 25 ]; do echo $i > mine/new$i; echo more >> mine/old$i; i=$((i+1)); done
while [ ! -e theirs/done ]; do sleep 0.01; done; rm started
"""


class Project:
    """A project of the test's own, and the tools called in it."""

    def __init__(self, top: Path) -> None:
        self.top = top
        top.mkdir()
        self.git("init", "-q", "-b", "main")
        self.git("config", "user.name", "T")
        self.git("config", "user.email", "t@example.org")

    def git(self, *words: str) -> None:
        """Run git here."""
        subprocess.run(["git", *words], cwd=self.top, check=True, stdin=subprocess.DEVNULL, capture_output=True)

    def commit(self) -> None:
        """Commit everything, and let its times be past."""
        self.git("add", "-A")
        self.git("commit", "-qm", "c")
        for folder, _, names in os.walk(self.top):
            for name in names:
                if "/.git" not in folder:
                    os.utime(os.path.join(folder, name), ns=(10**18, 10**18 + 7), follow_symlinks=False)
        self.git("status")  # Git notes the new times

    def write(self, name: str, data: str | bytes, mode: int = 0o644) -> Path:
        """Write a file, the folders above it made."""
        path = self.top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        path.chmod(mode)
        return path

    def begin(self, script: str, trace: str = "always") -> subprocess.Popen[bytes]:
        """Start a wrapped shell script."""
        words = [str(TOOLS / "ckpt-run"), "--trace", trace, "--", "sh", "-c", script]
        pipe = subprocess.PIPE
        return subprocess.Popen(words, cwd=self.top, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe)

    def run(self, script: str, trace: str = "always") -> tuple[int, bytes]:
        """Run a wrapped shell script to its end; gives exit code and stderr."""
        started = self.begin(script, trace)
        _, errors = started.communicate(timeout=SECONDS_MAX)
        return started.returncode, errors

    def ckpt(self, *words: str, code: int = 0) -> str:
        """Call a verb, which must end with this code."""
        ended = subprocess.run(
            [str(TOOLS / "ckpt"), *words], cwd=self.top, stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
        assert ended.returncode == code, ended
        return ended.stdout.decode()

    def shown(self) -> dict[str, dict[str, Any]]:
        """The changes of the newest point, by path."""
        return {change["path"]: change for change in json.loads(self.ckpt("show", "--json"))["changes"]}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """An empty project."""
    return Project(tmp_path / "project")


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that are ended with the test."""
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()


def wait_for(what: Callable[[], object]) -> None:
    """Wait until it is so."""
    until = time.monotonic() + SECONDS_MAX
    while not what():
        assert time.monotonic() < until
        time.sleep(0.005)


@pytest.mark.parametrize("files_max", ["4000", "0"], ids=["survey", "git"])
def test_a_neighbours_work_during_the_command_is_not_the_commands(
    project: Project, started: list[subprocess.Popen[bytes]], files_max: str
) -> None:
    for number in range(25):
        project.write(f"mine/old{number}", "old\n")
    for number in range(10):
        project.write(f"theirs/save{number}", "old\n")
    project.write("edited.txt", "old\n")
    project.commit()
    project.ckpt("config", "survey_files_max", files_max)
    started.append(subprocess.Popen([sys.executable, "-c", NEIGHBOUR], cwd=project.top, stdin=subprocess.DEVNULL))
    assert project.run(BUSY)[0] == 0
    shown = project.shown()
    assert set(shown) == {f"mine/{kind}{number}" for kind in ("old", "new") for number in range(25)}
    assert {change["by"] for change in shown.values()} == {"traced"}
    project.ckpt("undo", "--yes")
    assert sorted(os.listdir(project.top / "mine")) == sorted(f"old{number}" for number in range(25))
    assert all((project.top / f"mine/old{number}").read_text() == "old\n" for number in range(25))
    saved = [(project.top / f"theirs/save{number}").read_text() for number in range(20)]
    assert saved == ["saved by a neighbour\n"] * 20
    assert (project.top / "edited.txt").read_text() == "old\nan edit\n"


def test_without_the_trace_a_neighbours_work_is_known_by_time_only(project: Project) -> None:
    project.write("a", "a\n")
    project.commit()
    assert project.run("echo b > a", trace="never")[0] == 0
    assert project.shown()["a"]["by"] == "time"


def test_the_trace_is_off_unless_asked_for(project: Project) -> None:
    project.write("a", "a\n")
    project.commit()
    words = [str(TOOLS / "ckpt-run"), "--", "sh", "-c", "echo b > a"]
    subprocess.run(words, cwd=project.top, stdin=subprocess.DEVNULL, check=True, capture_output=True)
    assert project.shown()["a"]["by"] == "time"
    subprocess.run([*words[:-1], "echo c > a"], cwd=project.top, stdin=subprocess.DEVNULL, check=True,
                   capture_output=True, env={**os.environ, "CKPT_TRACE": "auto"})  # fmt: skip
    assert project.shown()["a"]["by"] == "traced"


def test_a_converted_file_is_put_back_exactly(project: Project) -> None:
    project.git("config", "filter.big.clean", "sed s/real/pointer/")
    project.git("config", "filter.big.smudge", "cat")
    project.write(".gitattributes", "*.bin filter=big\n")
    project.write("a.bin", "the real bytes\n", mode=0o640)
    project.commit()
    assert project.run("echo gone > a.bin; chmod 600 a.bin")[0] == 0
    change = project.shown()["a.bin"]
    assert (change["undo"], change["known"]) == ("restore", "first_touch")
    project.ckpt("undo", "--yes")
    assert (project.top / "a.bin").read_text() == "the real bytes\n"
    assert (project.top / "a.bin").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("flag", ["--skip-worktree", "--assume-unchanged"])
def test_a_file_that_git_was_told_not_to_look_at_is_put_back(project: Project, flag: str) -> None:
    project.write("settings", "shared\n")
    project.commit()
    project.git("update-index", flag, "settings")
    project.write("settings", "mine alone\n")
    assert project.run("rm settings")[0] == 0
    assert project.shown()["settings"]["undo"] == "recover"
    project.ckpt("undo", "--yes")
    assert (project.top / "settings").read_text() == "mine alone\n"


def test_a_file_over_the_limit_of_copies_is_put_back(project: Project) -> None:
    project.write("a", "a\n")
    project.commit()
    project.ckpt("config", "copy_bytes_max", "1000")
    large = b"x" * 100_000
    project.write("large", large)
    assert project.run("echo > large", trace="never")[0] == 0
    assert project.shown()["large"]["reason"] == "too_large"
    project.write("large", large)
    assert project.run("echo > large")[0] == 0
    project.ckpt("undo", "--yes")
    assert (project.top / "large").read_bytes() == large


@pytest.mark.parametrize("files_max", ["4000", "0"], ids=["survey", "git"])
def test_files_in_an_ignored_folder_are_put_back(project: Project, files_max: str) -> None:
    project.write(".gitignore", "build/\n")
    project.commit()
    project.ckpt("config", "survey_files_max", files_max)
    project.write("build/old/data", "data\n", mode=0o600)
    project.write("build/other", "other\n")
    project.write("build/quiet", "quiet\n")
    assert project.run("rm -r build/old; echo more >> build/other; echo new > build/new")[0] == 0
    shown = project.shown()
    assert set(shown) == {"build/old", "build/old/data", "build/other", "build/new"}
    assert not [change for change in shown.values() if change["reason"]]
    project.ckpt("undo", "--yes")
    assert (project.top / "build/old/data").read_text() == "data\n"
    assert (project.top / "build/old/data").stat().st_mode & 0o777 == 0o600
    assert (project.top / "build/other").read_text() == "other\n"
    assert not (project.top / "build/new").exists()


def test_a_whole_ignored_folder_that_is_removed_comes_back(project: Project) -> None:
    project.write(".gitignore", "build/\n")
    project.commit()
    for number in range(5):
        project.write(f"build/deep/{number}", f"{number}\n")
    assert project.run("rm -rf build")[0] == 0
    assert not [change for change in project.shown().values() if change["reason"]]
    project.ckpt("undo", "--yes")
    assert [(project.top / f"build/deep/{number}").read_text() for number in range(5)] == [
        f"{number}\n" for number in range(5)
    ]


def test_what_was_moved_into_an_ignored_folder_is_never_called_its_old_content(project: Project) -> None:
    project.write(".gitignore", "one/\ntwo/\n")
    project.commit()
    project.ckpt("config", "survey_files_max", "0")
    project.write("one/a", "one\n")
    project.write("two/a", "two\n")
    project.run("mv one three; mv two one; echo more >> one/a; mv one two; mv three one")
    project.ckpt("undo", "--yes", code=4)
    assert (project.top / "one/a").read_text() == "one\n"
    assert (project.top / "two/a").read_text().startswith("two\n")


def test_permission_bits_that_git_does_not_keep_are_put_back_without_a_survey(project: Project) -> None:
    project.write("secret", "secret\n", mode=0o600)
    project.write("shared", "shared\n", mode=0o664)
    project.commit()
    (project.top / "hollow").mkdir(mode=0o700)
    project.ckpt("config", "survey_files_max", "0")
    assert project.run("chmod 644 secret; echo more >> shared; chmod 600 shared; rmdir hollow")[0] == 0
    assert not [change for change in project.shown().values() if change["reason"]]
    project.ckpt("undo", "--yes")
    assert (project.top / "secret").stat().st_mode & 0o777 == 0o600
    assert (project.top / "shared").stat().st_mode & 0o777 == 0o664
    assert (project.top / "hollow").stat().st_mode & 0o777 == 0o700


def test_a_rewrite_that_hides_from_git_is_seen_without_a_survey(project: Project) -> None:
    project.write("a", "abc\n")
    project.commit()
    project.ckpt("config", "survey_files_max", "0")
    project.git("config", "core.trustctime", "false")
    assert project.run("touch -r a ../t; printf xyz | dd of=a conv=notrunc status=none; touch -r ../t a")[0] == 0
    project.ckpt("undo", "--yes")
    assert (project.top / "a").read_text() == "abc\n"


@pytest.mark.parametrize(
    ("script", "code"), [("exit 7", 7), ("kill -9 $$", 137), ("kill -TERM $$", 143), ("not-a-command-here", 127)]
)
def test_exit_codes_are_the_commands_own(project: Project, script: str, code: int) -> None:
    project.write("a", "a\n")
    assert project.run(script)[0] == code


def test_a_program_that_is_not_there_is_told_as_without_the_trace(project: Project) -> None:
    words = [str(TOOLS / "ckpt-run"), "--trace", "always", "--", "./not-here"]
    ended = subprocess.run(words, cwd=project.top, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert ended.returncode == 127


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_signal_to_the_wrapper_reaches_the_command(project: Project, number: int) -> None:
    name = signal.Signals(number).name.removeprefix("SIG")
    running = project.begin(f"trap 'echo heard > heard; exit 5' {name}; : > ready; while :; do sleep 0.02; done")
    wait_for((project.top / "ready").exists)
    running.send_signal(number)
    running.communicate(timeout=SECONDS_MAX)
    assert running.returncode == 5
    assert project.shown()["heard"]["by"] == "traced"


def test_a_command_that_stops_and_goes_on_ends_as_it_would(project: Project) -> None:
    running = project.begin("echo $$ > pid; kill -STOP $$; echo on > on; exit 6")
    wait_for(lambda: (project.top / "pid").exists() and (project.top / "pid").read_text().endswith("\n"))
    command = psutil.Process(int((project.top / "pid").read_text()))
    wait_for(lambda: command.status() == psutil.STATUS_STOPPED)
    command.send_signal(signal.SIGCONT)
    running.communicate(timeout=SECONDS_MAX)
    assert running.returncode == 6


def _supervisor(running: subprocess.Popen[bytes]) -> psutil.Process:
    wrapper = psutil.Process(running.pid)
    return next(child for child in wrapper.children() if child.children())


def test_a_killed_supervisor_leaves_the_command_to_end_and_nothing_is_claimed(project: Project) -> None:
    project.write("a", "a\n")
    project.commit()
    running = project.begin("echo b > a; : > ready; while [ ! -e go ]; do sleep 0.02; done; echo c > a; exit 3")
    wait_for((project.top / "ready").exists)
    _supervisor(running).kill()
    (project.top / "go").touch()
    running.communicate(timeout=SECONDS_MAX)
    # What waits for a dead listener fails with ENOSYS (seccomp_unotify(2)): the shell goes on past its failed line.
    assert running.returncode in {2, 3}
    shown = project.shown()
    assert (shown["a"]["by"], shown["go"]["by"]) == ("traced", "time")
    project.ckpt("undo", "--yes", "--only", "a")
    assert (project.top / "a").read_text() == "a\n"


def test_the_run_of_a_killed_wrapper_is_closed_without_a_claim(project: Project) -> None:
    project.write("a", "a\n")
    project.commit()
    running = project.begin("echo b > a; : > ready; while [ ! -e go ]; do sleep 0.02; done")
    wait_for((project.top / "ready").exists)
    running.kill()
    running.wait()
    (project.top / "go").touch()
    running.communicate(timeout=SECONDS_MAX)
    log = json.loads(project.ckpt("log", "--json"))
    assert log["runs"][0]["state"] == "interrupted"
    assert project.shown()["a"]["by"] == "time"
    project.ckpt("undo", "--yes", "--only", "a")
    assert (project.top / "a").read_text() == "a\n"


def test_survivors_make_other_files_doubtful(project: Project, started: list[subprocess.Popen[bytes]]) -> None:
    for name in ("mine", "theirs"):
        project.write(name, "old\n")
    project.commit()
    started.append(subprocess.Popen(
        ["sh", "-c", "while [ ! -e begun ]; do sleep 0.01; done; echo x >> theirs; : > done"], cwd=project.top
    ))  # fmt: skip
    script = "(while [ ! -e over ]; do sleep 0.05; done) >/dev/null 2>&1 & echo x >> mine; : > begun"
    code, errors = project.run(script + "; while [ ! -e done ]; do sleep 0.01; done")
    assert code == 0
    assert b"still running" in errors
    shown = project.shown()
    assert (shown["mine"]["by"], shown["theirs"]["by"]) == ("traced", "time")
    (project.top / "over").touch()


def test_a_trace_inside_a_trace_says_that_it_is_none(project: Project, tmp_path: Path) -> None:
    inner = Project(tmp_path / "inner")
    inner.write("a", "a\n")
    inner.commit()
    code, errors = project.run(f"cd ../inner && {TOOLS}/ckpt-run --trace always -- sh -c 'echo b > a'")
    assert code == 0
    assert b"not traced (another program watches the command already)" in errors
    assert inner.shown()["a"]["by"] == "time"
    assert b"not traced" not in project.run(f"cd ../inner && {TOOLS}/ckpt-run --trace auto -- true")[1]

"""Locks die with their process: nothing that is dead blocks, and what is alive is never run over."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from ckpt_run.capture import durable

from .real import Project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


def started(project: Project, script: str) -> subprocess.Popen[str]:
    """A run whose command has begun: it has made `begun`, and ends when `end` is made."""
    run = project.start_run(f"{script}; echo > begun; while ! [ -e end ]; do sleep 0.05; done; rm begun end")
    while not (project.top / "begun").exists():
        assert run.poll() is None
        time.sleep(0.02)
    return run


def let_end(project: Project) -> None:
    (project.top / "end").touch()


def test_an_undo_is_refused_while_a_run_goes_on_and_works_after_it(project: Project) -> None:
    assert project.run("echo first > a").returncode == 0
    run = started(project, "echo second > b")
    refused = project.ckpt("undo", "--yes")
    assert refused.returncode == 1
    assert "still running" in refused.stderr
    assert (project.top / "a").read_text() == "first\n"
    let_end(project)
    assert run.wait() == 0
    run.communicate()
    for _ in range(2):
        assert project.ckpt("undo", "--yes").returncode == 0
    assert ((project.top / "a").read_text(), (project.top / "b").read_text()) == ("old\n", "old\n")


def test_a_killed_wrapper_blocks_nobody(project: Project) -> None:
    run = started(project, "echo second > b")
    run.send_signal(signal.SIGKILL)
    run.wait()
    let_end(project)
    while (project.top / "end").exists():
        time.sleep(0.02)
    run.communicate()
    undo = project.ckpt("undo", "--yes")
    assert undo.returncode == 0, undo.stderr
    assert (project.top / "b").read_text() == "old\n"


def test_lock_files_of_the_dead_block_nobody_whatever_stands_in_them(project: Project) -> None:
    project.run("echo first > a")
    for name in ("undo.lock", "runs.lock"):
        # As an older or another program might: the pid of a process that is alive, but is not the owner.
        (project.store() / name).write_text(f"{os.getpid()}\n")
    assert project.run("echo second > b").returncode == 0
    for _ in range(2):
        assert project.ckpt("undo", "--yes").returncode == 0
    assert (project.top / "a").read_text() == "old\n"


def test_a_dead_run_whose_pid_is_used_again_is_closed_all_the_same(project: Project) -> None:
    run = started(project, "echo second > b")
    run.send_signal(signal.SIGKILL)
    run.wait()
    let_end(project)
    while (project.top / "end").exists():
        time.sleep(0.02)
    run.communicate()
    # No record names a pid as an owner, so there is none to be mistaken: only a lock that is held counts.
    spools = list((project.store() / "runs").iterdir())
    assert len(spools) == 1
    with durable.lock(os.fsencode(spools[0] / "spool"), durable.Share.ALONE, wait=False) or pytest.fail("held"):
        assert "running" in project.ckpt("undo", "--yes").stderr or (project.top / "b").read_text() == "second\n"
    assert "interrupted" in project.ckpt("recover").stdout
    assert project.ckpt("undo", "--yes").returncode == 0
    assert (project.top / "b").read_text() == "old\n"


def test_two_captures_at_once_are_both_recorded_and_undone(project: Project) -> None:
    first = started(project, "echo first > a")
    second = project.run("echo second > b")
    let_end(project)
    assert (first.wait(), second.returncode) == (0, 0)
    first.communicate()
    undone = [project.ckpt("undo", "--yes", "--rest").returncode for _ in range(2)]
    assert set(undone) <= {0, 4}
    assert (project.top / "b").read_text() == "old\n"
    assert (project.top / "a").read_text() == "old\n"


def test_undos_at_once_never_both_write(project: Project) -> None:
    states = []
    for number in range(3):
        states.append((project.top / "a").read_text())
        assert project.run(f"echo {number} > a; echo {number} > made{number}").returncode == 0
    states.append((project.top / "a").read_text())
    undos = [project.start_ckpt("undo", "--yes") for _ in range(3)]
    ends = [undo.communicate() for undo in undos]
    codes = [undo.returncode for undo in undos]
    done = codes.count(0)
    assert done >= 1, ends
    assert set(codes) <= {0, 1, 3}, ends
    assert (project.top / "a").read_text() == states[3 - done]
    assert sorted(path.name for path in project.top.glob("made*")) == [f"made{number}" for number in range(3 - done)]


def test_a_recovery_waits_for_no_one_and_touches_nothing_while_an_undo_is_alive(project: Project) -> None:
    project.run("echo first > a")
    lock = durable.lock(os.fsencode(project.store() / "undo.lock"), durable.Share.ALONE, wait=False)
    assert lock is not None
    with lock:
        assert project.ckpt("recover").returncode == 0
        refused = project.ckpt("undo", "--yes")
        assert refused.returncode == 1
        assert "Another undo is in progress" in refused.stderr
        assert (project.top / "a").read_text() == "first\n"
    assert project.ckpt("undo", "--yes").returncode == 0

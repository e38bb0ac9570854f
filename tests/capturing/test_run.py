"""ckpt-run as its users meet it: the command's own exit code, or 125 and nothing started."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ckpt_run.capture import spool
from ckpt_run.capture.copies import Limits
from ckpt_run.capture.model import Run, State
from ckpt_run.capture.store import open_store
from ckpt_run.shim import config
from ckpt_run.shim.run import UsageError, close_interrupted, parse

from .kit import Repo, where

CKPT_RUN = os.path.join(os.path.dirname(sys.executable), "ckpt-run")
Ended = subprocess.CompletedProcess[bytes]


def wrapped(place: Path, *words: str, before: tuple[str, ...] = (), **options: object) -> Ended:
    return subprocess.run(  # type: ignore[call-overload, no-any-return]  # options passed on as given
        [CKPT_RUN, *before, "--", *words],
        cwd=place,
        capture_output=True,
        check=False,
        input=b"",
        timeout=60,
        **options,
    )


def runs(repo: Repo) -> list[Run]:
    """What is recorded of the project, oldest first."""
    place = where(repo)
    if not os.path.exists(place.folder + b"/store.db"):
        return []
    with open_store(place.folder, create=False) as store:
        found: list[Run] = [run for point in store.points(None) for run in point.runs]
    return sorted(found, key=lambda run: run.started_ns)


def test_options_end_at_the_command() -> None:
    options = parse([b"--label", b"x y", b"--turn=t1", b"cmd", b"--label", b"z"])
    assert options.values == {"label": "x y", "turn": "t1"}
    assert options.command == [b"cmd", b"--label", b"z"]
    assert parse([b"--", b"--label"]).command == [b"--label"]
    assert parse([b"--label=", b"c"]).values == {"label": ""}
    assert parse([b"--", b"\xff"]).command == [b"\xff"]
    assert parse([b"--help", b"x"]).command == []


@pytest.mark.parametrize(
    ("words", "word"),
    [([], None), ([b"--"], None), ([b"--label"], "--label"), ([b"--bogus", b"c"], "--bogus"), ([b"-x", b"c"], "-x")],
)
def test_words_that_are_not_understood_are_named(words: list[bytes], word: str | None) -> None:
    with pytest.raises(UsageError) as caught:
        parse(words)
    assert caught.value.word == word


@pytest.mark.parametrize("words", [["--bogus", "true"], ["--label"], []])
def test_a_wrong_command_line_starts_nothing(lived_in: Repo, words: list[str]) -> None:
    ended = subprocess.run([CKPT_RUN, *words], cwd=lived_in.path, capture_output=True, check=False, input=b"")
    assert ended.returncode == 125
    assert ended.stderr
    assert not ended.stdout


@pytest.mark.parametrize("script", ["exit 0", "exit 1", "exit 125", "exit 255", "kill -9 $$", "kill -TERM $$"])
def test_the_exit_code_is_the_commands(lived_in: Repo, script: str) -> None:
    bare = subprocess.run(["sh", "-c", script], check=False).returncode
    assert wrapped(lived_in.path, "sh", "-c", script).returncode == (128 - bare if bare < 0 else bare)


def test_a_command_that_is_not_there_or_not_executable(lived_in: Repo) -> None:
    assert wrapped(lived_in.path, "no-such-command-here").returncode == 127
    assert wrapped(lived_in.path, "./clean.txt").returncode == 126
    assert not runs(lived_in)
    assert not os.listdir(where(lived_in).runs)


def test_what_it_prints_is_what_the_command_prints(lived_in: Repo) -> None:
    script = "printf 'a\\0b\\377'; printf e >&2; echo x >> clean.txt; cat"
    ended = wrapped(lived_in.path, "sh", "-c", script)
    assert (ended.stdout, ended.stderr) == (b"a\0b\xff", b"e")


def test_the_environment_is_the_commands_but_for_our_marks(lived_in: Repo) -> None:
    outer = {**os.environ, "GIT_INDEX_FILE": "odd", "LC_ALL": "C", "EMPTY": ""}
    bare = subprocess.run(["env", "-0"], env=outer, capture_output=True, check=True).stdout
    ended = wrapped(lived_in.path, "env", "-0", env=outer)
    kept = {item for item in ended.stdout.split(b"\0") if not item.startswith((b"CKPT_RUN=", b"CKPT_ACTIVE="))}
    assert kept - {b"PWD=" + lived_in.top} == set(bare.split(b"\0")) - {b"PWD=" + lived_in.top}


def test_label_turn_and_session_are_kept(lived_in: Repo) -> None:
    options = ("--label", "a label", "--turn", "t1", "--session", "s1")
    wrapped(lived_in.path, "sh", "-c", "echo 1 > one", before=options)
    wrapped(lived_in.path, "sh", "-c", "echo 2 > two", env={**os.environ, "CKPT_TURN": "t1", "CKPT_SESSION": "s1"})
    wrapped(lived_in.path, "sh", "-c", "echo 3 > three", before=("--turn", "t1"))
    first, second, third = runs(lived_in)
    assert (first.label, first.turn, first.session) == ("a label", "t1", "s1")
    assert first.argv == [b"sh", b"-c", b"echo 1 > one"]
    assert first.cwd == lived_in.top
    assert first.point_id == second.point_id != third.point_id


def test_settings_that_the_command_changed_are_not_remembered_as_they_were(lived_in: Repo) -> None:
    lived_in.write(".gitattributes", "src/* filter=rot\n")
    rot = "tr a-z n-za-m"
    lived_in.age()
    script = f"git config filter.rot.smudge '{rot}'; git config filter.rot.clean '{rot}'; rm -r src; git checkout src"
    wrapped(lived_in.path, "sh", "-c", script)
    assert lived_in.read("src/a.py").startswith(b"fep/n.cl")
    lived_in.age()
    wrapped(lived_in.path, "rm", "src/a.py")
    assert [change.reason for change in runs(lived_in)[-1].changes] == ["converted"]


def test_a_subfolder_is_a_place_to_run_from(lived_in: Repo) -> None:
    wrapped(lived_in.path / "src", "sh", "-c", "echo x >> a.py; echo x >> ../dirty.txt")
    (run,) = runs(lived_in)
    assert {change.path for change in run.changes} == {b"src/a.py", b"dirty.txt"}
    assert run.cwd == lived_in.top + b"/src"


def no_folder(repo: Repo) -> dict[str, str]:
    (repo.path.parent / "file").write_text("in the way")
    return {"CKPT_HOME": str(repo.path.parent / "file" / "store")}


def inside(repo: Repo) -> dict[str, str]:
    return {"CKPT_HOME": str(repo.path / "store")}


def open_to_others(repo: Repo) -> dict[str, str]:
    wrapped(repo.path, "true")
    os.chmod(where(repo).folder, 0o755)
    return {}


def spoiled(name: str, data: bytes) -> Callable[[Repo], dict[str, str]]:
    def spoil(repo: Repo) -> dict[str, str]:
        repo.write(f".git/{name}", data)
        return {}

    return spoil


def not_a_repository(repo: Repo) -> dict[str, str]:
    os.rename(repo.at(".git"), repo.path.parent / "away")
    repo.write(".git", "gitdir: /nowhere/at/all\n")
    return {}


REFUSED = {
    "no-folder": no_folder,
    "inside": inside,
    "open": open_to_others,
    "corrupt-index": spoiled("index", b"DIRC garbage that is no index"),
    "newer-index": spoiled("index", b"DIRC\0\0\0\x09\0\0\0\0" + b"\0" * 20),
    "corrupt-head": spoiled("HEAD", b"garbage\n"),
    "corrupt-config": spoiled("config", b"[core\nbare"),
    "dangling": not_a_repository,
}


@pytest.mark.parametrize("spoil", REFUSED.values(), ids=list(REFUSED))
def test_what_cannot_be_saved_is_not_risked(lived_in: Repo, spoil: Callable[[Repo], dict[str, str]]) -> None:
    variables = {**os.environ, **spoil(lived_in)}
    ended = wrapped(lived_in.path, "sh", "-c", "echo started; rm new.txt", env=variables)
    assert (ended.returncode, ended.stdout) == (125, b"")
    assert ended.stderr.count(b"\n") == 1, ended.stderr
    assert lived_in.read("new.txt") == b"untracked\n"
    ended = wrapped(lived_in.path, "sh", "-c", "echo started; exit 7", before=("--on-error", "run"), env=variables)
    assert (ended.returncode, ended.stdout) == (7, b"started\n")
    assert ended.stderr.count(b"\n") == 1, ended.stderr
    assert lived_in.read("new.txt") == b"untracked\n"


def test_a_full_store_starts_nothing(lived_in: Repo) -> None:
    lived_in.write("big.txt", b"x" * 100_000)

    def no_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))

    ended = wrapped(lived_in.path, "sh", "-c", "echo started", preexec_fn=no_room)
    assert (ended.returncode, ended.stdout) == (125, b"")
    assert not os.listdir(where(lived_in).runs)
    assert wrapped(lived_in.path, "sh", "-c", "echo started").stdout == b"started\n"


@pytest.mark.parametrize("kind", ["outside", "bare", "in-git"])
def test_where_there_is_no_worktree_the_command_just_runs(repo: Repo, kind: str) -> None:
    place = repo.path.parent / "place"
    if kind == "bare":
        Repo(place, "--bare")
    elif kind == "in-git":
        place = repo.path / ".git"
    else:
        place.mkdir()
    ended = wrapped(place, "sh", "-c", "echo out; echo err >&2; exit 3")
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, b"out\n", b"err\n")


def test_inside_a_git_hook_the_run_is_recorded(lived_in: Repo) -> None:
    hook = f"#!/bin/sh\nexec {CKPT_RUN} -- sh -c 'echo formatted >> clean.txt; git add clean.txt; env | grep ^GIT_'\n"
    lived_in.write(".git/hooks/pre-commit", hook, 0o755)
    shown = lived_in.git("commit", "-am", "all")
    (run,) = runs(lived_in)
    assert {change.path: change.undo for change in run.changes} == {b"clean.txt": "restore"}
    assert lived_in.git("show", "HEAD:clean.txt").endswith(b"formatted\n"), shown


def test_a_linked_worktree_is_a_project_of_its_own(lived_in: Repo) -> None:
    lived_in.git("worktree", "add", "-q", "../linked")
    linked = Repo(lived_in.path.parent / "linked", init=False)
    wrapped(linked.path, "sh", "-c", "echo x >> clean.txt; git commit -qam x")
    (run,) = runs(linked)
    assert {change.path for change in run.changes} == {b"clean.txt"}
    assert run.git_moved == ["commit"]
    assert not runs(lived_in)


def test_a_worktree_named_by_variables_alone(lived_in: Repo) -> None:
    os.rename(lived_in.at(".git"), lived_in.path.parent / "elsewhere.git")
    names = {"GIT_DIR": str(lived_in.path.parent / "elsewhere.git"), "GIT_WORK_TREE": str(lived_in.path)}
    ended = wrapped(lived_in.path, "sh", "-c", "echo x >> clean.txt; rm dirty.txt", env={**os.environ, **names})
    assert ended.returncode == 0, ended
    (run,) = runs(lived_in)
    assert {change.path: change.undo for change in run.changes} == {b"clean.txt": "restore", b"dirty.txt": "recover"}


def test_wrapping_twice_records_once(lived_in: Repo) -> None:
    wrapped(lived_in.path, CKPT_RUN, "--", "sh", "-c", f"echo x >> clean.txt; {CKPT_RUN} -- rm new.txt")
    (run,) = runs(lived_in)
    assert {change.path for change in run.changes} == {b"clean.txt", b"new.txt"}


def test_a_command_in_another_project_is_a_run_of_that_project(lived_in: Repo) -> None:
    other = Repo(lived_in.path.parent / "other")
    other.write("theirs.txt", "theirs\n")
    wrapped(lived_in.path, "sh", "-c", f"echo x >> clean.txt; cd ../other && {CKPT_RUN} -- rm theirs.txt")
    assert [change.path for run in runs(lived_in) for change in run.changes] == [b"clean.txt"]
    assert [change.path for run in runs(other) for change in run.changes] == [b"theirs.txt"]


def test_two_at_once_are_both_recorded(lived_in: Repo) -> None:
    scripts = [f"echo x > made-{name}; sleep 0.4" for name in ("a", "b", "c")]
    started = [
        subprocess.Popen([CKPT_RUN, "--", "sh", "-c", script], cwd=lived_in.path, stdin=subprocess.DEVNULL)
        for script in scripts
    ]
    assert [one.wait(60) for one in started] == [0, 0, 0]
    found = runs(lived_in)
    assert sorted(run.argv[2].decode() for run in found) == scripts
    for run in found:
        assert b"made-" + run.argv[2][len(b"echo x > made-") :][:1] in {change.path for change in run.changes}
    assert not os.listdir(where(lived_in).runs)


def killed_while_running(repo: Repo, script: str) -> None:
    """A wrapper that is killed with SIGKILL while its command waits; then the command goes on to its end."""
    held = subprocess.Popen(
        [CKPT_RUN, "--", "sh", "-c", f"{script}; echo ready; read line; echo late > late.txt; echo done"],
        cwd=repo.path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert held.stdout is not None
    assert held.stdin is not None
    assert held.stdout.readline() == b"ready\n"
    survey = where(repo).runs
    deadline = time.monotonic() + 10
    while not any(os.path.exists(survey + b"/" + name + b"/survey") for name in os.listdir(survey)):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(held.pid, signal.SIGKILL)
    held.wait(10)
    held.stdin.write(b"\n")
    held.stdin.close()
    held.stdout.read()
    held.stdout.close()


def test_a_run_whose_wrapper_was_killed_is_closed_with_everything_restorable(lived_in: Repo) -> None:
    killed_while_running(lived_in, "rm new.txt clean.txt; echo > dirty.txt; mkdir d; echo x > d/x")
    settings = config.load(os.environb)
    (closed,) = close_interrupted(where(lived_in), os.environb, settings)
    assert closed.state == State.INTERRUPTED
    assert closed.exit_code is None
    undo = {change.path: change.undo for change in closed.changes}
    assert undo == {
        b"new.txt": "recover",
        b"clean.txt": "recover",
        b"dirty.txt": "restore",
        b"d": "remove",
        b"d/x": "remove",
        b"late.txt": "remove",
    }
    with open_store(where(lived_in).folder, create=False) as store:
        for change in closed.changes:
            if change.before.digest:
                assert store.content(change.before.digest) is not None
    assert not os.listdir(where(lived_in).runs)
    assert not close_interrupted(where(lived_in), os.environb, settings)


def test_the_next_run_closes_it(lived_in: Repo) -> None:
    killed_while_running(lived_in, "rm new.txt")
    wrapped(lived_in.path, "true")
    (run,) = runs(lived_in)
    assert run.state == State.INTERRUPTED


def test_a_wrapper_killed_without_a_survey_is_closed_by_what_git_says(lived_in: Repo) -> None:
    killed_while_running(lived_in, "rm new.txt clean.txt; echo > dirty.txt")
    (folder,) = (where(lived_in).runs + b"/" + name for name in os.listdir(where(lived_in).runs))
    os.unlink(folder + b"/survey")
    (closed,) = close_interrupted(where(lived_in), os.environb, config.load(os.environb))
    undo = {change.path: change.undo for change in closed.changes}
    assert undo == {b"new.txt": "recover", b"clean.txt": "recover", b"dirty.txt": "restore", b"late.txt": "remove"}


def test_what_git_does_not_look_at_is_no_secret_without_a_survey(lived_in: Repo) -> None:
    lived_in.git("update-index", "--assume-unchanged", "clean.txt", "tool.sh", "src/a.py")
    killed_while_running(lived_in, "rm clean.txt app.log; echo more >> src/a.py")
    (folder,) = (where(lived_in).runs + b"/" + name for name in os.listdir(where(lived_in).runs))
    os.unlink(folder + b"/survey")
    (closed,) = close_interrupted(where(lived_in), os.environb, config.load(os.environb))
    gaps = {change.path: change.reason for change in closed.changes if change.reason}
    assert gaps == {b"clean.txt": "flagged", b"src/a.py": "flagged", b"app.log": "ignored_left_out"}


@pytest.mark.parametrize("survey", [True, False])
def test_a_record_that_failed_once_is_made_by_the_next_command(
    lived_in: Repo, survey: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first try to close it finds no room in the store; the second does."""
    killed_while_running(lived_in, "rm new.txt; echo x > .gitattributes; rm clean.txt")
    (folder,) = (where(lived_in).runs + b"/" + name for name in os.listdir(where(lived_in).runs))
    if not survey:
        os.unlink(folder + b"/survey")
    from ckpt_run.capture import interrupted
    from ckpt_run.capture.errors import Fault, StoreError

    def full(*_: object) -> None:
        raise StoreError(Fault.STORE_FULL)

    settings = config.load(os.environb)
    with monkeypatch.context() as patch:
        patch.setattr(interrupted, "save", full)
        with pytest.raises(StoreError):
            close_interrupted(where(lived_in), os.environb, settings)
    (closed,) = close_interrupted(where(lived_in), os.environb, settings)
    assert {b"new.txt", b"clean.txt"} <= {change.path for change in closed.changes if change.undo == "recover"}


def test_a_project_removed_whole_with_its_wrapper_is_closed(lived_in: Repo) -> None:
    killed_while_running(lived_in, "rm -rf ../project; mkdir ../project; cd ../project")
    os.unlink(lived_in.at("late.txt")) if os.path.exists(lived_in.at("late.txt")) else None
    (closed,) = close_interrupted(where(lived_in), os.environb, config.load(os.environb))
    assert {b"new.txt", b"dirty.txt"} <= {change.path for change in closed.changes if change.undo == "recover"}


def test_a_damaged_record_is_given_up_and_never_blocks(lived_in: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    killed_while_running(lived_in, "rm new.txt")
    (folder,) = (where(lived_in).runs + b"/" + name for name in os.listdir(where(lived_in).runs))
    os.truncate(folder + b"/spool", 20)
    monkeypatch.setattr(spool, "_BEING_MADE_NS", 0)
    assert not close_interrupted(where(lived_in), os.environb, config.load(os.environb))
    assert not os.listdir(where(lived_in).runs)
    assert Limits().copy_bytes_max


def test_a_run_that_changes_nothing_leaves_no_store(lived_in: Repo) -> None:
    assert wrapped(lived_in.path, "true").returncode == 0
    assert not os.path.exists(where(lived_in).folder + b"/store.db")
    assert not os.listdir(where(lived_in).runs)

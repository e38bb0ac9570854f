"""Odd files and file systems: an undo does it exactly, or says in one sentence why not and changes nothing."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ckpt_run.capture import place
from ckpt_run.capture.errors import Fault, UndoError
from ckpt_run.capture.undo.apply import ChangedSince

from .disk import just_before
from .real import IS_ROOT, Project, fill, small_disk
from .world import World, change_of

NOBODY = 65534


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


@pytest.fixture
def nobodys(world: World) -> Iterator[World]:
    """A world of an ordinary user, and being that user."""
    if not IS_ROOT:
        pytest.skip("only root becomes somebody else")
    world.undo(change_of(world))  # imports all that an undo needs: the interpreter may lie in root's own folder
    folder = tempfile.mkdtemp(prefix="ckpt-test-")
    os.chmod(folder, 0o755)
    room = Path(folder, "room")
    room.mkdir()
    os.chown(room, NOBODY, NOBODY)
    os.setegid(NOBODY)
    os.seteuid(NOBODY)
    try:
        world = World(room)
        yield world
        world.close()
    finally:
        os.seteuid(0)
        os.setegid(0)
        shutil.rmtree(folder)


def as_root(deed: Callable[[], object]) -> None:
    """Do something as root in a test of an ordinary user."""
    os.seteuid(0)
    try:
        deed()
    finally:
        os.seteuid(NOBODY)


def write_all(world: World, data: str, *paths: str) -> None:
    for path in paths:
        world.write(path, data)


# File systems


def test_a_read_only_file_system_is_said_and_the_command_runs_all_the_same(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "4m") as disk:
        project = Project(disk / "project")
        project.run("echo new > a")
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        refused = project.ckpt("undo", "--yes")
        read = project.run("cat a")
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
        assert refused.returncode == 1
        assert "read-only" in refused.stderr
        assert "Nothing was changed" in refused.stderr
        assert (read.returncode, read.stdout) == (0, "new\n")
        assert project.ckpt("undo", "--yes").returncode == 0
        assert (project.top / "a").read_text() == "old\n"


def test_a_full_disk_refuses_the_undo_before_it_writes(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "4m") as disk:
        project = Project(disk / "project")
        (project.top / "big").write_bytes(os.urandom(200_000))
        before = project.snapshot()
        project.run("rm big; echo new > a")
        after = project.snapshot()
        filler = fill(disk)
        refused = project.ckpt("undo", "--yes")
        assert refused.returncode == 1
        assert "couldn't write" in refused.stderr
        assert "No space left on device" in refused.stderr
        assert project.snapshot() == after
        filler.unlink()
        assert project.ckpt("undo", "--yes").returncode == 0
        assert project.snapshot() == before


@pytest.mark.parametrize("room_bytes", [0, 8192, 40_960])
def test_a_full_store_starts_no_command_and_no_undo(tmp_path: Path, project: Project, room_bytes: int) -> None:
    with small_disk(tmp_path / "disk", "1m") as disk:
        project.environment["CKPT_HOME"] = str(disk / "store")
        (project.top / "work").write_bytes(os.urandom(60_000))
        project.run("echo new > a")
        project.run("rm work")
        after = project.snapshot()
        filler = fill(disk)
        with filler.open("r+b") as file:
            file.truncate(max(0, filler.stat().st_size - room_bytes))
        (project.top / "work").write_bytes(os.urandom(70_000))
        refused = project.run("echo newer > a")
        assert refused.returncode == 125
        # Where the last byte is gone it is Git's private index that meets the full disk, and Git's words are given.
        assert "room" in refused.stderr or "Out of diskspace" in refused.stderr
        assert (project.top / "a").read_text() == "new\n"
        (project.top / "work").unlink()
        undo = project.ckpt("undo", "--yes")
        if undo.returncode:
            assert undo.returncode == 1, undo
            assert project.snapshot() == after
        filler.unlink()
        if undo.returncode:
            assert project.ckpt("undo", "--yes").returncode == 0
        assert len((project.top / "work").read_bytes()) == 60_000
        assert project.ckpt("verify").returncode == 0


def test_a_read_only_store_starts_no_command(tmp_path: Path, project: Project) -> None:
    with small_disk(tmp_path / "disk", "1m") as disk:
        project.environment["CKPT_HOME"] = str(disk / "store")
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        refused = project.run("echo new > a")
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
        assert refused.returncode == 125
        assert "cannot be written" in refused.stderr
        assert (project.top / "a").read_text() == "old\n"


@pytest.mark.skipif(not IS_ROOT or shutil.which("chattr") is None, reason="chattr +i needs root")
def test_a_file_that_cannot_be_written_is_named_and_nothing_is_changed(project: Project) -> None:
    project.run("echo new > a; echo new > b")
    after = project.snapshot()
    if subprocess.run(["chattr", "+i", project.top / "b"], check=False, capture_output=True).returncode:
        pytest.skip("the file system knows no immutable files")
    try:
        refused = project.ckpt("undo", "--yes")
    finally:
        subprocess.run(["chattr", "-i", project.top / "b"], check=True)
    assert refused.returncode == 1
    assert "Undo stopped: couldn't write b (Operation not permitted)." in refused.stderr
    assert "Nothing was changed, and the recovery point was kept." in refused.stderr
    assert project.snapshot() == after
    assert project.ckpt("undo", "--yes").returncode == 0


# An ordinary user's rights


def test_a_folder_that_became_read_only_refuses_and_a_later_undo_works(nobodys: World) -> None:
    nobodys.write("folder/a", "old\n")
    nobodys.write("b", "old\n")
    run = nobodys.run(lambda: write_all(nobodys, "new\n", "folder/a", "b"))
    os.chmod(nobodys.at("folder"), 0o555)
    after = nobodys.snapshot()
    with pytest.raises(UndoError) as caught:
        nobodys.undo(run)
    assert (caught.value.fault, caught.value.path) == (Fault.COULD_NOT_WRITE, b"folder/a")
    assert nobodys.snapshot() == after
    os.chmod(nobodys.at("folder"), 0o755)
    nobodys.undo(run)
    assert (nobodys.read("folder/a"), nobodys.read("b")) == (b"old\n", b"old\n")


def test_a_file_of_somebody_else_in_a_sticky_folder_is_written_in_place(nobodys: World) -> None:
    def share() -> None:
        os.mkdir(nobodys.at("shared"))
        os.chmod(nobodys.at("shared"), 0o1777)
        nobodys.write("shared/theirs", "old\n", 0o666)

    as_root(share)

    inode = os.lstat(nobodys.at("shared/theirs")).st_ino
    nobodys.undo(nobodys.run(lambda: write_all(nobodys, "new\n", "shared/theirs", "shared/mine")))
    info = os.lstat(nobodys.at("shared/theirs"))
    assert nobodys.read("shared/theirs") == b"old\n"
    assert (info.st_ino, info.st_uid, stat.S_IMODE(info.st_mode)) == (inode, 0, 0o666)
    assert not nobodys.exists("shared/mine")


def test_a_file_that_somebody_took_over_in_a_sticky_folder_stays_and_nothing_is_changed(nobodys: World) -> None:
    def share() -> None:
        os.mkdir(nobodys.at("shared"))
        os.chmod(nobodys.at("shared"), 0o1777)

    as_root(share)
    nobodys.write("a", "old\n")
    made = nobodys.run(lambda: write_all(nobodys, "new\n", "shared/made", "a"))
    # Root takes the file over: in a sticky folder nobody else can take its name away any more.
    as_root(lambda: os.chown(nobodys.at("shared/made"), 0, 0))
    after = nobodys.snapshot()
    with pytest.raises(UndoError) as caught:
        nobodys.undo(made)
    assert (caught.value.fault, caught.value.path) == (Fault.COULD_NOT_WRITE, b"shared/made")
    assert nobodys.snapshot() == after


# Files in use, and files of many names


def test_a_running_program_of_two_names_is_busy_and_nothing_is_changed(world: World) -> None:
    world.write("tool", "#!/bin/sh\n", 0o755)
    world.write("a", "old\n")
    os.link(world.at("tool"), world.at("tool-too"))
    with open(shutil.which("sleep") or "/bin/sleep", "rb") as file:
        binary = file.read()
    run = world.run(lambda: world.write("tool", binary))
    more = world.run(lambda: world.write("a", "new\n"))
    program = subprocess.Popen([world.at("tool"), "60"])
    try:
        with pytest.raises(UndoError) as caught:
            world.undo(more, run)
    finally:
        program.kill()
        program.wait()
    assert (caught.value.fault, caught.value.cause) == (Fault.COULD_NOT_WRITE, "Text file busy")
    assert (world.read("tool"), world.read("a")) == (binary, b"new\n")
    world.undo(more, run)
    assert world.read("tool-too") == b"#!/bin/sh\n"


def test_names_of_one_file_that_the_command_parted_and_joined_are_put_back(project: Project) -> None:
    (project.top / "one").write_text("one\n")
    os.link(project.top / "one", project.top / "two")
    before = project.snapshot()
    assert project.run("echo more >> one; rm two; echo apart > two; ln a joined").returncode == 0
    assert project.ckpt("undo", "--yes").returncode == 0
    assert project.snapshot() == before


# Swaps between the look and the write


def outside(tmp_path: Path) -> Path:
    file = tmp_path / "outside"
    file.write_text("new\n")
    return file


@pytest.mark.parametrize("door", ["create_private", "exchange", "sync"])
def test_a_file_swapped_for_a_link_is_never_written_through(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, door: str
) -> None:
    target = outside(tmp_path)
    world.write("a", "old\n")
    run = world.run(lambda: world.write("a", "new\n"))

    def swap() -> None:
        os.unlink(world.at("a"))
        os.symlink(target, world.at("a"))

    just_before(monkeypatch, door, swap)
    with pytest.raises((ChangedSince, UndoError)):
        world.undo(run)
    assert target.read_text() == "new\n"
    assert os.readlink(world.at("a")) == os.fsencode(target)
    assert world.stray() == []


@pytest.mark.parametrize("is_link", [True, False])
def test_a_file_of_two_names_swapped_at_the_last_instant_is_not_written_over(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_link: bool
) -> None:
    target = outside(tmp_path)
    world.write("a", "old\n")
    os.link(world.at("a"), world.at("b"))
    run = world.run(lambda: world.write("a", "new\n"))
    real = place.write_over

    def swap_then_write(*arguments: object) -> object:
        monkeypatch.setattr(place, "write_over", real)
        os.unlink(world.at("a"))
        if is_link:
            os.symlink(target, world.at("a"))
        else:
            world.write("a", "mine\n", 0o400)
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(place, "write_over", swap_then_write)
    with pytest.raises((ChangedSince, UndoError)):
        world.undo(run)
    assert target.read_text() == "new\n"
    assert world.read("a") == (b"new\n" if is_link else b"mine\n")
    if not is_link:
        assert stat.S_IMODE(os.lstat(world.at("a")).st_mode) == 0o400
    assert world.read("b") == b"new\n"
    assert world.stray() == []


def test_a_folder_swapped_for_a_link_out_of_the_project_is_not_entered(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    away = tmp_path / "away"
    away.mkdir()
    world.write("src/gone", "old\n")
    run = world.run(lambda: shutil.rmtree(world.at("src")))

    def swap() -> None:
        shutil.rmtree(world.at("src"))
        os.symlink(away, world.at("src"))

    just_before(monkeypatch, "rename_new", swap)
    with pytest.raises((ChangedSince, UndoError)):
        world.undo(run)
    assert list(away.iterdir()) == []

"""An undo writes everything or nothing, and nothing but what the plan says."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ckpt_run.capture import durable
from ckpt_run.capture.errors import Fault, StoreError, UndoError
from ckpt_run.capture.model import Run
from ckpt_run.capture.reasons import Reason
from ckpt_run.capture.undo import rescue
from ckpt_run.capture.undo.apply import Naming, undo
from ckpt_run.capture.undo.decide import resolve
from ckpt_run.capture.undo.items import Choices
from ckpt_run.capture.undo.recover import recover

from .faults.disk import fold_case, just_before
from .faults.world import World, change_of

IS_ROOT = os.geteuid() == 0
NOBODY = 65534


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


def test_everything_a_command_did_is_taken_back(world: World) -> None:
    world.write("modified.txt", "one\ntwo\n", 0o640)
    world.write("deleted/inner.sh", "#!/bin/sh\n", 0o755)
    world.write("mode.sh", "echo\n", 0o755)
    world.write("turned-into-link", "text\n", 0o600)
    world.write("folder-turned-file/inner", "inner\n")
    os.symlink("modified.txt", world.at("link"))
    os.mkdir(world.at("empty"), 0o711)
    before = world.snapshot()

    def command() -> None:
        world.write("modified.txt", "1\n")
        os.unlink(world.at("deleted/inner.sh"))
        os.rmdir(world.at("deleted"))
        os.chmod(world.at("mode.sh"), 0o400)
        os.unlink(world.at("turned-into-link"))
        os.symlink("/etc", world.at("turned-into-link"))
        os.unlink(world.at("folder-turned-file/inner"))
        os.rmdir(world.at("folder-turned-file"))
        world.write("folder-turned-file", "now a file\n")
        os.unlink(world.at("link"))
        world.write("link/deep/created", "created\n")
        os.rmdir(world.at("empty"))
        world.write("new/deep/created", "created\n")

    run = world.run(command)
    after = world.snapshot()
    undone = world.undo(run)
    assert world.snapshot() == before
    assert undone.result == "restored"
    redo = world.store.next_to_redo()
    assert redo is not None
    world.undo(redo, redoes=redo.id)
    assert world.snapshot() == after


# Nothing else is touched


def test_no_other_file_is_written(world: World) -> None:
    run = change_of(world)
    world.write("other", "other\n")
    os.mkdir(world.at("folder"))
    before = {name: os.lstat(world.at(name)) for name in ("other", "folder")}
    world.undo(run)
    assert {name: os.lstat(world.at(name)) for name in ("other", "folder")} == before


def test_permissions_alone_are_put_back_without_writing_the_file(world: World) -> None:
    world.write("a", "text\n", 0o755)
    run = world.run(lambda: os.chmod(world.at("a"), 0o600))
    before = os.lstat(world.at("a"))
    world.undo(run)
    after = os.lstat(world.at("a"))
    assert stat.S_IMODE(after.st_mode) == 0o755
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_names_of_one_file_stay_names_of_one_file(world: World, tmp_path: Path) -> None:
    world.write("a", "old\n")
    os.link(world.at("a"), world.at("b"))
    os.link(world.at("a"), tmp_path / "outside-name")
    run = world.run(lambda: world.write("a", "new\n"))
    world.undo(run)
    assert (world.read("a"), world.read("b")) == (b"old\n", b"old\n")
    assert os.lstat(world.at("a")).st_nlink == 3


def test_a_read_only_file_with_other_names_is_written_and_read_only_again(world: World) -> None:
    world.write("a", "old\n", 0o444)
    os.link(world.at("a"), world.at("b"))

    def command() -> None:
        os.chmod(world.at("a"), 0o644)
        world.write("a", "new\n")
        os.chmod(world.at("a"), 0o444)

    world.undo(world.run(command))
    assert world.snapshot() == {b"a": ("file", 0o444, b"old\n"), b"b": ("file", 0o444, b"old\n")}


def test_a_program_that_runs_is_replaced_all_the_same(world: World) -> None:
    shutil.copy(shutil.which("sleep") or "/bin/sleep", os.fsdecode(world.at("tool")))
    run = world.run(lambda: os.chmod(world.at("tool"), 0o700) or world.write("tool", b"#!/bin/sh\n"))
    old = world.store.content(run.changes[0].before.digest or b"")
    world.write("tool", old or b"", 0o755)
    program = subprocess.Popen([world.at("tool"), "30"])
    second = None
    try:
        second = world.run(lambda: os.unlink(world.at("tool")))
        world.undo(second)
        assert world.read("tool") == old
    finally:
        program.kill()
        program.wait()


def test_extended_attributes_of_the_replaced_file_are_kept(world: World) -> None:
    if not hasattr(os, "setxattr"):
        pytest.skip("no extended attributes here")
    run = change_of(world)
    try:
        os.setxattr(world.at("a"), b"user.note", b"mine")
    except OSError:
        pytest.skip("the file system keeps no attributes")
    world.undo(run)
    assert os.getxattr(world.at("a"), b"user.note") == b"mine"


@pytest.mark.skipif(not IS_ROOT, reason="only root gives files away")
def test_the_owner_stays(world: World) -> None:
    world.write("a", "old\n")
    os.chown(world.at("a"), NOBODY, NOBODY)
    run = world.run(lambda: world.write("a", "new\n"))
    world.undo(run)
    assert os.lstat(world.at("a")).st_uid == NOBODY


def test_odd_names_are_put_back(world: World) -> None:
    names = [b"new\nline", b"tab\there", b'quo"te', b"\xff\xfe", b"-dash", b"*glob[x]", b" space ", b"n" * 255]
    for name in names:
        with open(os.path.join(world.top, name), "wb") as file:
            file.write(name)
    before = world.snapshot()
    run = world.run(lambda: [os.unlink(os.path.join(world.top, name)) for name in names])
    world.undo(run)
    assert world.snapshot() == before


def test_a_read_only_folder_of_the_plan_is_writable_only_meanwhile(world: World) -> None:
    world.write("sealed/a", "old\n")
    os.chmod(world.at("sealed"), 0o555)

    def command() -> None:
        os.chmod(world.at("sealed"), 0o755)
        world.write("sealed/a", "new\n")
        world.write("sealed/b", "new\n")

    run = world.run(command)
    world.undo(run)
    assert world.snapshot() == {b"sealed": ("folder", 0o555), b"sealed/a": ("file", 0o644, b"old\n")}
    redo = world.store.next_to_redo()
    assert redo is not None
    world.undo(redo, redoes=redo.id)
    assert world.read("sealed/b") == b"new\n"
    os.chmod(world.at("sealed"), 0o700)


def test_a_folder_that_the_command_sealed_is_opened_again(world: World) -> None:
    world.write("sealed/a", "old\n")

    def command() -> None:
        world.write("sealed/a", "new\n")
        os.chmod(world.at("sealed"), 0o555)

    world.undo(world.run(command))
    assert world.snapshot() == {b"sealed": ("folder", 0o755), b"sealed/a": ("file", 0o644, b"old\n")}


# Failures


def refused(world: World, run: Run) -> UndoError:
    before, inode = world.snapshot(), os.lstat(world.at("a")).st_ino
    with pytest.raises(UndoError) as caught:
        world.undo(run)
    assert world.snapshot() == before
    assert os.lstat(world.at("a")).st_ino == inode, "a roll-back brings the very file back"
    assert world.store.open_undos() == []
    return caught.value


@pytest.mark.skipif(IS_ROOT, reason="root writes everywhere")
def test_a_folder_that_refuses_changes_nothing_and_names_the_file(world: World) -> None:
    world.write("a", "old\n")
    world.write("ro/b", "old\n")

    def command() -> None:
        world.write("a", "new\n")
        world.write("ro/b", "new\n")

    run = world.run(command)
    os.chmod(world.at("ro"), 0o555)
    error = refused(world, run)
    os.chmod(world.at("ro"), 0o755)
    assert (error.fault, error.path, error.cause) == (Fault.COULD_NOT_WRITE, b"ro/b", os.strerror(errno.EACCES))


@pytest.mark.skipif(not IS_ROOT or shutil.which("chattr") is None, reason="chattr +i needs root")
@pytest.mark.parametrize("path", ["b", "z/b"])
def test_an_immutable_file_changes_nothing_and_is_named(world: World, path: str) -> None:
    world.write("a", "old\n")
    world.write(path, "old\n")

    def command() -> None:
        world.write("a", "new\n")
        world.write(path, "new\n")

    run = world.run(command)
    if subprocess.run(["chattr", "+i", world.at(path)], check=False, capture_output=True).returncode:
        pytest.skip("the file system knows no immutable files")
    try:
        error = refused(world, run)
    finally:
        subprocess.run(["chattr", "-i", world.at(path)], check=True)
    assert (error.fault, error.path, error.cause) == (
        Fault.COULD_NOT_WRITE,
        path.encode(),
        os.strerror(errno.EPERM),
    )
    world.undo(run)
    assert world.read(path) == b"old\n"


def test_no_room_for_the_whole_is_said_before_anything_is_written(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = change_of(world)
    room = os.fstatvfs(world.tree.fd)
    full = os.statvfs_result((room.f_bsize, room.f_frsize, room.f_blocks, 0, 0, *list(room)[5:]))
    monkeypatch.setattr(os, "fstatvfs", lambda _: full)
    error = refused(world, run)
    assert (error.fault, error.path, error.cause) == (Fault.COULD_NOT_WRITE, b"a", os.strerror(errno.ENOSPC))


def test_a_read_only_project_is_said(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    run = change_of(world)
    room = os.fstatvfs(world.tree.fd)
    sealed = os.statvfs_result((*list(room)[:8], room.f_flag | os.ST_RDONLY, room.f_namemax))
    monkeypatch.setattr(os, "fstatvfs", lambda _: sealed)
    assert refused(world, run).fault == Fault.READ_ONLY_PROJECT


def test_a_store_that_cannot_close_the_record_takes_the_undo_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = change_of(world)
    before = world.snapshot()

    def full(*_: object) -> None:
        raise StoreError(Fault.STORE_FULL)

    monkeypatch.setattr(world.store, "finish_undo", full)
    with pytest.raises(StoreError):
        world.undo(run)
    assert world.snapshot() == before
    assert world.store.open_undos() == []


def test_ctrl_c_in_the_middle_takes_the_undo_back(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    run = change_of(world)
    before = world.snapshot()

    def interrupt() -> None:
        raise KeyboardInterrupt

    just_before(monkeypatch, "exchange", interrupt)
    with pytest.raises(KeyboardInterrupt):
        world.undo(run)
    assert world.snapshot() == before
    assert world.store.open_undos() == []


def test_where_names_cannot_be_swapped_a_look_and_a_rename_do(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable, "_rename_flags", lambda *_: errno.ENOSYS)
    world.write("a", "old\n")
    world.write("gone", "old\n")

    def command() -> None:
        world.write("a", "new\n")
        world.write("new/b", "new\n")
        os.unlink(world.at("gone"))

    before = world.snapshot()
    run = world.run(command)
    world.undo(run)
    assert world.snapshot() == before
    assert world.stray() == []


def test_a_case_only_rename_is_taken_back_where_case_is_folded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.write("readme", "text\n")
    world.write("src/a", "inner\n")
    before = world.snapshot()

    def command() -> None:
        os.rename(world.at("readme"), world.at("README"))
        os.rename(world.at("src"), world.at("Src"))

    run = world.run(command)
    after = world.snapshot()
    with monkeypatch.context() as patch:
        fold_case(patch)
        assert world.tree.status(b"readme") is not None, "the old name answers too"
        world.undo(run)
        assert world.snapshot() == before
        redo = world.store.next_to_redo()
        assert redo is not None
        world.undo(redo, redoes=redo.id)
    assert world.snapshot() == after


# Redo, records, locks


def test_undo_and_redo_in_any_order_end_where_they_should(world: World) -> None:
    world.write("a", "one\n")
    first = world.run(lambda: world.write("a", "two\n"))
    second = world.run(lambda: world.write("b", "new\n"))
    after = world.snapshot()
    for _ in range(2):
        world.undo(second)
        world.undo(first)
        assert world.snapshot() == {b"a": ("file", 0o644, b"one\n")}
        for run in (first, second):
            redo = world.store.next_to_redo()
            assert redo is not None
            assert redo.undoes == [run.id]
            world.undo(redo, redoes=redo.id)
        assert world.snapshot() == after
        assert world.store.next_to_redo() is None


def test_a_redo_meets_later_edits_with_the_same_care(world: World) -> None:
    lines = [f"line {number}\n" for number in range(12)]
    run = change_of(world, old="".join(lines), new="".join(["command\n", *lines[1:]]))
    undone = world.undo(run)
    world.write("a", "".join([*lines[:11], "mine\n"]))
    redo = world.store.find(undone.run_id or "")[1][0]
    world.undo(redo, redoes=redo.id)
    assert world.read("a").decode() == "".join(["command\n", *lines[1:11], "mine\n"])


def test_a_large_file_is_rescued_beside_the_store_while_it_is_replaced(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rescue, "STORED_BYTES_MAX", 100)
    run = world.run(lambda: world.write("a", "x" * 1000))
    before = world.snapshot()

    def broken(*_: object) -> None:
        raise StoreError(Fault.STORE_FULL)

    with monkeypatch.context() as patch:
        patch.setattr(world.store, "finish_undo", broken)
        with pytest.raises(StoreError):
            world.undo(run)
    assert world.snapshot() == before
    undone = world.undo(run)
    assert world.snapshot() == {}
    assert world.store.find(undone.run_id or "")[1][0].changes[0].reason == Reason.TOO_LARGE
    assert os.listdir(os.path.join(world.folder, b"rescue")) == []


@pytest.mark.parametrize(
    ("name", "share", "fault"),
    [
        (b"undo.lock", durable.Share.ALONE, Fault.UNDO_IN_PROGRESS),
        (b"runs.lock", durable.Share.TOGETHER, Fault.RUN_IN_PROGRESS),
    ],
)
def test_an_undo_is_refused_while_another_or_a_run_goes_on(world: World, name: bytes, share: int, fault: str) -> None:
    run = change_of(world)
    lock = durable.lock(os.path.join(world.folder, name), share, wait=False)
    assert lock is not None
    with lock:
        assert refused(world, run).fault == fault
    world.undo(run)
    assert world.read("a") == b"old\n"


def test_nothing_is_undone_over_an_undo_that_did_not_end(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    run = change_of(world)
    with monkeypatch.context() as patch:
        patch.setattr(world.store, "finish_undo", lambda *_: None)
        world.undo(run)
    assert len(world.store.open_undos()) == 1
    other = world.run(lambda: world.write("b", "new\n"))
    with pytest.raises(UndoError) as caught:
        world.undo(other)
    assert caught.value.fault == Fault.ROLL_BACK_FAILED
    assert [one.result for one in recover(world.store, world.tree)] == ["forward"]
    assert world.store.is_undone(run.id)
    world.undo(other)


def test_progress_counts_every_step(world: World) -> None:
    run = world.run(lambda: [world.write(name, "new\n") for name in ("a", "b", "c")])
    seen: list[tuple[int, int]] = []
    decision = resolve(world.plan(run), Choices())
    naming = Naming("progress", (b"ckpt", b"undo"), world.top)
    undo(decision, world.store, world.tree, world.contents, naming, progress=lambda *step: seen.append(step))
    assert seen == [(1, 3), (2, 3), (3, 3)]

"""Whatever fails, at whatever operation: the project is wholly as before the undo or wholly as after it."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from ckpt_run.capture.errors import CkptError, Fault, UndoError
from ckpt_run.capture.model import Run
from ckpt_run.capture.undo.apply import ChangedSince
from ckpt_run.capture.undo.recover import recover

from .disk import Died, FaultyDisk, at, full_from, nothing
from .world import Snapshot, World


def lived_in(world: World) -> Run:
    """A command that turns each kind of entry into another one, or changes it."""
    world.write("modified", "one\ntwo\n" * 40, 0o640)
    world.write("deleted/inner", "inner\n")
    world.write("mode", "echo\n", 0o755)
    world.write("to-link", "text\n", 0o600)
    world.write("to-file/inner", "inner\n")
    world.write("hard", "one inode, two names\n")
    world.write("readonly/inner", "inner\n")
    os.chmod(world.at("readonly"), 0o555)
    os.link(world.at("hard"), world.at("hard-too"))
    os.symlink("modified", world.at("link"))
    os.symlink("gone", world.at("to-folder"))
    world.write("untouched", "never written\n")

    def command() -> None:
        world.write("modified", "1\n")
        shutil.rmtree(world.at("deleted"))
        os.chmod(world.at("mode"), 0o600)
        os.unlink(world.at("to-link"))
        os.symlink("/etc", world.at("to-link"))
        shutil.rmtree(world.at("to-file"))
        world.write("to-file", "now a file\n")
        world.write("hard", "both names changed\n" * 300)
        os.chmod(world.at("readonly"), 0o755)
        world.write("readonly/inner", "changed\n")
        os.unlink(world.at("link"))
        os.symlink("untouched", world.at("link"))
        os.unlink(world.at("to-folder"))
        world.write("to-folder/deep/created", "created\n")
        world.write("new/created", "created\n")

    return world.run(command)


class Template:
    """One lived-in world, copied for each try: `before` the command, `after` it."""

    def __init__(self, room: Path) -> None:
        self.room = room
        world = World(room / "template")
        self.run_id = lived_in(world).id
        self.after = world.snapshot()
        world.undo(world.store.find(self.run_id)[1][0])
        self.before = world.snapshot()
        redo = world.store.next_to_redo()
        assert redo is not None
        world.undo(redo, redoes=redo.id)
        assert world.snapshot() == self.after
        world.close()
        self.tries = 0

    def world(self) -> World:
        """A fresh copy, after the command. Names that share an inode share it again."""
        self.tries += 1
        room = self.room / f"try{self.tries}"
        shutil.copytree(self.room / "template", room, symlinks=True)
        os.unlink(room / "project" / "hard-too")
        os.link(room / "project" / "hard", room / "project" / "hard-too")
        world = World(room, id_prefix=f"t{self.tries}")
        world.runs = 100
        return world

    def forget(self, world: World) -> None:
        world.close()
        for folder, _, _ in os.walk(os.path.dirname(world.top)):
            os.chmod(folder, 0o700)
        shutil.rmtree(os.path.dirname(world.top))


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    return Template(tmp_path_factory.mktemp("faults"))


def attempt(template: Template, script: Callable[[int, str], int | str | None]) -> tuple[World, FaultyDisk, object]:
    """Undo on a disk that follows the script; gives what was raised, or None."""
    world = template.world()
    plan = world.plan(world.store.find(template.run_id)[1][0])
    raised: object = None
    with FaultyDisk(script) as disk:
        try:
            world.apply(plan)
        except (CkptError, ChangedSince, Died) as problem:
            raised = problem
    return world, disk, raised


def positions(template: Template) -> int:
    world, disk, raised = attempt(template, nothing)
    assert raised is None
    assert world.snapshot() == template.before
    assert world.read("hard-too") == world.read("hard") == b"one inode, two names\n"
    template.forget(world)
    assert disk.count > 60, disk.names
    return disk.count


def is_whole(world: World, template: Template) -> Snapshot:
    """Assert that no temporary file is left, no undo open, and the tree is one of the two; give it."""
    assert world.stray() == []
    assert world.store.open_undos() == []
    found = world.snapshot()
    assert found in (template.before, template.after)
    assert world.read("hard-too") == world.read("hard")
    assert os.stat(world.at("hard")).st_ino == os.stat(world.at("hard-too")).st_ino
    return found


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EACCES], ids=["EIO", "ENOSPC", "EACCES"])
def test_an_error_at_any_operation_changes_nothing_or_nothing_of_the_result(template: Template, error: int) -> None:
    failed = 0
    for position in range(1, positions(template) + 1):
        world, disk, raised = attempt(template, at(position, error))
        told = (position, disk.names[position - 1], raised)
        if raised is not None:
            failed += 1
            assert isinstance(raised, CkptError), told
            assert raised.fault != Fault.ROLL_BACK_FAILED, told
            assert is_whole(world, template) == template.after, told
        else:
            assert is_whole(world, template) == template.before, told
        template.forget(world)
    assert failed > 50


@pytest.mark.parametrize("order", ["die", "die after"])
def test_a_crash_at_any_operation_is_recovered(template: Template, order: str) -> None:
    outcomes = set()
    for position in range(1, positions(template) + 1):
        world, disk, raised = attempt(template, at(position, order))
        assert isinstance(raised, Died)
        recovered = recover(world.store, world.tree)
        assert [one.failures for one in recovered if one.failures] == [], (position, disk.names[position - 1])
        assert [one.kept for one in recovered if one.kept] == [], (position, disk.names[position - 1])
        whole = is_whole(world, template)
        outcomes.add(whole == template.before)
        assert recover(world.store, world.tree) == []
        template.forget(world)
    assert outcomes == {True, False}


def test_a_disk_that_is_full_from_some_operation_on_changes_nothing(template: Template) -> None:
    for position in range(1, positions(template) + 1):
        world, disk, raised = attempt(template, full_from(position))
        if isinstance(raised, UndoError) and raised.fault == Fault.ROLL_BACK_FAILED:
            recovered = recover(world.store, world.tree)
            assert [one.failures for one in recovered] == [()], (position, disk.names[position - 1])
        found = is_whole(world, template)
        assert (found == template.before) == (raised is None), (position, disk.names[position - 1])
        template.forget(world)


def test_a_crash_of_the_recovery_itself_is_recovered(template: Template) -> None:
    count = positions(template)
    for position in range(count // 2, count, 7):
        inner = 0
        while True:
            inner += 1
            world, _, raised = attempt(template, at(position, "die"))
            assert isinstance(raised, Died)
            with FaultyDisk(at(inner, "die after")) as disk, suppress(Died):
                recover(world.store, world.tree)
            recover(world.store, world.tree)
            is_whole(world, template)
            template.forget(world)
            if disk.count < inner:
                break
            inner += 4

"""An undo writes everything or nothing, and nothing but what the plan says."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from .faults.world import World


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

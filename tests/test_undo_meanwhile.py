"""Somebody writes while an undo goes on: what they wrote stays, and no write leaves the project."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ckpt_run.capture import place
from ckpt_run.capture.errors import UndoError
from ckpt_run.capture.reasons import Reason
from ckpt_run.capture.undo.apply import ChangedSince
from ckpt_run.capture.undo.items import Choices

from .faults.disk import just_before
from .faults.world import World, change_of


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


def test_a_file_changed_after_the_plan_was_shown_stops_everything(world: World) -> None:
    world.write("b", "old\n")
    run = change_of(world)
    plan = world.plan(run)
    world.write("a", "mine\n")
    with pytest.raises(ChangedSince) as caught:
        world.apply(plan)
    assert [(held.path, held.reason) for held in caught.value.held] == [(b"a", Reason.CHANGED_SINCE)]
    assert world.read("a") == b"mine\n"


def test_undo_anyway_stops_when_the_file_changed_once_more(world: World) -> None:
    world.write("a", b"\0old")
    run = world.run(lambda: world.write("a", b"\0new"))
    world.write("a", b"\0mine")
    plan = world.plan(run)
    world.write("a", b"\0mine again")
    with pytest.raises(ChangedSince):
        world.apply(plan, choices=Choices(force=frozenset([b"a"])))
    assert world.read("a") == b"\0mine again"


@pytest.mark.parametrize("door", ["create_private", "exchange"])
def test_a_save_at_the_last_instant_is_not_lost(world: World, monkeypatch: pytest.MonkeyPatch, door: str) -> None:
    world.write("first", "old\n")
    world.write("a", "old\n")

    def command() -> None:
        world.write("first", "new\n")
        world.write("a", "new\n")

    run = world.run(command)
    just_before(monkeypatch, door, lambda: world.write("a", "mine\n"))
    with pytest.raises(ChangedSince):
        world.undo(run)
    assert (world.read("a"), world.read("first")) == (b"mine\n", b"new\n")
    assert world.stray() == []


def test_a_save_over_a_file_about_to_be_removed_is_not_lost(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    run = world.run(lambda: world.write("new", "new\n"))
    just_before(monkeypatch, "rename_new", lambda: world.write("new", "mine\n"))
    with pytest.raises(ChangedSince):
        world.undo(run)
    assert world.snapshot() == {b"new": ("file", 0o644, b"mine\n")}


def test_a_file_made_where_one_comes_back_is_not_lost(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.write("a", "old\n")
    run = world.run(lambda: os.unlink(world.at("a")))
    just_before(monkeypatch, "rename_new", lambda: world.write("a", "mine\n"))
    with pytest.raises(ChangedSince):
        world.undo(run)
    assert world.snapshot() == {b"a": ("file", 0o644, b"mine\n")}


def test_a_save_through_a_descriptor_that_was_open_is_not_lost(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    run = change_of(world)
    with open(world.at("a"), "ab") as editor:
        real = place.drop

        def save_then_drop(*arguments: object) -> None:
            editor.write(b"mine\n")
            editor.flush()
            monkeypatch.setattr(place, "drop", real)
            real(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(place, "drop", save_then_drop)
        with pytest.raises(ChangedSince):
            world.undo(run)
    assert world.read("a") == b"new\nmine\n"
    assert world.stray() == []


@pytest.mark.parametrize("door", ["create_private", "exchange", "rename_new"])
def test_a_link_put_in_a_parents_place_is_never_followed(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, door: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a").write_text("new\n")
    world.write("src/a", "old\n")
    run = world.run(lambda: world.write("src/a", "new\n") or world.write("src/b", "new\n"))

    def swap() -> None:
        os.rename(world.at("src"), world.at("aside"))
        os.symlink(outside, world.at("src"))

    just_before(monkeypatch, door, swap)
    with pytest.raises((ChangedSince, UndoError)):
        world.undo(run)
    assert [(path.name, path.read_text()) for path in outside.iterdir()] == [("a", "new\n")]
    assert world.read("aside/a") == b"new\n"


def test_a_folder_moved_out_of_the_project_is_not_written_to(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    world.write("src/a", "old\n")
    run = world.run(lambda: world.write("src/a", "new\n"))
    just_before(monkeypatch, "exchange", lambda: os.rename(world.at("src"), tmp_path / "moved"))
    with pytest.raises((ChangedSince, UndoError)):
        world.undo(run)
    assert (tmp_path / "moved" / "a").read_text() == "new\n"

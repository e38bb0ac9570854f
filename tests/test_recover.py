"""After a crash the next command ends the undo, and nobody's bytes are lost on the way."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from ckpt_run.capture import durable
from ckpt_run.capture.errors import Fault, UndoError
from ckpt_run.capture.undo.recover import Result, is_mixture, recover

from .faults.disk import Died, FaultyDisk
from .faults.world import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


def die_at(world: World, name: str, number: int, order: str, *files: str) -> None:
    """Change the files by a command, and die at the n-th operation of that name of its undo."""
    for file in files:
        world.write(file, f"old {file}\n")
    run = world.run(lambda: [world.write(file, f"new {file}\n") for file in files])
    plan = world.plan(run)
    seen = 0

    def script(_: int, operation: str) -> str | None:
        nonlocal seen
        seen += operation == name
        return order if seen == number and operation == name else None

    with FaultyDisk(script) as disk, suppress(Died):
        world.apply(plan)
    assert disk.is_dead, disk.names


def sibling(world: World) -> bytes:
    (path,) = world.stray()
    return os.path.join(world.top, path)


def kept_bytes(path: bytes) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def test_nothing_open_is_nothing_to_do(world: World) -> None:
    assert recover(world.store, world.tree) == []


def test_an_undo_that_is_alive_is_left_alone(world: World) -> None:
    die_at(world, "rename", 1, "die", "a")
    lock = durable.lock(os.path.join(world.folder, b"undo.lock"), durable.Share.ALONE, wait=False)
    assert lock is not None
    with lock:
        assert recover(world.store, world.tree) == []
    assert len(world.store.open_undos()) == 1
    assert [one.result for one in recover(world.store, world.tree)] == [Result.BACK]


def test_what_only_lacks_its_closing_goes_forward_and_can_be_redone(world: World) -> None:
    die_at(world, "unlink", 1, "die", "a")
    assert world.read("a") == b"old a\n"
    assert [one.result for one in recover(world.store, world.tree)] == [Result.FORWARD]
    assert world.snapshot() == {b"a": ("file", 0o644, b"old a\n")}
    redo = world.store.next_to_redo()
    assert redo is not None
    world.undo(redo, redoes=redo.id)
    assert world.read("a") == b"new a\n"


def test_a_half_written_sibling_goes(world: World) -> None:
    die_at(world, "write", 2, "die after", "a", "b")
    assert len(world.stray()) == 2
    assert [(one.result, one.kept) for one in recover(world.store, world.tree)] == [(Result.BACK, ())]
    assert world.snapshot() == {b"a": ("file", 0o644, b"new a\n"), b"b": ("file", 0o644, b"new b\n")}


def test_a_save_after_the_crash_stays_and_what_was_meant_for_the_path_is_kept(world: World) -> None:
    die_at(world, "rename", 2, "die", "a", "b")
    assert world.read("a") == b"old a\n"
    world.write("a", "mine\n")
    (recovered,) = recover(world.store, world.tree)
    assert recovered.result == Result.BACK
    assert [(kept.path, kept_bytes(kept.rescue)) for kept in recovered.kept] == [(b"a", b"new a\n")]
    assert world.snapshot() == {b"a": ("file", 0o644, b"mine\n"), b"b": ("file", 0o644, b"new b\n")}
    assert world.store.open_undos() == []


def test_a_save_swapped_out_in_the_instant_of_the_crash_comes_back(world: World) -> None:
    die_at(world, "rename", 1, "die after", "a")
    # What stood at the path when the two were swapped was not what had been looked at: somebody had just saved.
    with open(sibling(world), "wb") as file:
        file.write(b"mine\n")
    (recovered,) = recover(world.store, world.tree)
    assert world.snapshot() == {b"a": ("file", 0o644, b"mine\n")}
    assert [(kept.path, kept_bytes(kept.rescue)) for kept in recovered.kept] == [(b"a", b"new a\n")]


def test_bytes_that_nobody_knows_in_a_sibling_are_kept_before_it_goes(world: World) -> None:
    die_at(world, "rename", 1, "die after", "a")
    with open(sibling(world), "wb") as file:
        file.write(b"theirs\n")
    world.write("a", "mine\n")
    (recovered,) = recover(world.store, world.tree)
    assert world.snapshot() == {b"a": ("file", 0o644, b"mine\n")}
    assert {kept_bytes(kept.rescue) for kept in recovered.kept} == {b"new a\n", b"theirs\n"}


def test_a_link_put_in_a_parents_place_after_the_crash_is_not_followed(world: World, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a").write_text("old src/a\n")
    die_at(world, "unlink", 1, "die", "src/a", "src/b")
    os.rename(world.at("src"), world.at("aside"))
    os.symlink(outside, world.at("src"))
    (recovered,) = recover(world.store, world.tree)
    assert recovered.result == Result.BACK
    assert [path.name for path in outside.iterdir()] == ["a"]
    assert (outside / "a").read_text() == "old src/a\n"
    assert {kept_bytes(kept.rescue) for kept in recovered.kept} == {b"new src/a\n", b"new src/b\n"}


def test_a_file_somebody_put_into_a_folder_that_the_undo_made_stays(world: World) -> None:
    world.write("src/a", "old\n")
    run = world.run(lambda: [os.unlink(world.at("src/a")), os.rmdir(world.at("src"))])
    plan = world.plan(run)
    died = FaultyDisk(lambda _, name: "die" if name == "rename" else None)
    with died, suppress(Died):
        world.apply(plan)
    world.write("src/mine", "mine\n")
    (recovered,) = recover(world.store, world.tree)
    assert world.read("src/mine") == b"mine\n"
    assert not world.exists("src/a")
    assert recovered.result == Result.BACK
    assert world.store.open_undos() == []


def refusing(path: bytes, door: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real: Callable[..., object] = getattr(durable, door)

    def refuse(source: bytes, target: bytes, *, folder: int) -> object:
        if path in (source, target):
            raise PermissionError(13, os.strerror(13))
        return real(source, target, folder=folder)

    monkeypatch.setattr(durable, door, refuse)


def test_a_roll_back_that_fails_says_how_each_file_stands_and_is_finished_later(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        world.write(name, f"old {name}\n")
    run = world.run(lambda: [world.write(name, f"new {name}\n") for name in ("a", "b", "c")])
    with monkeypatch.context() as patch:
        calls: list[bytes] = []
        real = durable.exchange

        def exchange(one: bytes, other: bytes, *, folder: int) -> bool:
            calls.append(other)
            if len(calls) >= 3 and other in {b"a", b"c"}:  # the third swap forward, and a's way back
                raise PermissionError(13, os.strerror(13))
            return real(one, other, folder=folder)

        patch.setattr(durable, "exchange", exchange)
        with pytest.raises(UndoError) as caught:
            world.undo(run)
        assert caught.value.fault == Fault.ROLL_BACK_FAILED
        failures = caught.value.facts["failures"]
        assert isinstance(failures, tuple)
        assert [(one.path, one.cause, one.stands) for one in failures] == [(b"a", os.strerror(13), "after")]
        (still,) = recover(world.store, world.tree)
        assert still.result == Result.OPEN
        assert [one.path for one in still.failures] == [b"a"]
        assert len(world.store.open_undos()) == 1
    assert [one.result for one in recover(world.store, world.tree)] == [Result.BACK]
    assert [world.read(name) for name in ("a", "b", "c")] == [b"new a\n", b"new b\n", b"new c\n"]
    assert world.stray() == []


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"new", True),
        (b"old text", True),
        (b"new text", True),  # the new bytes are over the old ones, not yet cut
        (b"nld text", True),
        (b"new texts", False),
        (b"mine text", False),
        (b"ne", False),
    ],
)
def test_a_mixture_of_old_and_new_is_told_from_somebodys_bytes(data: bytes, expected: bool) -> None:
    assert is_mixture(data, b"old text", b"new") is expected

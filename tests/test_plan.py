"""What an undo would do: edits made before, between and after the commands survive it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ckpt_run.capture.errors import Fault, UndoError
from ckpt_run.capture.model import ABSENT, By, Change, Entry, Kind, Run
from ckpt_run.capture.reasons import Reason
from ckpt_run.capture.undo.decide import resolve
from ckpt_run.capture.undo.items import Action, Choices, Plan

from .faults.world import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


def lines(**changed: str) -> str:
    return "".join(changed.get(f"l{number}", f"line {number}") + "\n" for number in range(12))


def actions(plan: Plan) -> dict[bytes, str]:
    return {item.path: item.action for item in plan.items}


def reasons(plan: Plan) -> dict[bytes, str]:
    return {held.path: held.reason for held in plan.held}


# The fold


def test_planning_writes_nothing(world: World) -> None:
    world.write("a", lines())
    run = world.run(lambda: world.write("a", lines(l1="command")))
    world.write("a", lines(l1="command", l9="mine"))
    before = {path: os.lstat(os.path.join(world.top, path)) for path in world.snapshot()}
    plan = world.plan(run)
    assert actions(plan) == {b"a": Action.MERGE}
    assert {path: os.lstat(os.path.join(world.top, path)) for path in world.snapshot()} == before


def test_an_edit_made_between_two_runs_survives_the_undo_of_both(world: World) -> None:
    world.write("a", lines())
    first = world.run(lambda: world.write("a", lines(l1="first")))
    world.write("a", lines(l1="first", l6="mine"))
    second = world.run(lambda: world.write("a", lines(l1="first", l6="mine", l11="second")))
    world.undo(second, first)
    assert world.read("a").decode() == lines(l6="mine")


def test_undo_of_a_run_in_the_middle_keeps_what_came_before_and_after(world: World) -> None:
    world.write("a", lines())
    world.run(lambda: world.write("a", lines(l1="first")))
    middle = world.run(lambda: world.write("a", lines(l1="first", l6="second")))
    world.run(lambda: world.write("a", lines(l1="first", l6="second", l11="third")))
    world.undo(middle)
    assert world.read("a").decode() == lines(l1="first", l11="third")


def test_a_file_created_by_one_run_and_changed_by_the_next_goes(world: World) -> None:
    first = world.run(lambda: world.write("new", "one\n"))
    second = world.run(lambda: world.write("new", "two\n"))
    plan = world.plan(second, first)
    assert actions(plan) == {b"new": Action.REMOVE}
    world.apply(plan)
    assert not world.exists("new")


def test_a_file_deleted_by_one_run_and_made_again_by_the_next_is_back_as_it_was(world: World) -> None:
    world.write("a", "old\n", 0o600)
    first = world.run(lambda: os.unlink(world.at("a")))
    second = world.run(lambda: world.write("a", "new\n", 0o644))
    before = world.plan(second, first)
    world.apply(before)
    assert world.snapshot() == {b"a": ("file", 0o600, b"old\n")}


def test_permissions_changed_by_me_stay_while_the_content_goes_back(world: World) -> None:
    world.write("a", "old\n", 0o644)
    run = world.run(lambda: world.write("a", "new\n"))
    os.chmod(world.at("a"), 0o755)
    world.undo(run)
    assert world.snapshot() == {b"a": ("file", 0o755, b"old\n")}


def test_a_gap_is_left_and_hides_what_is_older(world: World) -> None:
    world.write("a", "one\n")
    first = world.run(lambda: world.write("a", "two\n"))
    second = world.run(lambda: world.write("a", "three\n"), gaps=[b"a"])
    third = world.run(lambda: world.write("a", "four\n"))
    plan = world.plan(third, second, first)
    assert [(left.path, left.reason) for left in plan.left] == [(b"a", Reason.TOO_LARGE)]
    assert world.apply(plan).result == "partial"
    assert world.read("a") == b"three\n"


def test_what_is_back_already_is_no_work(world: World) -> None:
    world.write("a", "old\n")
    run = world.run(lambda: world.write("a", "new\n"))
    world.write("a", "old\n")
    plan = world.plan(run)
    assert (plan.items, plan.held, plan.already) == ((), (), (b"a",))
    assert world.apply(plan).result == "nothing"


def test_changes_that_only_time_speaks_for_are_named(world: World) -> None:
    traced = world.run(lambda: world.write("traced", "x\n"), by=By.TRACED)
    by_time = world.run(lambda: world.write("by-time", "x\n"))
    assert world.plan(by_time, traced).by_time == (b"by-time",)


def test_a_blob_without_digest_is_restored_when_its_bytes_are_had(world: World) -> None:
    world.write("a", "new\n")
    new = world.tree.entry(b"a", limit_bytes=100)
    blob = Entry(Kind.FILE, mode=0o644, oid="1" * 40)
    run = Run("blob", [b"x"], world.top, 1, changes=[Change(b"a", blob, new)])
    world.store.record_run(run, {})
    assert reasons(world.plan(run)) == {b"a": Reason.BYTES_LOST}
    known = world.contents
    world.contents = lambda entry: b"from git\n" if entry.oid else known(entry)  # type: ignore[method-assign]
    world.undo(run)
    assert world.read("a") == b"from git\n"


# Held


def test_overlapping_text_is_left_and_the_rest_is_undone(world: World) -> None:
    world.write("a", lines())
    world.write("b", "old\n")

    def command() -> None:
        world.write("a", lines(l5="command"))
        world.write("b", "new\n")

    run = world.run(command)
    world.write("a", lines(l5="mine"))
    undone = world.undo(run)
    assert undone.result == "partial"
    assert [(held.path, held.reason) for held in undone.kept] == [(b"a", Reason.OVERLAP)]
    assert world.read("a").decode() == lines(l5="mine")
    assert world.read("b") == b"old\n"


def hold_each(world: World) -> Run:
    """One command and then somebody's work over it, of each kind that cannot be merged."""
    world.write("binary", b"\0old")
    world.write("deleted", "old\n")
    world.write("gone", "old\n")
    world.write("renamed", "old text\n")
    world.write("modes", "old\n", 0o644)
    world.write("large", "old\n" * 300_000)
    os.symlink("old", world.at("link"))
    world.write("moved/inner", "old\n")

    def command() -> None:
        world.write("binary", b"\0new")
        os.unlink(world.at("deleted"))
        world.write("gone", "new, and gone\n")
        world.write("renamed", "new text\n")
        os.chmod(world.at("modes"), 0o600)
        world.write("large", "new\n" * 300_000)
        os.unlink(world.at("link"))
        os.symlink("new", world.at("link"))
        world.write("created", "new\n")
        world.write("moved/inner", "new\n")

    run = world.run(command)
    world.write("binary", b"\0mine")
    world.write("deleted", "mine\n")
    os.unlink(world.at("gone"))
    os.rename(world.at("renamed"), world.at("new-name"))
    os.chmod(world.at("modes"), 0o755)
    world.write("large", "mine\n" * 300_000)
    os.unlink(world.at("link"))
    os.symlink("mine", world.at("link"))
    world.write("created", "mine\n")
    os.rename(world.at("moved"), world.at("away"))
    os.symlink("away", world.at("moved"))
    return run


HELD = {
    b"binary": Reason.BINARY_CHANGED_SINCE,
    b"created": Reason.CREATED_AND_EDITED,
    b"deleted": Reason.CREATED_SINCE,
    b"gone": Reason.DELETED_SINCE,
    b"large": Reason.LARGE_CHANGED_SINCE,
    b"link": Reason.LINK_CHANGED_SINCE,
    b"modes": Reason.PERMISSIONS_CHANGED_SINCE,
    b"moved/inner": Reason.PARENT_CHANGED_SINCE,
    b"renamed": Reason.RENAMED_SINCE,
}


def test_each_held_file_has_its_reason_and_stops_the_undo(world: World) -> None:
    run = hold_each(world)
    plan = world.plan(run, others=[b"away/inner", b"new-name"])
    assert reasons(plan) == HELD
    assert {held.path: held.numbers for held in plan.held}[b"renamed"] == {"to": "new-name"}
    decision = resolve(plan, Choices())
    assert decision.items == ()
    assert {held.path for held in decision.stopped} == set(HELD)


def test_undo_anyway_puts_back_exactly_the_files_named_but_never_through_a_link(world: World) -> None:
    run = hold_each(world)
    before = world.snapshot()
    plan = world.plan(run, others=[b"away/inner", b"new-name"])
    stopped = resolve(plan, Choices(force=frozenset(HELD))).stopped
    assert [(held.path, held.reason) for held in stopped] == [(b"moved/inner", Reason.PARENT_CHANGED_SINCE)]
    undone = world.apply(plan, choices=Choices(force=frozenset([b"binary", b"gone", b"created"]), rest=True))
    assert {held.path for held in undone.kept} == set(HELD) - {b"binary", b"gone", b"created"}
    after = {**before, b"binary": ("file", 0o644, b"\0old"), b"gone": ("file", 0o644, b"old\n")}
    del after[b"created"]
    assert world.snapshot() == after


def test_keep_answers_for_a_folder_and_all_below_it(world: World) -> None:
    world.write("src/deep/a", "old\n")
    world.write("b", "old\n")

    def command() -> None:
        world.write("src/deep/a", "new\n")
        world.write("b", "new\n")

    undone = world.undo(world.run(command), choices=Choices(keep=frozenset([b"src"])))
    assert [(held.path, held.reason) for held in undone.kept] == [(b"src/deep/a", Reason.ASKED_TO_KEEP)]
    assert (world.read("src/deep/a"), world.read("b")) == (b"new\n", b"old\n")


def test_only_undoes_what_is_below_and_takes_the_folders_along(world: World) -> None:
    world.write("src/deep/a", "old\n")
    world.write("src/deep/b", "old\n")
    run = world.run(lambda: shutil.rmtree(world.at("src")))
    world.undo(run, choices=Choices(only=frozenset([b"src/deep/a"])))
    assert set(world.snapshot()) == {b"src", b"src/deep", b"src/deep/a"}


# Folders and kinds


def test_a_made_folder_that_holds_somebodys_file_stays_and_is_named(world: World) -> None:
    run = world.run(lambda: world.write("new/inner/a", "new\n"))
    world.write("new/mine", "mine\n")
    undone = world.undo(run)
    assert set(world.snapshot()) == {b"new", b"new/mine"}
    assert [(left.path, left.reason) for left in undone.left] == [(b"new", Reason.FOLDER_NOT_EMPTY)]


def test_a_folder_that_no_change_names_is_made_for_the_file_that_comes_back(world: World) -> None:
    world.write("src/deep/a", "old\n")
    run = world.run(lambda: shutil.rmtree(world.at("src")))
    run.changes = [change for change in run.changes if change.path == b"src/deep/a"]
    world.undo(run)
    assert world.read("src/deep/a") == b"old\n"


def test_a_file_turned_folder_with_somebodys_file_in_it_is_held(world: World) -> None:
    world.write("a", "old\n")

    def command() -> None:
        os.unlink(world.at("a"))
        world.write("a/new", "new\n")

    run = world.run(command)
    world.write("a/mine", "mine\n")
    plan = world.plan(run)
    assert reasons(plan) == {b"a": Reason.FOLDER_NOT_EMPTY}
    assert resolve(plan, Choices(force=frozenset([b"a"]))).stopped


def test_what_comes_back_into_a_folder_that_became_a_file_waits_for_the_folder(world: World) -> None:
    world.write("a/inner", "old\n")

    def command() -> None:
        shutil.rmtree(world.at("a"))
        world.write("a", "new\n")

    run = world.run(command)
    before = world.plan(run)
    world.write("a", "mine\n")
    held = world.plan(run)
    assert reasons(held) == {b"a": Reason.CHANGED_SINCE, b"a/inner": Reason.PARENT_CHANGED_SINCE}
    world.write("a", "new\n")
    world.apply(before)
    assert world.read("a/inner") == b"old\n"


@pytest.mark.parametrize(
    "path", [b"../outside", b".git/config", b"a/.GIT/hooks/x", b"/etc/passwd", b"a//b", b"", b"."]
)
def test_no_record_reaches_outside_the_project_or_into_git(world: World, path: bytes) -> None:
    run = Run(
        "forged", [b"x"], world.top, 1, changes=[Change(path, ABSENT, Entry(Kind.FILE, mode=0o644, digest=b"x"))]
    )
    with pytest.raises(UndoError) as caught:
        world.plan(run)
    assert caught.value.fault == Fault.PATH_OUTSIDE_PROJECT


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_cannot_be_read_now_is_held(world: World) -> None:
    world.write("a", "old\n")
    run = world.run(lambda: world.write("a", "new\n"))
    os.chmod(world.at("a"), 0)
    assert reasons(world.plan(run)) == {b"a": Reason.UNREADABLE_NOW}

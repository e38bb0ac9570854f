"""Where a project's folder in the store is, and whose it is."""

from __future__ import annotations

import os
import shutil
import stat
import sys
from pathlib import Path

import pytest

from ckpt_run.capture import project
from ckpt_run.capture.errors import Fault, StoreError

LINUX = sys.platform.startswith("linux")


@pytest.fixture
def top(tmp_path: Path) -> bytes:
    place = tmp_path / "project"
    place.mkdir()
    return os.fsencode(place.resolve())


def made(top: bytes) -> project.Project:
    found = project.locate(top, os.environb)
    project.prepare(found)
    return found


def test_the_store_is_where_the_variables_say() -> None:
    assert project.home({b"CKPT_HOME": b"/a", b"XDG_STATE_HOME": b"/b", b"HOME": b"/c"}) == b"/a"
    assert project.home({b"XDG_STATE_HOME": b"/b", b"HOME": b"/c"}) == b"/b/ckpt"
    own = b"/c/.local/state/ckpt" if sys.platform != "darwin" else b"/c/Library/Application Support/ckpt"
    assert project.home({b"HOME": b"/c"}) == own
    assert project.home({b"XDG_STATE_HOME": b"relative", b"HOME": b"/c"}) == own
    assert project.home({b"CKPT_HOME": b"", b"HOME": b"/c"}) == own


def test_a_relative_ckpt_home_is_made_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert project.home({b"CKPT_HOME": b"store"}) == os.fsencode(tmp_path.resolve()) + b"/store"


@pytest.mark.parametrize("inside", [b"", b"/store", b"/deep/store"])
def test_a_store_inside_the_project_is_refused(top: bytes, inside: bytes) -> None:
    with pytest.raises(StoreError) as caught:
        project.locate(top, {b"CKPT_HOME": top + inside})
    assert caught.value.fault == Fault.STORE_INSIDE_PROJECT
    assert os.listdir(top) == []


def test_a_link_into_the_project_is_refused_too(top: bytes, tmp_path: Path) -> None:
    os.symlink(top, tmp_path / "elsewhere")
    with pytest.raises(StoreError):
        project.locate(top, {b"CKPT_HOME": os.fsencode(tmp_path / "elsewhere" / "store")})


def test_a_sibling_with_a_longer_name_is_not_inside(top: bytes) -> None:
    assert project.locate(top, {b"CKPT_HOME": top + b"-store"}).folder.startswith(top + b"-store/")


@pytest.mark.parametrize("umask", [0, 0o027, 0o777 & ~0o700])
def test_modes_are_private_under_any_umask(top: bytes, umask: int) -> None:
    os.umask(umask)
    found = made(top)
    for folder, folders, files in os.walk(os.environb[b"CKPT_HOME"]):
        assert stat.S_IMODE(os.lstat(folder).st_mode) == 0o700, folder
        for name in files:
            assert stat.S_IMODE(os.lstat(os.path.join(folder, name)).st_mode) == 0o600, name
        assert folders or files or folder.startswith(found.folder)


@pytest.mark.parametrize("mode", [0o750, 0o705, 0o770])
def test_a_folder_that_others_can_read_is_refused(top: bytes, mode: int) -> None:
    found = made(top)
    os.chmod(found.folder, mode)
    with pytest.raises(StoreError) as caught:
        project.prepare(found)
    assert caught.value.fault == Fault.STORE_NOT_PRIVATE


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_somebody_else_is_refused(top: bytes) -> None:
    found = made(top)
    os.chown(found.folder, 65534, -1)
    with pytest.raises(StoreError) as caught:
        project.prepare(found)
    assert caught.value.fault == Fault.STORE_NOT_PRIVATE


def test_a_store_that_cannot_be_made_is_told(top: bytes, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    found = project.locate(top, {b"CKPT_HOME": os.fsencode(tmp_path / "file" / "store")})
    with pytest.raises(StoreError) as caught:
        project.prepare(found)
    assert caught.value.fault == Fault.STORE_NOT_WRITABLE


def test_the_same_folder_is_found_again(top: bytes) -> None:
    found = made(top)
    assert project.locate(top, os.environb).folder == found.folder
    assert [(each.top, each.folder) for each in project.known_projects(os.environb)] == [(top, found.folder)]


@pytest.mark.skipif(not LINUX, reason="birth times are tested on Linux")
def test_a_worktree_that_moved_keeps_its_points(top: bytes) -> None:
    found = made(top)
    Path(os.fsdecode(found.folder), "kept").write_text("points")
    os.rename(top, top + b"-moved")
    again = made(top + b"-moved")
    assert Path(os.fsdecode(again.folder), "kept").read_text() == "points"
    assert not os.path.exists(found.folder)
    assert [each.top for each in project.known_projects(os.environb)] == [top + b"-moved"]


def test_a_copy_of_a_worktree_begins_anew(top: bytes) -> None:
    found = made(top)
    shutil.copytree(os.fsdecode(top), os.fsdecode(top) + "-copy")
    assert made(top + b"-copy").folder != found.folder
    assert os.path.isdir(found.folder)


def test_an_inode_used_again_is_not_taken_for_the_old_worktree(top: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same inode at another place, born at another time."""
    made(top)
    os.rename(top, top + b"-other")
    born = project.born_ns(top + b"-other")
    monkeypatch.setattr(project, "born_ns", lambda path: born + 1)
    assert project._moved(project.home(os.environb), top + b"-other") is None


def test_without_birth_times_nobody_is_adopted(top: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(project, "born_ns", lambda path: 0)
    found = made(top)
    os.rename(top, top + b"-moved")
    assert made(top + b"-moved").folder != found.folder


def test_a_moved_worktree_is_not_adopted_while_the_old_place_is_in_use(top: bytes) -> None:
    found = made(top)
    os.rename(top, top + b"-moved")
    os.mkdir(top)
    assert project.locate(top + b"-moved", os.environb).folder != found.folder
    assert os.path.isdir(found.folder)


@pytest.mark.skipif(not LINUX, reason="statx is Linux's")
def test_birth_is_told_and_survives_what_changes_times(top: bytes) -> None:
    place = top + b"/file"
    with open(place, "w") as file:
        file.write("x")
    born = project.born_ns(place)
    if not born:
        pytest.skip("this file system keeps no birth times")
    os.utime(place, (1, 1))
    os.rename(place, place + b"2")
    assert project.born_ns(place + b"2") == born
    os.symlink(b"nowhere", top + b"/link")
    assert project.born_ns(top + b"/link") >= born

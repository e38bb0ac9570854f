"""`ckpt diff`: what a point changed, as a patch and as numbers."""

from __future__ import annotations

import subprocess
from pathlib import Path

from .kit import Desk, hold_golden, pinned, snapshot

CHANGES = "echo four >> a.txt; rm b.txt; mkdir -p new/deep; echo x > new/deep/file; printf '\\0\\1' > new/binary"


def test_the_patch_takes_the_change_back(desk: Desk) -> None:
    before = {name: seen[2] for name, seen in snapshot(desk.top).items() if not name.startswith(".git")}
    desk.wrapped("echo four >> a.txt; rm b.txt; echo x > new; chmod +x d/c.txt")
    patch = desk.untouched_by(lambda: desk.ckpt("diff"))
    assert patch.code == 0
    subprocess.run(["git", "apply", "-R"], cwd=desk.top, input=patch.out, check=True, text=True)
    after = {name: seen[2] for name, seen in snapshot(desk.top).items() if not name.startswith(".git")}
    assert after == before


def test_stat_lists_files_with_their_witness_and_no_folders(desk: Desk, tmp_path: Path) -> None:
    desk.wrapped(CHANGES)
    hold_golden("diff-stat", pinned(desk.ckpt("diff", "--stat").out, desk), tmp_path)


def test_paths_choose_from_where_one_stands(desk: Desk) -> None:
    desk.wrapped("echo four >> a.txt; echo four >> d/c.txt; rm b.txt")
    assert desk.ckpt("diff", "--stat", "c.txt", cwd=desk.top / "d").out == "  d/c.txt  +1 -0  (time)\n"
    assert desk.ckpt("diff", "--stat", "b.txt").out == "  b.txt  +0 -3  (time)\n"
    run_id = desk.ckpt("log", "--json").json["points"][0]["id"]
    assert desk.ckpt("diff", run_id, "d", "--stat").out == "  d/c.txt  +1 -0  (time)\n"


def test_the_commands_of_a_turn_are_one_diff_from_the_first_before_to_the_last_after(desk: Desk) -> None:
    (desk.top / "link").symlink_to("a.txt")
    desk.wrapped("echo four >> a.txt; ln -sf b.txt link; echo x > passing", "--turn", "1")
    desk.wrapped("echo five >> a.txt; ln -sf nowhere link; rm passing", "--turn", "1")
    ended = desk.ckpt("diff")
    assert ended.err == ""
    assert "+four\n+five\n" in ended.out
    assert "-a.txt" in ended.out
    assert "+nowhere" in ended.out
    assert "passing" not in ended.out
    assert desk.ckpt("diff", "--stat").out == "  a.txt  +2 -0  (time)\n  link  +1 -1  (time)\n"


def test_a_file_that_somebody_made_a_folder_between_two_commands_is_shown_step_by_step(desk: Desk) -> None:
    desk.wrapped("echo four >> a.txt", "--turn", "1")
    (desk.top / "a.txt").unlink()
    desk.write("a.txt/inside", "mine\n")
    desk.wrapped("echo more >> a.txt/inside", "--turn", "1")
    ended = desk.ckpt("diff")
    assert ended.code == 0
    assert "+more" in ended.out
    assert "inside" in ended.out


def test_what_cannot_be_shown_is_named_with_its_reason(desk: Desk) -> None:
    desk.ckpt("config", "copy_bytes_max", "10")
    desk.write("large.txt", "uncommitted work, more than ten bytes\n")
    desk.wrapped("rm large.txt; echo four >> a.txt")
    ended = desk.ckpt("diff")
    assert ended.code == 0
    assert "ckpt: no diff of large.txt: too large to copy before the command" in ended.err
    assert "+four" in ended.out


def test_inside_a_hook_of_another_repository_bytes_come_from_the_right_one(desk: Desk, tmp_path: Path) -> None:
    desk.wrapped("rm b.txt")
    other = Desk(tmp_path / "other")
    env = {"GIT_DIR": str(other.top / ".git"), "GIT_INDEX_FILE": str(other.top / ".git/index")}
    assert desk.ckpt("diff", env=env).out == desk.ckpt("diff").out
    assert desk.ckpt("undo", "--yes", env=env).code == 0
    assert (desk.top / "b.txt").exists()

"""`ckpt show`: one point's card, and the same as JSON."""

from __future__ import annotations

import os
from pathlib import Path

from .kit import Desk, hold_golden, one_sentence, pinned

EVERYTHING = (
    "echo four >> a.txt; rm b.txt; chmod 600 d/c.txt; ln -s a.txt link; mkdir -p new/deep; echo x > new/deep/file;"
    " printf '\\0\\1' > new/binary"
)


def test_the_card_lists_each_change_with_its_witness_and_gaps_apart(desk: Desk, tmp_path: Path) -> None:
    assert desk.ckpt("config", "copy_bytes_max", "10").code == 0
    desk.write("large.txt", "uncommitted work, more than ten bytes of it\n")
    desk.wrapped(EVERYTHING + "; echo more >> large.txt")
    hold_golden("show", pinned(desk.ckpt("show").out, desk), tmp_path)


def test_the_json_has_the_shape_that_the_design_gives(desk: Desk) -> None:
    run_id = desk.wrapped(EVERYTHING)
    point = desk.ckpt("show", "--json").json
    assert (point["id"], point["runs"], point["exit_code"], point["state"]) == (run_id, [run_id], 0, "ended")
    assert (point["command"], point["cwd"]) == (["sh", "-c", EVERYTHING], str(desk.top))
    assert (point["coverage"], point["git_moved"], point["background"]) == ("complete", [], [])
    found = {one["path"]: (one["change"], one["undo"], one["by"], one["lines_added"]) for one in point["changes"]}
    assert found["a.txt"] == ("modified", "restore", "time", 1)
    assert found["b.txt"] == ("deleted", "recover", "time", 0)
    assert found["d/c.txt"] == ("mode", "chmod", "time", 0)
    assert found["new/deep/file"] == ("created", "remove", "time", 1)
    assert found["new/binary"] == ("created", "remove", "time", None)
    assert all(one["reason"] is None for one in point["changes"])


def test_lines_are_counted_from_the_state_before_the_run_and_not_from_the_commit(desk: Desk) -> None:
    desk.write("a.txt", "mine\none\ntwo\nthree\n")
    desk.wrapped("echo four >> a.txt; rm b.txt")
    counts = {one["path"]: (one["lines_added"], one["lines_removed"]) for one in _changes(desk)}
    assert counts == {"a.txt": (1, 0), "b.txt": (0, 3)}


def _changes(desk: Desk) -> list[dict[str, object]]:
    found: list[dict[str, object]] = desk.ckpt("show", "--json").json["changes"]
    return found


def test_a_file_edited_and_put_back_is_not_listed(desk: Desk) -> None:
    desk.wrapped("cp a.txt /dev/null; echo x >> a.txt; printf 'one\\ntwo\\nthree\\n' > a.txt; rm b.txt")
    assert [one["path"] for one in _changes(desk)] == ["b.txt"]


def test_names_that_are_no_text_come_back_from_the_json_and_forge_nothing_on_the_card(desk: Desk) -> None:
    names = [b"new\nline", b"esc\x1b[31m", b"no-utf8-\xff", b'quo"te', b"tab\there"]
    for name in names:
        Path(os.fsdecode(os.fsencode(desk.top) + b"/" + name)).write_text("x")
    desk.wrapped("rm -- *line esc* no-utf8* quo* tab*")
    assert sorted(os.fsencode(str(one["path"])) for one in _changes(desk)) == sorted(names)
    card = desk.ckpt("show").out
    assert "\x1b" not in card
    assert [line for line in card.splitlines() if "new" in line] == ['  deleted      "new\\nline"  +0 -1  (time)']
    assert '"no-utf8-\\xff"' in card


def test_the_beginning_of_an_id_is_enough_and_an_older_point_is_shown_by_its_id(desk: Desk) -> None:
    first = desk.wrapped("echo four >> a.txt")
    second = desk.wrapped("rm b.txt")
    assert desk.ckpt("show", first[:6], "--json").json["id"] == first
    assert desk.ckpt("show", "--json").json["id"] == second


def test_the_runs_of_a_turn_are_one_point_and_each_is_shown_by_its_own_id(desk: Desk) -> None:
    first = desk.wrapped("echo four >> a.txt", "--session", "s", "--turn", "1")
    second = desk.wrapped("rm b.txt", "--session", "s", "--turn", "1")
    point = desk.ckpt("show", "--json").json
    assert point["runs"] == [first, second]
    assert [one["run"] for one in point["changes"]] == [first, second]
    alone = desk.ckpt("show", second, "--json").json
    assert (alone["id"], alone["runs"]) == (point["id"], [second])
    assert first in desk.ckpt("show").out


def test_a_moved_head_is_told_and_that_git_stays(desk: Desk) -> None:
    desk.write("a.txt", "mine\n")
    desk.wrapped("git -c user.name=A -c user.email=a@example.com commit -qam second; rm b.txt")
    assert "commit" in desk.ckpt("show", "--json").json["git_moved"]
    assert "Git's commits, branches, stashes and staging are left as they are." in desk.ckpt("show").out


def test_no_points_and_unknown_ids_are_one_sentence_each(desk: Desk) -> None:
    one_sentence(desk.ckpt("show"), 1, "Nothing is recorded")
    desk.wrapped("rm b.txt")
    one_sentence(desk.ckpt("show", "ffffffffff"), 1, "No point or run is called ffffffffff")

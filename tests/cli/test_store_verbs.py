"""What is kept, checked, forgotten, set and finished: status, verify, prune, purge, config, doctor, recover."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from .kit import TOOLS, Desk, hold_golden, one_sentence, pinned

SECRET = "a secret that has to go, 7f3a9c"


def traces(folder: Path) -> list[Path]:
    """Files of the store that hold the secret."""
    return [path for path in folder.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]


def test_status_shows_the_use_and_the_limits(desk: Desk, tmp_path: Path) -> None:
    desk.wrapped("rm b.txt")
    hold_golden("status", pinned(desk.untouched_by(lambda: desk.ckpt("status")).out, desk), tmp_path)
    told = desk.ckpt("status", "--json").json
    assert (told["points"], told["runs"], told["points_max"], told["open_undos"]) == (1, 1, 512, 0)
    assert told["project"] == str(desk.top)
    assert told["bytes_max"] == 128 << 20


def test_verify_reads_everything_and_names_what_is_damaged(desk: Desk) -> None:
    desk.write("b.txt", SECRET)
    run_id = desk.wrapped("rm b.txt")
    assert desk.untouched_by(lambda: desk.ckpt("verify")).out == "Everything that is kept is whole.\n"
    database = sqlite3.connect(desk.store / "store.db")
    database.execute("UPDATE content SET bytes = 'x' || bytes")
    database.commit()
    database.close()
    ended = desk.untouched_by(lambda: desk.ckpt("verify"))
    assert ended.code == 1
    assert ended.err.startswith("The store is damaged:\n")
    refused = desk.untouched_by(lambda: desk.ckpt("undo", "--yes"))
    one_sentence(refused, 1, "is damaged")
    assert run_id in desk.ckpt("log").out


def test_prune_forgets_the_oldest(desk: Desk) -> None:
    desk.wrapped("echo four >> a.txt")
    newest = desk.wrapped("rm b.txt")
    ended = desk.untouched_by(lambda: desk.ckpt("prune", "--points", "1"))
    assert ended.out.startswith("Forgotten: 1 point, 1 change, ")
    assert [one["id"] for one in desk.ckpt("log", "--json").json["points"]] == [newest]
    assert desk.ckpt("undo", "--yes").code == 0


def secret_point(desk: Desk) -> str:
    """Uncommitted secrets, changed by a command; undone, redone and changed again."""
    desk.write("a.txt", f"{SECRET}\n" * 50)
    desk.write("d/c.txt", "no secret\n")
    run_id = desk.wrapped("echo more >> a.txt; echo more >> d/c.txt; rm b.txt")
    desk.ckpt("undo", "--yes")
    desk.ckpt("redo", "--yes")
    desk.wrapped("echo more >> a.txt")
    assert traces(desk.store)
    return run_id


def test_a_purged_path_leaves_no_trace_in_the_store(desk: Desk) -> None:
    secret_point(desk)
    ended = desk.untouched_by(lambda: desk.ckpt("purge", "../a.txt", cwd=desk.top / "d"))
    assert ended.code == 0
    assert not traces(desk.store)
    assert "d/c.txt" in desk.ckpt("show", desk.ckpt("log", "--json").json["points"][-1]["id"]).out
    assert desk.ckpt("verify").code == 0


def test_a_purged_point_leaves_no_trace_not_even_in_its_undos(desk: Desk) -> None:
    desk.write("a.txt", f"{SECRET}\n" * 50)
    run_id = desk.wrapped("echo more >> a.txt")
    desk.ckpt("undo", "--yes")
    desk.ckpt("redo", "--yes")
    ended = desk.untouched_by(lambda: desk.ckpt("purge", run_id))
    assert ended.out.startswith("Forgotten: 3 points")
    assert not traces(desk.store)


def test_everything_is_purged_only_where_somebody_says_so(desk: Desk) -> None:
    secret_point(desk)
    for words in (["--all"], ["."]):
        one_sentence(desk.untouched_by(lambda: desk.ckpt("purge", *words)), 3, "no terminal")  # noqa: B023
        assert traces(desk.store)
    assert desk.untouched_by(lambda: desk.ckpt("purge", ".", "--yes")).code == 0
    assert not traces(desk.store)
    home = desk.store.parent
    assert desk.untouched_by(lambda: desk.ckpt("purge", "--all", "--yes")).out == "Forgotten.\n"
    assert not list(home.iterdir())
    desk.wrapped("rm d/c.txt")
    assert desk.ckpt("undo", "--yes").code == 0


def test_one_command_of_a_turn_cannot_be_purged_alone(desk: Desk) -> None:
    first = desk.wrapped("echo four >> a.txt", "--turn", "1")
    desk.wrapped("rm b.txt", "--turn", "1")
    point = desk.ckpt("log", "--json").json["points"][0]["id"]
    one_sentence(desk.ckpt("purge", first), 2, "is one command of the point", f"ckpt purge {point}")
    assert desk.ckpt("purge", point).out.startswith("Forgotten: 1 point, 2 changes")


def test_a_file_named_like_the_beginning_of_an_id_is_a_path(desk: Desk) -> None:
    run_id = desk.wrapped("echo four >> a.txt")
    desk.write(run_id[:5], "a file\n")
    assert desk.ckpt("purge", run_id[:5]).out.startswith("Forgotten: 0 points")
    assert desk.ckpt("purge", run_id).out.startswith("Forgotten: 1 point")


def test_settings_are_shown_set_and_refused(desk: Desk, tmp_path: Path) -> None:
    hold_golden("config", desk.untouched_by(lambda: desk.ckpt("config")).out, tmp_path)
    assert desk.ckpt("config", "points_max", "7").code == 0
    assert desk.ckpt("config", "points_max").out.startswith("points_max = 7\n")
    one_sentence(desk.ckpt("config", "points_max", "none"), 2, "none is not a value of points_max", "a whole number")
    one_sentence(desk.ckpt("config", "point_max", "7"), 2, "no setting point_max", "Did you mean points_max?")
    one_sentence(desk.ckpt("config", "xyz"), 2, "no setting xyz", "lists them")
    (Path(os.environ["CKPT_HOME"]) / "config.toml").write_text("points_max = \n")
    one_sentence(desk.ckpt("log"), 1, "The settings in", "config.toml", "cannot be read")


def test_the_doctor_says_what_works_here(desk: Desk) -> None:
    path = f"{TOOLS}:{os.environ['PATH']}"
    ended = desk.untouched_by(lambda: desk.ckpt("doctor", env={"PATH": path}))
    assert ended.code == 0, ended
    assert "✓ Git 2." in ended.out
    assert "✓ `ckpt` on PATH is this one" in ended.out
    assert "trace: " in ended.out


def test_the_doctor_finds_another_ckpt_and_a_missing_git(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    other = tmp_path / "bin/ckpt"
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    ended = desk.ckpt("doctor", env={"PATH": str(tmp_path / "bin")})
    assert ended.code == 1
    assert f"another `ckpt` stands first on PATH: {other}" in ended.out
    assert "✗ Git" in ended.out


def test_recover_says_when_nothing_is_open(desk: Desk) -> None:
    desk.wrapped("rm b.txt")
    assert desk.untouched_by(lambda: desk.ckpt("recover")).out == "Nothing was left open.\n"


@pytest.mark.parametrize("verb", ["verify", "prune", "status", "log", "show"])
def test_verbs_that_only_look_touch_nothing(desk: Desk, verb: str) -> None:
    desk.wrapped("rm b.txt")
    assert desk.untouched_by(lambda: desk.ckpt(verb)).code == 0

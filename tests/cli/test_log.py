"""`ckpt log`: the points, newest first, for people and as JSON."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from .kit import CKPT_RUN, Desk, hold_golden, one_sentence, pinned, run


def test_a_project_without_points_is_no_fault(desk: Desk) -> None:
    ended = desk.untouched_by(lambda: desk.ckpt("log"))
    assert ended.code == 0
    assert "Nothing is recorded here yet" in ended.out
    assert desk.ckpt("log", "--json").json == {"points": [], "runs": []}


def test_points_stand_in_columns_with_what_became_of_them(desk: Desk, tmp_path: Path) -> None:
    desk.wrapped("echo four >> a.txt")
    desk.wrapped("rm d/c.txt; echo new > new.txt", "--label", "spring cleaning")
    assert run([CKPT_RUN, "--", "sh", "-c", "echo x > x; exit 7"], desk.top).code == 7
    assert desk.ckpt("undo", "--yes").code == 0
    hold_golden("log", pinned(desk.ckpt("log").out, desk), tmp_path)


def test_the_json_has_the_shape_that_the_design_gives(desk: Desk) -> None:
    first = desk.wrapped("echo four >> a.txt")
    second = desk.wrapped("rm b.txt")
    log = desk.ckpt("log", "--json").json
    assert [one["id"] for one in log["points"]] == [second, first]
    assert [one["id"] for one in log["runs"]] == [second, first]
    one = log["runs"][1]
    assert one["command"] == ["sh", "-c", "echo four >> a.txt"]
    assert (one["exit_code"], one["changed"], one["left"], one["state"]) == (0, 1, 0, "ended")
    assert one["started_at"].endswith("Z")
    assert one["started_at"] <= one["ended_at"]


def test_n_and_paths_choose(desk: Desk) -> None:
    first = desk.wrapped("echo four >> d/c.txt")
    second = desk.wrapped("echo four >> a.txt")

    def ids(*words: str, cwd: Path | None = None) -> list[str]:
        return [one["id"] for one in desk.ckpt("log", "--json", *words, cwd=cwd).json["points"]]

    assert ids("-n", "1") == [second]
    assert ids("-n", "0") == [second, first]
    assert ids("c.txt", cwd=desk.top / "d") == [first]
    assert ids("d") == [first]
    assert ids("-n", "1", ".") == [second]
    one_sentence(desk.ckpt("log", "/etc/passwd"), 2, "/etc/passwd", "not a path inside this project")


def test_a_command_cannot_forge_a_line_of_the_log(desk: Desk) -> None:
    desk.wrapped("echo four >> a.txt\n# 0000000000  1 s ago  \x1b[31mforged\r")
    out = desk.ckpt("log").out
    assert out.count("\n") == 1
    assert not {"\x1b", "\r"} & set(out)


def test_a_point_is_titled_with_seventy_characters(desk: Desk) -> None:
    desk.wrapped("echo four >> a.txt; : " + "x" * 200)
    title = desk.ckpt("log").out.rstrip("\n").split("exit 0  ")[1]
    assert len(title) == 70
    assert title.endswith("…")


def test_the_project_is_named_from_anywhere(desk: Desk, tmp_path: Path) -> None:
    run_id = desk.wrapped("echo four >> a.txt")
    for folder in (desk.top, desk.top / "d"):
        log = desk.ckpt("log", "--json", "--project", str(folder), cwd=tmp_path).json
        assert [one["id"] for one in log["points"]] == [run_id]
    relative = desk.ckpt("log", "--json", "--project", "project", "a.txt", cwd=tmp_path).json
    assert [one["id"] for one in relative["points"]] == [run_id]
    one_sentence(desk.ckpt("log", cwd=tmp_path), 1, "No Git project was found")


def test_a_stdout_without_unicode_gets_its_numbers(desk: Desk) -> None:
    desk.wrapped("echo four >> a.txt")
    shown = desk.ckpt("show", env={"PYTHONIOENCODING": "ascii"})
    assert shown.code == 0
    assert "\\xb7" in shown.out


HEAVY = {"rich", "git", "psutil", "pexpect", "pydoc", "uuid", "dataclasses", "tomllib", "subprocess", "inspect"}


@pytest.mark.parametrize("words", [["log"], ["log", "--json"], ["show", "--json"]], ids=" ".join)
def test_an_answer_does_not_wait_for_what_it_does_not_need(desk: Desk, words: list[str]) -> None:
    desk.wrapped("echo four >> a.txt; rm b.txt; echo x > x")
    script = (
        "import sys; from ckpt_run.shim.cli import main; main(sys.argv[1:]); sys.stderr.write(' '.join(sys.modules))"
    )
    ended = run([sys.executable, "-c", script, *words], desk.top)
    assert "ckpt_run.capture.store" in ended.err.split()
    assert not HEAVY & set(ended.err.split())

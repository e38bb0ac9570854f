"""Created means: was not there before. Undo removes what a command created: a wrong one deletes somebody's file."""

from __future__ import annotations

import os
import sys
import time

import pytest

from ckpt_run.capture.copies import Limits
from ckpt_run.capture.model import Kind

from .kit import Found, Repo, as_ordinary_user, capture, judged, nothing, sh

SMALL = 5 << 20


def only_copy_is_safe(found: Found, path: bytes) -> None:
    """Undo would remove or replace nothing that stands at the path now."""
    assert path in found.changes, f"{path!r} is not listed"
    assert found.changes[path].undo == "leave", f"{path!r}: Undo would {found.changes[path].undo} the only copy"


def test_a_rewritten_gitignore_makes_nothing_created(lived_in: Repo, limits: Limits) -> None:
    found = judged(lived_in, "rm .gitignore; echo x >> clean.txt", limits)
    assert not [path for path, change in found.changes.items() if change.undo == "remove"]


def test_a_rewritten_exclude_makes_nothing_created(lived_in: Repo, limits: Limits) -> None:
    lived_in.write(".git/info/exclude", "hidden/\nhid.txt\n")
    lived_in.write("hidden/mine.txt", "mine\n")
    lived_in.write("hid.txt", "mine\n")
    found = judged(lived_in, "echo > .git/info/exclude; echo x >> clean.txt", limits)
    assert not [path for path, change in found.changes.items() if change.undo == "remove"]


def test_a_file_of_an_ignored_folder_rewritten_and_unignored_is_not_created(lived_in: Repo, limits: Limits) -> None:
    lived_in.write("build/mine.txt", "a day's work\n")
    found = judged(lived_in, "echo > .gitignore; sed -i s/day/week/ build/mine.txt", limits)
    wrong = [p for p, c in found.changes.items() if p.startswith(b"build/") and c.undo == "remove"]
    assert not wrong


def test_a_file_that_the_index_forgot_is_not_created(lived_in: Repo, limits: Limits) -> None:
    found = judged(lived_in, "git rm -q --cached clean.txt; sed -i s/line/LINE/ clean.txt", limits)
    assert found.names[b"clean.txt"] == "modified"


def test_a_file_over_the_limit_that_was_renamed_is_not_removed(lived_in: Repo, limits: Limits) -> None:
    lived_in.write("huge.bin", b"\1" * (SMALL + 1))
    lived_in.age()
    only_copy_is_safe(judged(lived_in, "mv huge.bin renamed.bin", limits), b"renamed.bin")


def test_a_file_over_the_limit_that_replaced_another_stays(lived_in: Repo, limits: Limits) -> None:
    lived_in.write("huge.bin", b"\1" * (SMALL + 1))
    lived_in.age()
    only_copy_is_safe(judged(lived_in, "mv huge.bin clean.txt; echo x >> clean.txt", limits), b"clean.txt")


def test_a_file_moved_in_from_outside_the_project_is_not_removed(lived_in: Repo, limits: Limits) -> None:
    outside = lived_in.path.parent / "letter.txt"
    outside.write_text("the only copy\n")
    os.utime(outside, (10**9, 10**9))
    only_copy_is_safe(judged(lived_in, "mv ../letter.txt ./letter.txt", limits), b"letter.txt")


def test_a_file_moved_out_of_an_ignored_folder_is_not_removed(lived_in: Repo, limits: Limits) -> None:
    found = judged(lived_in, "mv build/out.bin out.bin", limits, unseen=[b"build"])
    only_copy_is_safe(found, b"out.bin")


def test_an_ignored_folder_that_was_renamed_is_not_emptied(lived_in: Repo, limits: Limits) -> None:
    found = judged(lived_in, "mv build made", limits, unseen=[b"build"])
    assert not [p for p, c in found.changes.items() if c.undo == "remove" and c.after.kind == Kind.FILE]


def test_a_left_out_log_that_was_renamed_is_not_removed(lived_in: Repo, limits: Limits) -> None:
    only_copy_is_safe(judged(lived_in, "mv app.log kept.txt", limits), b"kept.txt")


def test_a_file_that_was_renamed_and_is_known_is_put_back_wholly(lived_in: Repo, limits: Limits) -> None:
    found = judged(lived_in, "mv clean.txt a.txt; mv new.txt b.txt; mv .env env; mv src lib", limits)
    assert not found.gaps
    assert found.changes[b"a.txt"].undo == found.changes[b"lib/a.py"].undo == "remove"


def test_an_unpacked_archive_with_old_times_is_created(lived_in: Repo, limits: Limits) -> None:
    script = "mkdir d && echo x > d/x && touch -d 2001-01-01 d/x && tar cf ../t.tar d && rm -r d && tar xf ../t.tar"
    found = judged(lived_in, script, limits)
    assert found.changes[b"d/x"].undo == "remove"


def test_a_hard_link_to_a_file_outside_is_left(lived_in: Repo, limits: Limits) -> None:
    outside = lived_in.path.parent / "cache.bin"
    outside.write_text("kept elsewhere too\n")
    os.utime(outside, (10**9, 10**9))
    found = judged(lived_in, "ln ../cache.bin linked.bin; mv linked.bin x; ln x y", limits)
    assert {found.changes[path].undo for path in (b"x", b"y")} == {
        "leave"
    }  # who knows what becomes of the other name


def test_a_folder_that_was_moved_in_is_left_with_its_empty_folders(lived_in: Repo) -> None:
    (lived_in.path.parent / "o" / "e1" / "e2").mkdir(parents=True)
    time.sleep(0.05)
    found = judged(lived_in, "mv ../o o; mkdir made-now", Limits())
    assert {found.changes[path].undo for path in (b"o", b"o/e1", b"o/e1/e2")} == {"leave"}
    assert found.changes[b"made-now"].undo == "remove"


def test_a_file_that_appeared_between_our_looks_is_not_created(
    lived_in: Repo, monkeypatch: pytest.MonkeyPatch, limits: Limits
) -> None:
    from ckpt_run.capture import baseline
    from ckpt_run.capture.git import parse_status

    survey = baseline._survey_or_none

    def slow(*given: object) -> object:
        seen = survey(*given)  # type: ignore[arg-type]  # passed on
        lived_in.write("meanwhile.txt", "saved by an editor between the survey and Git's answer\n")
        return seen

    monkeypatch.setattr(baseline, "_survey_or_none", slow)
    ask = parse_status

    def late(out: bytes) -> object:
        return ask(out if b"meanwhile.txt" in out else out + b"? meanwhile.txt\0")

    monkeypatch.setattr(baseline, "parse_status", late)
    found = judged(lived_in, "echo x >> meanwhile.txt", limits)
    assert found.names[b"meanwhile.txt"] == "modified"
    assert found.bytes_before(b"meanwhile.txt") is not None


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="root plays an ordinary user on Linux only")
@pytest.mark.parametrize("mode", ["000", "444"])
def test_a_folder_that_could_not_be_read_hides_no_files(lived_in: Repo, limits: Limits, mode: str) -> None:
    lived_in.write("closed/mine.txt", "mine\n")
    lived_in.write("closed/tracked.txt", "mine\n")
    lived_in.git("add", "closed/tracked.txt")
    lived_in.git("commit", "-qm", "closed", "closed/tracked.txt")
    with as_ordinary_user():
        sh(lived_in, f"chmod {mode} closed")()
        found = capture(lived_in, "chmod 755 closed; sed -i s/mine/yours/ closed/*", limits, look=nothing)
    for path in (b"closed/mine.txt", b"closed/tracked.txt"):
        assert path in found.changes, f"{path!r} changed in silence"
        assert found.changes[path].undo == "leave", found.changes[path]

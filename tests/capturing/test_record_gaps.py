"""What Git does not see, what is over a limit, what cannot be read: exact all the same, or a gap; never silent."""

from __future__ import annotations

import os
import shutil
import sys

import pytest

from ckpt_run.capture.copies import Limits
from ckpt_run.capture.model import Kind
from ckpt_run.capture.precious import may_lose_objects

from .kit import (
    BLIND,
    SURVEYED,
    Repo,
    as_ordinary_user,
    capture,
    claims_are_true,
    judged,
    nothing,
    nothing_is_silent,
    snapshot,
)


@pytest.mark.parametrize("flag", ["assume-unchanged", "skip-worktree"])
def test_a_file_that_git_was_told_not_to_look_at_is_a_gap_or_exact(lived_in: Repo, limits: Limits, flag: str) -> None:
    lived_in.git("update-index", f"--{flag}", "clean.txt")
    lived_in.write("clean.txt", "settings of my own\n")
    lived_in.age()
    found = judged(lived_in, "echo x >> clean.txt", limits)
    assert found.gaps == ({b"clean.txt": "flagged"} if limits is SURVEYED else {})  # without a survey it is copied


@pytest.mark.parametrize("flag", ["assume-unchanged", "skip-worktree"])
def test_a_flagged_file_that_was_removed_is_a_gap_or_exact(lived_in: Repo, limits: Limits, flag: str) -> None:
    lived_in.git("update-index", f"--{flag}", "clean.txt")
    lived_in.age()
    found = judged(lived_in, "rm clean.txt", limits)
    assert found.gaps == ({b"clean.txt": "flagged"} if limits is SURVEYED else {})


@pytest.mark.parametrize("flag", ["assume-unchanged", "skip-worktree"])
def test_a_flagged_file_that_nobody_touches_is_no_gap(lived_in: Repo, limits: Limits, flag: str) -> None:
    lived_in.git("update-index", f"--{flag}", "clean.txt", "src/a.py")
    lived_in.write("clean.txt", "settings of my own\n")
    os.unlink(lived_in.at("src/a.py"))
    found = judged(lived_in, "echo x >> tool.sh", limits)
    assert set(found.changes) == {b"tool.sh"}


def test_permission_bits_under_filemode_false_are_exact_or_a_gap(lived_in: Repo, limits: Limits) -> None:
    lived_in.git("config", "core.fileMode", "false")
    os.chmod(lived_in.at("clean.txt"), 0o755)
    os.chmod(lived_in.at("tool.sh"), 0o644)
    judged(lived_in, "echo x >> clean.txt; echo x >> tool.sh", limits, modes_blind=False)


def test_a_link_that_is_a_file_under_symlinks_false_stays_one(lived_in: Repo, limits: Limits) -> None:
    lived_in.git("config", "core.symlinks", "false")
    lived_in.git("reset", "-q", "--hard")
    os.unlink(lived_in.at("link"))
    lived_in.git("checkout", "-q", "link")
    assert not os.path.islink(lived_in.at("link"))
    lived_in.age()
    judged(lived_in, "echo x > link; rm src/a.py", limits)
    judged(lived_in, "rm link", limits)


def test_odd_permission_bits_and_empty_folders_are_seen_by_the_survey(lived_in: Repo) -> None:
    os.chmod(lived_in.at("clean.txt"), 0o600)
    os.makedirs(lived_in.at("hollow/deep"), 0o750)
    lived_in.age()
    found = judged(lived_in, "chmod 4751 clean.txt; rmdir -p hollow/deep; chmod 700 src; mkdir fresh", SURVEYED)
    assert not found.gaps
    assert found.changes[b"hollow/deep"].before.mode == 0o750


def test_a_file_edited_and_put_back_is_not_listed(lived_in: Repo, limits: Limits) -> None:
    found = judged(lived_in, "cp -p clean.txt ../c; echo x >> clean.txt; cat ../c > clean.txt; touch new.txt", limits)
    assert not found.changes


def test_a_file_that_was_only_touched_is_not_listed(lived_in: Repo, limits: Limits) -> None:
    assert not judged(lived_in, "touch clean.txt dirty.txt new.txt .env tool.sh", limits).changes


def test_a_large_deletion_over_the_budget_stays_with_git(repo: Repo, limits: Limits) -> None:
    for number in range(40):
        repo.write(f"d/{number}", os.urandom(2000))
    repo.commit()
    repo.age()
    small = Limits(project_bytes_max=20_000, survey_files_max=limits.survey_files_max)
    found = judged(repo, "rm -r d", small)
    assert not found.gaps
    assert sum(map(len, found.contents.values())) <= 20_000


def test_more_files_than_a_point_holds_stay_with_git(repo: Repo, limits: Limits) -> None:
    for number in range(4100):
        repo.write(f"d{number % 9}/{number}", str(number))
    repo.commit()
    found = judged(repo, "rm -r d*", Limits(survey_files_max=limits.survey_files_max and 9000, files_per_run_max=10))
    assert not found.gaps
    assert len(found.contents) <= 4096


def test_more_new_files_than_a_point_holds_are_a_gap(repo: Repo, limits: Limits) -> None:
    repo.commit()
    script = "mkdir big; cd big; i=0; while [ $i -lt 4100 ]; do : > f$i; i=$((i+1)); done"
    found = judged(repo, script, limits)
    assert found.gaps


def test_copies_over_each_limit_are_gaps_with_their_numbers(lived_in: Repo, limits: Limits) -> None:
    lived_in.write("large.bin", b"x" * 2000)
    for number in range(6):
        lived_in.write(f"many/{number}", b"y" * 100)
    lived_in.age()
    few = Limits(
        copy_bytes_max=1000, files_per_run_max=4, project_bytes_max=10_000, survey_files_max=limits.survey_files_max
    )
    found = judged(lived_in, "for f in large.bin many/*; do echo x >> $f; done", few)
    gaps = found.gaps
    assert gaps.pop(b"large.bin") == "too_large"
    assert found.changes[b"large.bin"].numbers == {"size_bytes": 2000, "limit_bytes": 1000}
    assert set(gaps.values()) == {"too_many"}


def test_files_over_a_limit_that_are_not_touched_are_no_gap(lived_in: Repo, limits: Limits) -> None:
    lived_in.write("large.bin", b"x" * 2000)
    lived_in.age()
    few = Limits(copy_bytes_max=1000, survey_files_max=limits.survey_files_max)
    assert set(judged(lived_in, "echo x >> clean.txt", few).changes) == {b"clean.txt"}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="root plays an ordinary user on Linux only")
def test_an_unreadable_file_is_a_gap_of_its_own(lived_in: Repo, limits: Limits) -> None:
    lived_in.write("closed.txt", "nobody reads this\n", 0)
    with as_ordinary_user():
        found = capture(
            lived_in, "chmod 600 closed.txt; echo x > closed.txt; echo x >> dirty.txt", limits, look=nothing
        )
    assert found.gaps == {b"closed.txt": "unreadable"}
    assert found.changes[b"dirty.txt"].undo == "restore"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="root plays an ordinary user on Linux only")
def test_a_folder_that_the_command_closed_is_a_gap(lived_in: Repo, limits: Limits) -> None:
    with as_ordinary_user():
        before = snapshot(lived_in.top)
        found = capture(lived_in, "rm src/a.py; echo x > new/more.txt; chmod 0 src new", limits, look=nothing)
    found = found._replace(before=before, after=snapshot(lived_in.top))
    nothing_is_silent(found, modes_blind=True)
    claims_are_true(lived_in, found, modes_blind=True)


def test_special_files_are_never_opened(lived_in: Repo, limits: Limits) -> None:
    os.mkfifo(lived_in.at("pipe"))
    found = judged(lived_in, "rm pipe; mkfifo other", limits, unseen=[b"pipe", b"other"] if limits is BLIND else ())
    assert all(reason == "special_file" for reason in found.gaps.values())


def nest(repo: Repo, name: str, *, submodule: bool) -> Repo:
    inner = Repo(repo.path / name)
    inner.write("in.txt", "committed inside\n")
    inner.write("keep.txt", "committed inside\n")
    inner.commit()
    inner.write("in.txt", "edited inside\n")
    inner.write("loose.txt", "untracked inside\n")
    if submodule:
        repo.write(".gitmodules", f'[submodule "{name}"]\n\tpath = {name}\n\turl = ./{name}\n')
        repo.git("add", ".gitmodules", name)
        repo.git("commit", "-qm", "sub", ".gitmodules", name)
    inner.age()
    return inner


INSIDE = {
    "edit": "echo x >> {0}/in.txt; echo x >> {0}/keep.txt; rm {0}/loose.txt; echo n > {0}/born.txt",
    "commit": "cd {0} && git add -A && git commit -qm all && git checkout -q HEAD~1 && git gc -q",
    "clean": "cd {0} && git checkout -q . && git clean -qfd",
    "remove": "rm -rf {0}",
    "wipe": "rm -rf {0}/.git {0}/in.txt {0}/keep.txt",
    "move": "mv {0} away",
    "swallow": "rm -rf {0}/.git; git rm -q --cached {0}; git add {0}; echo x >> {0}/keep.txt",
}


@pytest.mark.parametrize("submodule", [False, True], ids=["nested", "submodule"])
@pytest.mark.parametrize("script", INSIDE.values(), ids=list(INSIDE))
def test_changes_inside_another_repository(lived_in: Repo, limits: Limits, script: str, submodule: bool) -> None:
    nest(lived_in, "sub", submodule=submodule)
    judged(lived_in, script.format("sub"), limits)


def test_a_repository_inside_a_nested_one_is_not_silent(lived_in: Repo, limits: Limits) -> None:
    nest(lived_in, "sub", submodule=False)
    nest(lived_in, "sub/deep", submodule=False)
    judged(lived_in, "echo x >> sub/deep/in.txt; rm sub/deep/keep.txt; echo x > sub/deep/born", limits)


def test_an_embedded_repository_without_gitmodules_is_not_silent(lived_in: Repo, limits: Limits) -> None:
    nest(lived_in, "sub", submodule=False)
    lived_in.git("add", "sub")
    lived_in.git("commit", "-qm", "embedded", "sub")
    judged(lived_in, "echo x >> sub/in.txt; rm sub/keep.txt", limits)


def test_a_cloned_repository_is_a_gap_as_a_whole(lived_in: Repo, limits: Limits) -> None:
    found = judged(lived_in, "git clone -q . copy", limits)
    assert found.gaps == {b"copy": "nested_repository"}


def test_the_whole_project_folder_removed(lived_in: Repo, limits: Limits) -> None:
    found = capture(lived_in, lambda: shutil.rmtree(lived_in.path), limits, argv=(b"rm", b"-rf", b".git"))
    nothing_is_silent(found, modes_blind=limits is BLIND, unseen=[b"build", b"app.log"])
    assert found.changes[b"new.txt"].undo == found.changes[b"clean.txt"].undo == "recover"


@pytest.mark.parametrize(
    "script", ["cd ..; rm -rf project", "rm -rf {top}", "rm -rf {top}/", "cd ..; mv -f ./project x"]
)
def test_the_project_removed_by_a_command_that_names_it_is_put_back_wholly(
    lived_in: Repo, limits: Limits, script: str
) -> None:
    script = script.format(top=os.fsdecode(lived_in.top))
    found = capture(lived_in, script, limits, argv=(b"sh", b"-c", script.encode()))
    claims_are_true(lived_in, found, modes_blind=limits is BLIND)
    nothing_is_silent(found, modes_blind=limits is BLIND, unseen=[b"build", b"app.log"])
    assert {b"clean.txt", b"tool.sh", b"new.txt", b"src/a.py"} <= found.changes.keys() - found.gaps.keys()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("rm -rf .git", True),
        ("git gc", True),
        ("sh -c 'cd ..; rm -rf p'", True),
        ("rm -rf /home/me/p", True),
        ("rm -rf /home/", True),
        ("rm -rf /", True),
        ("rm -rf build && make ; ls", False),
        ("rm -rf /home/me/p/build", False),
        ("rm -rf /home/m", False),
        ("pytest p", False),
    ],
)
def test_words_that_may_cost_git_its_objects(words: str, expected: bool) -> None:
    assert may_lose_objects([words.encode()], b"/home/me/p") == expected
    assert may_lose_objects(words.encode().split(), b"/home/me/p") == expected


def test_git_removed_by_a_script_that_does_not_say_so(lived_in: Repo, limits: Limits) -> None:
    found = judged(lived_in, "rm -rf .git; echo x >> clean.txt; echo x >> dirty.txt; rm new.txt", limits)
    assert found.changes[b"dirty.txt"].undo == "restore"
    assert found.changes[b"new.txt"].undo == "recover"
    assert found.gaps == ({b"clean.txt": "git_blind"} if limits is SURVEYED else {b".": "git_blind"})


def test_git_removed_by_a_command_that_says_so_loses_nothing(lived_in: Repo, limits: Limits) -> None:
    found = judged(lived_in, "rm -rf .git; echo x >> clean.txt", limits, argv=(b"sh", b"-c", b"rm -rf .git; echo"))
    assert found.changes[b"clean.txt"].undo == "restore"


def test_ignored_files_are_copied_unless_told_otherwise(lived_in: Repo, limits: Limits) -> None:
    found = judged(lived_in, "echo x >> .env; echo x >> app.log", limits)
    assert found.bytes_before(b".env") == b"SECRET=1\n"
    assert found.gaps == {b"app.log": "ignored_left_out"}
    lived_in.age()
    found = judged(lived_in, "echo y >> .env", limits, protect_ignored=False)
    assert found.gaps == {b".env": "ignored_left_out"}


def test_a_tracked_file_in_an_ignored_folder_is_exact(lived_in: Repo, limits: Limits) -> None:
    lived_in.write("build/kept.txt", "kept\n")
    lived_in.git("add", "-f", "build/kept.txt")
    lived_in.git("commit", "-qm", "kept", "build/kept.txt")
    lived_in.age()
    found = judged(lived_in, "echo x >> build/kept.txt; echo x >> build/out.bin", limits, unseen=[b"build/out.bin"])
    assert found.bytes_before(b"build/kept.txt") == b"kept\n"


def test_a_change_in_a_small_ignored_folder_is_not_silent(lived_in: Repo) -> None:
    assert judged(lived_in, "echo x >> build/out.bin", SURVEYED).gaps == {b"build": "ignored_folder"}


def test_a_folder_is_called_a_folder(lived_in: Repo, limits: Limits) -> None:
    found = judged(lived_in, "rm -r src; echo s > src", limits)
    assert found.changes[b"src"].before.kind == Kind.DIRECTORY


def test_what_is_made_under_an_ignored_file_that_became_a_folder_is_listed(lived_in: Repo, limits: Limits) -> None:
    """Git 2.39 names nothing below a tracked file that became a folder, where a rule ignores it."""
    lived_in.write(".git/info/exclude", "src/deep/\n")
    found = judged(lived_in, "cd src/deep; rm b.py; mkdir -p b.py/in; echo x > b.py/in/x", limits)
    assert found.changes[b"src/deep/b.py/in/x"].undo == "remove"


def test_a_sparse_checkout_that_is_filled_in_is_not_silent(lived_in: Repo, limits: Limits) -> None:
    lived_in.git("commit", "-qam", "all")
    lived_in.git("sparse-checkout", "set", "--cone", "new")
    assert not os.path.exists(lived_in.at("src"))
    lived_in.age()
    judged(lived_in, "git sparse-checkout disable; echo x >> clean.txt", limits)

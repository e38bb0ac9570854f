"""What moved in Git during a run, in words."""

from __future__ import annotations

import os

import pytest

from ckpt_run.capture.git import Discovery
from ckpt_run.capture.moved import moved, references

from .kit import Repo, sh

WORDS = {
    "nothing": ("git status; git log; git diff", []),
    "add": ("git add -A", []),
    "commit": ("git commit -qam x", ["commit"]),
    "amend": ("git commit -qa --amend -m x", ["commit"]),
    "checkout": ("git checkout -qf other", ["checkout"]),
    "detach": ("git checkout -qf --detach", ["checkout"]),
    "switch -c": ("git switch -qc fresh", ["checkout"]),
    "switch there and commit": ("git switch -qc fresh; git commit -qam x", ["checkout", "commit"]),
    "branch": ("git branch fresh", ["branch"]),
    "branch -D": ("git branch -qD other", ["branch"]),
    "tag": ("git tag v2", ["tag"]),
    "tag -d": ("git tag -d v1", ["tag"]),
    "stash": ("git stash -q", ["stash"]),
    "stash -u": ("git stash -qu", ["stash"]),
    "stash and pop": ("git stash -q; git stash pop -q", []),
    "pop": ("git stash pop -q", ["stash"]),
    "reset --hard": ("git reset -q --hard HEAD~1", ["reset"]),
    "reset --soft": ("git reset -q --soft HEAD~1", ["reset"]),
    "merge": ("git checkout -qf main; git merge -q -m x other -X ours", ["merge"]),
    "merge with conflict": ("git reset -q --hard; git merge other", ["merge"]),
    "merge aborted": ("git reset -q --hard; git merge other; git merge --abort", []),
    "rebase": ("git reset -q --hard; git rebase -q -X ours other", ["rebase"]),
    "rebase stopped": ("git reset -q --hard; git rebase -q other", ["rebase", "state"]),
    "cherry-pick": ("git reset -q --hard; git cherry-pick -X ours other", ["commit"]),
    "cherry-pick stopped": ("git reset -q --hard; git cherry-pick other", ["state"]),
    "revert": ("git reset -q --hard; git revert --no-edit HEAD", ["commit"]),
    "update-ref": ("git update-ref refs/heads/main HEAD~1", ["head"]),
    "fetch": ("git fetch -q . main:copied", ["branch"]),
    "bisect": ("git bisect start", ["state"]),
    "packed": ("git pack-refs --all", []),
    "collected": ("git gc -q", []),
}


@pytest.fixture(params=["plain", "linked"])
def project(repo: Repo, request: pytest.FixtureRequest) -> Repo:
    for number in range(2):
        repo.write("a", f"{number}\n")
        repo.commit(str(number))
    repo.git("tag", "v1")
    repo.git("switch", "-qc", "other")
    repo.write("a", "theirs\n")
    repo.write("b", "theirs\n")
    repo.commit("theirs")
    repo.git("switch", "-q", "main")
    repo.write("a", "ours\n")
    repo.commit("ours")
    if request.param == "linked":
        repo.git("switch", "-q", "--detach")
        repo.git("worktree", "add", "-q", "../linked", "main")
        repo = Repo(repo.path.parent / "linked", init=False)
    repo.write("a", "dirty\n")
    return repo


@pytest.mark.parametrize(("script", "words"), WORDS.values(), ids=[name.replace(" ", "-") for name in WORDS])
def test_each_move_has_its_word(project: Repo, script: str, words: list[str]) -> None:
    repository = Discovery(project.top, os.environb).finish()
    if script.startswith("git stash pop"):
        project.git("stash", "-q")
    before = references(repository)
    sh(project, script)()
    found = moved(repository, before)
    # Git resets HEAD in a stash, and checks out what it resets or merges onto: those two may stand beside.
    assert set(found) - {"reset", "checkout"} == set(words) - {"reset", "checkout"}
    assert set(words) <= set(found)


def test_a_repository_that_is_gone_is_a_move_of_head(project: Repo) -> None:
    repository = Discovery(project.top, os.environb).finish()
    before = references(repository)
    sh(project, "rm -rf .git ../project/.git")()
    assert "head" in moved(repository, before)


def test_without_a_reflog_a_move_is_told_all_the_same(repo: Repo) -> None:
    repo.git("config", "core.logAllRefUpdates", "false")
    repo.commit()
    repository = Discovery(repo.top, os.environb).finish()
    before = references(repository)
    repo.commit("more")
    assert moved(repository, before) == ["branch"]


def test_the_first_commit_is_a_commit(repo: Repo) -> None:
    repository = Discovery(repo.top, os.environb).finish()
    before = references(repository)
    repo.commit()
    assert moved(repository, before) == ["commit"]

"""The private repository: nobody's program is started, nobody's setting changes an answer, `.git` does not notice."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from ckpt_run.capture.copies import Limits
from ckpt_run.capture.git import Discovery
from ckpt_run.capture.private import make_private_repository

from .kit import BLIND, SURVEYED, Repo, judged

MARKING = {
    "fsmonitor": [("core.fsmonitor", "{mark}")],
    "fsmonitor daemon": [("core.fsmonitor", "true"), ("core.fsmonitorHookVersion", "2")],
    "hooks path": [("core.hooksPath", "{hooks}")],
    "filter": [("filter.f.clean", "{mark}; cat"), ("filter.f.smudge", "{mark}; cat"), ("filter.f.required", "true")],
    "filter process": [("filter.f.process", "{mark}"), ("filter.f.required", "true")],
    "diff driver": [("diff.f.command", "{mark}"), ("diff.f.textconv", "{mark}"), ("diff.external", "{mark}")],
    "merge driver": [("merge.f.driver", "{mark}")],
    "signing": [("commit.gpgSign", "true"), ("gpg.program", "{mark}"), ("tag.gpgSign", "true")],
    "alias": [("alias.status", "!{mark}"), ("alias.ls-files", "!{mark}"), ("alias.rev-parse", "!{mark}")],
    "pager": [("core.pager", "{mark}"), ("pager.status", "true"), ("pager.config", "true")],
    "editor": [("core.editor", "{mark}"), ("sequence.editor", "{mark}"), ("core.askPass", "{mark}")],
    "transport": [("core.sshCommand", "{mark}"), ("core.gitProxy", "{mark}"), ("credential.helper", "!{mark}")],
    "include": [("include.path", "{included}")],
    "include if": [("includeIf.gitdir:/**.path", "{included}")],
    "partial clone": [
        ("remote.o.url", "ext::{mark}"),
        ("remote.o.promisor", "true"),
        ("protocol.ext.allow", "always"),
    ],
    "submodule": [("submodule.recurse", "true"), ("status.submoduleSummary", "true"), ("diff.submodule", "log")],
}
VARIABLES = {
    "GIT_EXTERNAL_DIFF": "{mark}",
    "GIT_SSH_COMMAND": "{mark}",
    "GIT_PAGER": "{mark}",
    "GIT_EDITOR": "{mark}",
    "GIT_ASKPASS": "{mark}",
    "GIT_TRACE": "{trace}",
    "GIT_TRACE2_EVENT": "{trace}",
    "GIT_TRACE_SETUP": "{trace}",
    "GIT_REDIRECT_STDERR": "{trace}",
}


@pytest.fixture
def traps(lived_in: Repo) -> dict[str, str]:
    """Programs and files that leave a mark when somebody uses them."""
    place = lived_in.path.parent
    mark = place / "mark"
    marker = place / "marker"
    marker.write_text(f"#!/bin/sh\necho \"$0 $*\" >> '{mark}'\n")
    marker.chmod(0o755)
    hooks = place / "hooks"
    hooks.mkdir()
    for name in ("post-index-change", "fsmonitor-watchman", "post-checkout", "pre-commit", "reference-transaction"):
        (hooks / name).write_text(marker.read_text())
        (hooks / name).chmod(0o755)
        lived_in.write(f".git/hooks/{name}", marker.read_text(), 0o755)
    (place / "included").write_text(
        f'[core]\n\tfsmonitor = {marker}\n\thooksPath = {hooks}\n[filter "f"]\n\tclean = {marker}\n'
    )
    lived_in.write(".gitattributes", "*.txt filter=f diff=f merge=f\n")
    return {"mark": str(marker), "hooks": str(hooks), "included": str(place / "included"), "trace": str(mark)}


def nothing_was_started(lived_in: Repo) -> None:
    mark = lived_in.path.parent / "mark"
    assert not mark.exists(), mark.read_text()


@pytest.mark.parametrize("case", MARKING.values(), ids=[name.replace(" ", "-") for name in MARKING])
def test_no_program_of_a_config_is_started(
    lived_in: Repo, traps: dict[str, str], limits: Limits, case: list[tuple[str, str]]
) -> None:
    for key, value in case:
        lived_in.git("config", key, value.format(**traps))
    lived_in.age()
    Path(lived_in.path.parent / "mark").unlink(missing_ok=True)  # our own refresh may have started one
    judged(lived_in, "echo x >> clean.txt; echo x >> dirty.txt; rm src/a.py", limits)
    nothing_was_started(lived_in)


def test_no_program_of_a_variable_is_started(
    lived_in: Repo, traps: dict[str, str], monkeypatch: pytest.MonkeyPatch, limits: Limits
) -> None:
    lived_in.age()
    Path(lived_in.path.parent / "mark").unlink(missing_ok=True)  # our own refresh may have started one
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value.format(**traps))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "2")
    for number, (key, value) in enumerate((("core.fsmonitor", traps["mark"]), ("status.short", "true"))):
        monkeypatch.setenv(f"GIT_CONFIG_KEY_{number}", key)
        monkeypatch.setenv(f"GIT_CONFIG_VALUE_{number}", value)

    def command() -> None:
        with open(lived_in.at("clean.txt"), "a") as file:
            file.write("x\n")

    assert set(judged(lived_in, command, limits).changes) == {b"clean.txt"}
    nothing_was_started(lived_in)


SETTINGS = [
    ("status.showUntrackedFiles", "no"),
    ("status.showUntrackedFiles", "normal"),
    ("status.relativePaths", "true"),
    ("status.short", "true"),
    ("status.branch", "true"),
    ("status.showStash", "true"),
    ("status.renames", "copies"),
    ("status.renameLimit", "1"),
    ("status.displayCommentPrefix", "true"),
    ("status.submoduleSummary", "true"),
    ("color.ui", "always"),
    ("color.status", "always"),
    ("column.ui", "always"),
    ("core.quotePath", "true"),
    ("core.quotePath", "false"),
    ("core.precomposeUnicode", "true"),
    ("core.abbrev", "4"),
    ("core.untrackedCache", "true"),
    ("core.preloadIndex", "false"),
    ("core.trustctime", "false"),
    ("core.checkStat", "minimal"),
    ("core.splitIndex", "true"),
    ("core.useReplaceRefs", "false"),
    ("diff.noprefix", "true"),
    ("diff.renames", "copies"),
    ("diff.ignoreSubmodules", "none"),
    ("feature.manyFiles", "true"),
    ("index.version", "4"),
    ("index.skipHash", "true"),
    ("i18n.logOutputEncoding", "latin1"),
    ("log.showSignature", "true"),
    ("advice.statusHints", "true"),
]


def answer(repo: Repo, folder: Path) -> bytes:
    repository = Discovery(repo.top, os.environb).finish()
    return make_private_repository(repository, os.fsencode(folder), os.environb, index=None).status().answer()


def test_no_setting_changes_what_git_answers(lived_in: Repo, tmp_path: Path) -> None:
    plain = answer(lived_in, tmp_path / "plain")
    assert b"new/inner.txt" in plain
    assert b"build/" in plain
    for number, (key, value) in enumerate(SETTINGS):
        lived_in.git("config", key, value)
        assert answer(lived_in, tmp_path / str(number)) == plain, f"{key}={value}"


def everything_in_git(repo: Repo) -> dict[str, tuple[int, int, int, int, bytes]]:
    found = {}
    for folder, folders, files in os.walk(repo.path / ".git"):
        for name in (*folders, *files):
            place = os.path.join(folder, name)
            info = os.lstat(place)
            data = Path(place).read_bytes() if stat.S_ISREG(info.st_mode) else b""
            found[place] = (info.st_ino, info.st_mode, info.st_mtime_ns, info.st_ctime_ns, data)
    return found


@pytest.mark.parametrize("setting", ["plain", "split", "cache"])
def test_nothing_in_git_is_written(lived_in: Repo, limits: Limits, setting: str) -> None:
    if setting == "split":
        lived_in.git("update-index", "--split-index")
    if setting == "cache":
        lived_in.git("update-index", "--untracked-cache")
    lived_in.write("src/a.py", lived_in.read("src/a.py"))  # stat data that a status would refresh
    before = everything_in_git(lived_in)
    judged(lived_in, lambda: os.unlink(lived_in.at("clean.txt")), limits)
    assert everything_in_git(lived_in) == before


def test_a_lock_of_somebody_else_is_no_matter(lived_in: Repo, limits: Limits) -> None:
    lived_in.write(".git/index.lock", "")
    lived_in.write(".git/HEAD.lock", "")
    assert judged(lived_in, "echo x >> clean.txt", limits).names == {b"clean.txt": "modified"}


def test_inside_a_hook_the_projects_own_index_counts(
    lived_in: Repo, monkeypatch: pytest.MonkeyPatch, limits: Limits
) -> None:
    lived_in.age()
    monkeypatch.setenv("GIT_DIR", os.fsdecode(lived_in.top) + "/.git")
    monkeypatch.setenv("GIT_INDEX_FILE", ".git/next-index-1.lock")
    monkeypatch.setenv("GIT_PREFIX", "src/")
    found = judged(lived_in, lambda: os.unlink(lived_in.at("clean.txt")), limits)
    assert found.names == {b"clean.txt": "deleted"}


@pytest.mark.parametrize("kind", ["unborn", "sha256", "linked", "reftable-less", "intent", "alternates"])
def test_each_kind_of_repository(repo: Repo, limits: Limits, kind: str) -> None:
    if kind == "sha256":
        repo = Repo(repo.path.parent / "sha256", "--object-format=sha256")
    repo.write("a", "a\n")
    repo.write("b", "b\n")
    if kind == "unborn":
        repo.git("add", "a")
    elif kind == "intent":
        repo.git("add", "-N", "a")
    else:
        repo.commit()
    if kind == "linked":
        repo.git("worktree", "add", "-q", "../linked")
        repo = Repo(repo.path.parent / "linked", init=False)
    if kind == "alternates":
        repo.git("clone", "-q", "-s", ".", "../shared")
        repo = Repo(repo.path.parent / "shared", init=False)
    repo.age()
    found = judged(repo, "echo x >> a; rm b; echo c > c", limits)
    assert not found.gaps
    assert found.names == {b"a": "modified", b"b": "deleted", b"c": "created"}


def test_the_rules_are_those_from_before(lived_in: Repo) -> None:
    """The command rewrites the exclude file and the config, and Git is asked again: under the old ones."""
    lived_in.write(".git/info/exclude", "hidden.txt\n")
    lived_in.write("hidden.txt", "mine\n")
    lived_in.age()
    script = (
        "echo > .git/info/exclude; git config core.fileMode false; git config core.autocrlf true; echo x >> clean.txt"
    )
    assert set(judged(lived_in, script, BLIND).changes) == {b"clean.txt"}
    assert SURVEYED.survey_files_max

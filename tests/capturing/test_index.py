"""The reader of Git's index, held against what Git itself says of it."""

from __future__ import annotations

import os
import re

import pytest

from ckpt_run.capture import index as git_index
from ckpt_run.capture.baseline import Part
from ckpt_run.capture.git import Discovery
from ckpt_run.capture.moved import references
from ckpt_run.capture.private import make_private_repository

from .kit import Repo

STAT = re.compile(
    rb"ctime: (\d+):(\d+)\n.*mtime: (\d+):(\d+)\n.*dev: (\d+)\tino: (\d+)\n.*\n.*size: (\d+)", re.DOTALL
)


def read(repo: Repo, *, oid_bytes: int = 20) -> git_index.Index:
    return git_index.parse(repo.read(".git/index"), oid_bytes=oid_bytes)


def told_by_git(repo: Repo) -> dict[bytes, tuple[int, bytes, int, tuple[int, ...], bytes]]:
    """Path -> (mode, oid, size, stat, tag), for the entries of stage 0."""
    tags = dict(item.split(b" ", 1)[::-1] for item in repo.git("ls-files", "-v", "-z").split(b"\0") if item)
    found = {}
    shown = repo.git("ls-files", "-s", "-z", "--debug")
    for entry in re.finditer(rb"(\d{6}) ([0-9a-f]+) (\d)\t([^\0]*)\0((?:  [^\n]*\n)+)", shown):
        mode, oid, stage, path, debug = entry.groups()
        match = STAT.search(debug)
        assert match is not None, debug
        numbers = tuple(map(int, match.groups()))
        if stage == b"0":
            found[path] = (int(mode, 8), oid, numbers[6], numbers[:6], tags[path])
    return found


def agrees(repo: Repo, *, oid_bytes: int = 20) -> git_index.Index:
    index = read(repo, oid_bytes=oid_bytes)
    told = told_by_git(repo)
    mine = {path: (one.mode, one.oid, one.size_bytes, one.stat) for path, one in index.tracked.items()}
    theirs = {path: one[:4] for path, one in told.items() if path not in index.intended}
    assert mine == theirs
    flags = {b"H": None, b"h": "assume-unchanged", b"S": "skip-worktree", b"s": "skip-worktree"}
    assert {path: one.flag for path, one in index.tracked.items()} == {path: flags[told[path][4]] for path in mine}
    return index


@pytest.mark.parametrize("version", ["2", "3", "4"])
def test_each_version_of_the_format(lived_in: Repo, version: str) -> None:
    lived_in.write("deep/" + "x" * 200 + "/" + "y" * 200, "long\n")
    lived_in.git("add", "-A")
    lived_in.git("update-index", "--index-version", version)
    lived_in.git("update-index", "--assume-unchanged", "clean.txt")
    if version != "2":  # the extended flags make it version 3 at least
        lived_in.git("update-index", "--skip-worktree", "src/a.py", "tool.sh")
    index = agrees(lived_in)
    assert lived_in.read(".git/index")[7:8] == version.encode().replace(b"2", b"\2").replace(b"3", b"\3").replace(
        b"4", b"\4"
    )
    assert len(index.tracked) > 10


def test_a_name_longer_than_the_length_field(repo: Repo) -> None:
    """Over 4095 bytes the field is full, and the name ends at its NUL (version 2 and 3)."""
    name = "/".join(["n" * 250] * 17)
    blob = repo.git("hash-object", "-w", "--stdin", given=b"x").strip().decode()
    repo.git("update-index", "--add", "--cacheinfo", f"100644,{blob},{name}")
    repo.git("update-index", "--add", "--cacheinfo", f"100644,{blob},zz")
    assert set(agrees(repo).tracked) == {name.encode(), b"zz"}


def test_sha256(tmp_path: object, repo: Repo) -> None:
    other = Repo(repo.path.parent / "sha256", "--object-format=sha256")
    other.write("a", "a\n")
    other.commit()
    index = agrees(other, oid_bytes=32)
    assert len(index.tracked[b"a"].oid) == 64


def test_conflicts_are_no_tracked_files(repo: Repo) -> None:
    repo.write("a", "base\n")
    repo.commit()
    repo.git("switch", "-qc", "other")
    repo.write("a", "theirs\n")
    repo.commit()
    repo.git("switch", "-q", "main")
    repo.write("a", "ours\n")
    repo.commit()
    repo.git("merge", "other", check=False)
    index = agrees(repo)
    assert index.conflicts == {b"a"}
    assert not index.tracked


def test_intent_to_add_has_no_blob(lived_in: Repo) -> None:
    lived_in.git("add", "-N", "new.txt")
    assert agrees(lived_in).intended == {b"new.txt"}


def test_a_sparse_index_names_its_folders(lived_in: Repo) -> None:
    lived_in.git("commit", "-qam", "all")
    lived_in.git("sparse-checkout", "set", "--cone", "--sparse-index", "new")
    assert read(lived_in).sparse_folders == {b"src"}


def test_a_split_index_is_told_and_joined(lived_in: Repo) -> None:
    lived_in.git("update-index", "--split-index")
    lived_in.write("src/a.py", "more\n")
    lived_in.git("add", "src/a.py")
    assert read(lived_in).is_split
    repository = Discovery(lived_in.top, os.environb).finish()
    folder = os.fsencode(lived_in.path.parent / "private")
    private = make_private_repository(repository, folder, os.environb, index=None)
    part = Part(b"", repository, private, None, references(repository))
    assert set(part.index.tracked) == set(told_by_git(lived_in))
    assert read(lived_in).is_split, "the project's own index was joined"


def test_no_index_is_an_empty_one(repo: Repo) -> None:
    assert not git_index.parse(b"", oid_bytes=20).tracked
    assert git_index.count_entries(b"") == 0


def test_the_count_is_in_the_header(lived_in: Repo) -> None:
    data = lived_in.read(".git/index")
    assert git_index.count_entries(data[:12]) == len(read(lived_in).tracked)
    assert git_index.count_entries(b"XIRC" + data[4:12]) == 0


@pytest.mark.parametrize("version", ["2", "4"])
def test_a_torn_or_foreign_index_is_refused(lived_in: Repo, version: str) -> None:
    lived_in.git("update-index", "--index-version", version)
    data = lived_in.read(".git/index")
    for foreign in (b"not an index at all", b"DIRC" + b"\0\0\0\x05" + data[8:], b"\0" * 64):
        with pytest.raises(git_index.NotAnIndex):
            git_index.parse(foreign, oid_bytes=20)
    whole = set(read(lived_in).tracked)
    for end in range(1, len(data), 7):
        try:
            torn = git_index.parse(data[:end], oid_bytes=20)
        except git_index.NotAnIndex:
            continue
        assert set(torn.tracked) == whole, f"{end} bytes of {len(data)} were taken for an index"

"""Copies of uncommitted files: within limits, read once, never wrong, whatever became of the packs."""

from __future__ import annotations

import os
import threading
import time

import pytest

from ckpt_run.capture import copies, project, spool, worktree
from ckpt_run.capture.copies import COARSE_CLOCK_NS, Copied, Limits, Memory, is_recent, link_packs
from ckpt_run.capture.model import ABSENT, Fingerprint, Kind
from ckpt_run.capture.worktree import Tree

from .kit import Found, Repo, capture, judged, where


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The names of the files that were opened for reading."""
    names: list[bytes] = []
    real = worktree.read_at

    def count(folder: int, name: bytes, limit_bytes: int, *, keep: bool) -> object:
        names.append(name)
        return real(folder, name, limit_bytes, keep=keep)

    monkeypatch.setattr(worktree, "read_at", count)
    return names


def run(repo: Repo, script: str = "true", limits: Limits | None = None) -> Found:
    return judged(repo, script, limits or Limits(), remember=True)


def test_what_did_not_change_is_not_read_again(lived_in: Repo, opened: list[bytes]) -> None:
    run(lived_in)
    first = set(opened)
    assert {b"dirty.txt", b"new.txt", b"staged.txt", b".env", b"inner.txt"} <= first
    opened.clear()
    run(lived_in)
    assert opened == []
    lived_in.write("dirty.txt", "more work\n")
    time.sleep(0.03)
    run(lived_in)
    assert set(opened) == {b"dirty.txt"}


def test_a_copy_that_was_not_read_again_is_still_exact(lived_in: Repo) -> None:
    for _ in range(3):
        run(lived_in)
    found = run(lived_in, "rm new.txt; echo > dirty.txt")
    assert found.bytes_before(b"new.txt") == b"untracked\n"
    assert found.bytes_before(b"dirty.txt") == b"my work\n"


def test_a_file_that_was_just_written_is_read_again(lived_in: Repo, opened: list[bytes]) -> None:
    """A second write in the same tick of the kernel's clock leaves its stamps as they were."""
    place = lived_in.write("new.txt", "now\n")
    soon = time.time_ns() + 10**10  # however slow this machine is, it counts as just written
    os.utime(place, ns=(soon, soon))
    run(lived_in)
    opened.clear()
    run(lived_in)
    assert b"new.txt" in opened


def test_the_same_size_with_the_mtime_put_back_is_read_again(lived_in: Repo) -> None:
    run(lived_in)
    place = lived_in.at("new.txt")
    info = os.stat(place)
    with open(place, "r+b") as file:
        file.write(b"UNTRACKED\n")
    os.utime(place, ns=(info.st_atime_ns, info.st_mtime_ns))
    assert run(lived_in, "rm new.txt").bytes_before(b"new.txt") == b"UNTRACKED\n"


def test_recent_is_what_a_later_write_could_look_like() -> None:
    def seen(mtime: int, ctime: int) -> Fingerprint:
        return (1, 1, 0o100644, 1, mtime, ctime, 0, 0)

    now = 10**18 + 500_000_000
    assert is_recent(seen(now, 0), now)
    assert is_recent(seen(0, now), now)
    assert is_recent(seen(now - COARSE_CLOCK_NS, 0), now)
    assert not is_recent(seen(now - COARSE_CLOCK_NS - 1, 0), now)
    whole = 10**18 - 1_000_000_000  # a stamp of whole seconds: the file system may keep no finer ones
    assert is_recent(seen(whole, whole), now)
    assert not is_recent(seen(whole - 10**9, whole - 10**9), now)


def packs(repo: Repo) -> set[bytes]:
    return set(os.listdir(where(repo).memory + b"/packs"))


def test_packs_that_nobody_needs_go(lived_in: Repo) -> None:
    for number in range(12):
        lived_in.write(f"more{number}.txt", f"{number}\n")
        time.sleep(0.03)
        run(lived_in)
    assert len(packs(lived_in)) <= 8
    lived_in.git("add", "-A")
    lived_in.git("commit", "-qm", "all")
    for name in (".env", "app.log"):
        os.unlink(lived_in.at(name))
    lived_in.age()
    run(lived_in)
    assert len(packs(lived_in)) <= 1


def test_every_copy_is_exact_after_packs_were_retired(lived_in: Repo) -> None:
    for number in range(12):
        lived_in.write(f"more{number}.txt", f"{number}\n")
        time.sleep(0.03)
        run(lived_in)
    found = run(lived_in, "git clean -qfd; git checkout -q .")
    assert found.bytes_before(b"more0.txt") == b"0\n"
    assert not found.gaps


def test_a_pack_that_is_gone_is_copied_anew(lived_in: Repo) -> None:
    run(lived_in)
    for name in packs(lived_in):
        os.unlink(where(lived_in).memory + b"/packs/" + name)
    found = run(lived_in, "rm new.txt; echo x > dirty.txt; rm -r new")
    assert not found.gaps
    assert found.bytes_before(b"new.txt") == b"untracked\n"


def test_a_damaged_pack_is_told_and_never_given_out(lived_in: Repo) -> None:
    run(lived_in)
    for name in packs(lived_in):
        place = where(lived_in).memory + b"/packs/" + name
        with open(place, "r+b") as file:
            data = file.read()
            file.seek(0)
            file.write(data.replace(b"untracked", b"UNTRACKED"))
    found = run(lived_in, "rm new.txt dirty.txt")
    assert found.gaps == {b"new.txt": "bytes_lost"}
    assert found.bytes_before(b"dirty.txt") == b"my work\n"


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "foreign"])
def test_a_damaged_table_is_the_same_as_none(lived_in: Repo, damage: str) -> None:
    run(lived_in)
    table = where(lived_in).memory + b"/table"
    with open(table, "rb") as file:
        data = file.read()
    other = {
        "cut": data[:-3],
        "flip": data[:40] + bytes([data[40] ^ 1]) + data[41:],
        "empty": b"",
        "foreign": b"x" * 99,
    }
    with open(table, "wb") as file:
        file.write(other[damage])
    found = run(lived_in, "rm new.txt")
    assert found.bytes_before(b"new.txt") == b"untracked\n"


def test_a_table_of_another_format_is_the_same_as_none(lived_in: Repo) -> None:
    run(lived_in)
    copies.write_checked(where(lived_in).memory + b"/table", (1, {}, [], []))
    assert run(lived_in, "rm new.txt").bytes_before(b"new.txt") == b"untracked\n"


def test_two_runs_at_once_each_have_their_copies(lived_in: Repo) -> None:
    """The inner run ends first, and retires packs that the outer one has linked."""
    run(lived_in)
    lived_in.write("later.txt", "later\n")
    time.sleep(0.03)

    def inner() -> None:
        lived_in.git("stash", "-q", "-u")
        run(lived_in, "echo x > x.txt")
        for name in packs(lived_in):
            os.unlink(where(lived_in).memory + b"/packs/" + name)

    found = judged(lived_in, inner, remember=False)
    assert found.bytes_before(b"new.txt") == b"untracked\n"
    assert found.bytes_before(b"later.txt") == b"later\n"
    assert not found.gaps


def test_many_runs_at_once_never_disturb_one_another(lived_in: Repo) -> None:
    faults: list[BaseException] = []

    def many(own: int) -> None:
        try:
            for number in range(4):
                lived_in.write(f"own/{own}", f"{number}\n")
                found = capture(lived_in, lambda: None, remember=True)
                assert b"dirty.txt" not in found.changes
        except BaseException as fault:  # noqa: BLE001  # the thread's end must reach the test
            faults.append(fault)

    threads = [threading.Thread(target=many, args=(own,)) for own in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults
    assert run(lived_in, "rm dirty.txt").bytes_before(b"dirty.txt") == b"my work\n"


def copier(repo: Repo, limits: Limits) -> tuple[copies.Copier, spool.Spool]:
    place = where(repo)
    project.prepare(place)
    held = spool.open_spool(place, os.urandom(5).hex())
    return copies.Copier(Tree(repo.top), held.fd, held.pack, {}, limits, time.time_ns()), held


def test_each_limit_has_its_reason_and_numbers(repo: Repo) -> None:
    for name, size in (("a", 40), ("b", 101), ("c", 40), ("d", 40), ("e", 1)):
        repo.write(name, b"x" * size)
    os.mkfifo(repo.at("pipe"))
    mine, held = copier(repo, Limits(copy_bytes_max=100, files_per_run_max=2, project_bytes_max=1000))
    mine.copy([b"a", b"b", b"pipe", b"none", b"c", b"d"], None)
    assert set(mine.copied) == {b"a", b"none", b"c"}
    assert mine.copied[b"none"].entry is ABSENT
    told = {path: (why.reason, why.numbers) for path, why in mine.uncopied.items()}
    assert told == {
        b"b": ("too_large", {"size_bytes": 101, "limit_bytes": 100}),
        b"pipe": ("special_file", {}),
        b"d": ("too_many", {"limit_files": 2}),
    }
    held.remove()
    mine, held = copier(repo, Limits(project_bytes_max=100))
    mine.copy([b"a", b"c", b"d", b"e"], None)
    assert {path: (why.reason, why.numbers) for path, why in mine.uncopied.items()} == {
        b"d": ("budget", {"limit_bytes": 100})
    }
    assert b"e" in mine.copied, "one that is too large for the rest does not shut the door"
    held.remove()


def test_bytes_lie_behind_one_another_and_are_checked(repo: Repo) -> None:
    repo.write("a", b"first")
    repo.write("b", b"second")
    mine, held = copier(repo, Limits())
    mine.copy([b"a", b"b"], None)
    assert mine.written == 11
    assert copies.bytes_of(mine.copied[b"b"], [b"/nowhere", held.path]) == b"second"
    with open(held.path, "r+b") as file:
        file.write(b"FIRST")
    assert copies.bytes_of(mine.copied[b"a"], [held.path]) is None
    again = copies.unflat(mine.copied[b"b"].flat())
    assert again.entry == mine.copied[b"b"].entry
    assert again.fingerprint == mine.copied[b"b"].fingerprint
    assert again.entry.kind == Kind.FILE
    held.remove()


def test_a_missing_pack_is_named(repo: Repo) -> None:
    _, held = copier(repo, Limits())
    copied = {b"a": Copied(ABSENT, None, b"gone", 0, 0), b"b": Copied(ABSENT, None, b"", 0, 0)}
    assert link_packs(copied, Memory(where(repo).memory).packs, held.folder + b"/packs") == {b"gone"}
    held.remove()


def test_only_one_run_can_have_the_refreshed_index(lived_in: Repo) -> None:
    memory = Memory(where(lived_in).memory)
    project.prepare(where(lived_in))
    fingerprint = (1, 2, 3, 4, 5, 6, 7, 8)
    for content in ("old", "new"):
        place = lived_in.path.parent / "index"
        place.write_text(content)
        memory.keep_index(os.fsencode(place), fingerprint)
    assert memory.claim_index((9, 2, 3, 4, 5, 6, 7, 8)) is None
    assert memory.claim_index(None) is None
    claimed = memory.claim_index(fingerprint)
    assert claimed is not None
    with open(claimed) as file:
        assert file.read() == "new"
    os.rename(claimed, lived_in.path.parent / "mine")
    assert memory.claim_index(fingerprint) is None

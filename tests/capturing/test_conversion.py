"""Would Git convert a file? Then its blob is not what stood in the worktree, unless its size says so."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ckpt_run.capture.conversion import exact_bytes
from ckpt_run.capture.copies import Limits
from ckpt_run.capture.git import Repository

from .kit import BLIND, BOTH, BOTH_NAMES, SURVEYED, Repo, judged


def settings_of(**values: str) -> Repository:
    named = {key.replace("__", ".").encode(): value.encode() for key, value in values.items()}
    return Repository(b"/top", b"/top/.git", b"/top/.git", None, named)


PLAIN = settings_of()
DRIVEN = settings_of(filter__rot__clean="tr a-z n-za-m")
AUTO = settings_of(core__autocrlf="true")


@pytest.mark.parametrize(
    ("blob", "size", "attributes", "repository", "expected"),
    [
        (b"a\n", 2, {}, PLAIN, b"a\n"),
        (b"a\n", None, {}, PLAIN, b"a\n"),
        (b"a\n", 3, {}, PLAIN, "size"),
        (b"a\n", 2, {b"text": b"auto"}, PLAIN, b"a\n"),
        (b"a\n", 3, {b"text": b"auto"}, PLAIN, b"a\r\n"),
        (b"a\nb\n", 5, {b"text": b"auto"}, PLAIN, "text"),
        (b"a\r\nb\n", 6, {b"text": b"set"}, PLAIN, "text"),
        (b"a\n", None, {b"text": b"auto"}, PLAIN, "text"),
        (b"a\n", None, {b"text": b"unset", b"eol": b"crlf"}, PLAIN, b"a\n"),
        (b"a\n", None, {b"crlf": b"input"}, PLAIN, "text"),
        (b"a\n", None, {}, AUTO, "text"),
        (b"a\n", None, {b"text": b"unset"}, AUTO, b"a\n"),
        (b"$Id$\n", None, {b"ident": b"set"}, PLAIN, "ident"),
        (b"$Id$\n", 5, {b"ident": b"set"}, PLAIN, b"$Id$\n"),
        (b"$Id$\n", 47, {b"ident": b"set"}, PLAIN, "ident"),
        (b"$Id$\n", 6, {b"ident": b"set", b"text": b"set"}, PLAIN, "ident"),
        (b"a\n", 2, {b"filter": b"rot"}, DRIVEN, "filter"),
        (b"a\n", 2, {b"filter": b"rot"}, PLAIN, b"a\n"),
        (b"a\n", 2, {b"filter": b"other"}, DRIVEN, b"a\n"),
        (b"a\n", 2, {b"working-tree-encoding": b"UTF-16"}, PLAIN, "working-tree-encoding"),
        (b"a\n", 2, {b"working-tree-encoding": b"utf-8"}, PLAIN, b"a\n"),
        (b"", 0, {b"text": b"auto"}, PLAIN, b""),
    ],
)
def test_the_table_of_conversions(
    blob: bytes, size: int | None, attributes: dict[bytes, bytes], repository: Repository, expected: bytes | str
) -> None:
    data, converter = exact_bytes(blob, size, attributes, repository)
    assert (converter if data is None else data) == expected


@pytest.mark.parametrize("value", ["true", "input", "Input", "1", "yes", "on", "2", "TRUE"])
def test_each_way_to_write_autocrlf_is_understood(value: str) -> None:
    assert exact_bytes(b"a\n", None, {}, settings_of(core__autocrlf=value)) == (None, "text")


@pytest.mark.parametrize("value", ["false", "no", "off", "0", "", "FALSE"])
def test_each_way_to_switch_autocrlf_off_is_understood(value: str) -> None:
    assert exact_bytes(b"a\n", None, {}, settings_of(core__autocrlf=value)) == (b"a\n", None)


RULES = (
    "",
    "text",
    "-text",
    "text=auto",
    "eol=lf",
    "eol=crlf",
    "text=auto eol=crlf",
    "ident",
    "ident text eol=crlf",
    "crlf=input",
    "binary",
    "filter=rot",
    "filter=nobody",
    "working-tree-encoding=UTF-8",
    "text working-tree-encoding=UTF-16LE",
)
PIECES = st.sampled_from([b"a", b"bc", b"\n", b"\r\n", b"\r", b"$Id$", b"$Id: x $", b"$Id: y $\n", b"\0", b"\xff"])
CONTENT = st.lists(PIECES, max_size=8).map(b"".join)


def driven(repo: Repo) -> None:
    repo.git("config", "filter.rot.clean", "tr a-z n-za-m")
    repo.git("config", "filter.rot.smudge", "tr a-z n-za-m")


def spoil(repo: Repo) -> None:
    """Change every file below the rule folders."""
    for folder, _, files in os.walk(repo.top):
        if b"/.git" not in folder and folder != repo.top:
            for name in files:
                with open(os.path.join(folder, name), "ab") as file:
                    file.write(b"Z\n")


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    contents=st.lists(CONTENT, min_size=3, max_size=6),
    autocrlf=st.sampled_from(["false", "true", "input"]),
    eol=st.sampled_from(["lf", "crlf", "native"]),
    checked_out=st.booleans(),
    turned=st.booleans(),
    limits=st.sampled_from(BOTH),
)
def test_what_is_claimed_of_a_clean_file_stood_in_the_worktree(
    contents: list[bytes], autocrlf: str, eol: str, checked_out: bool, turned: bool, limits: Limits
) -> None:
    with tempfile.TemporaryDirectory(dir=os.environ["HOME"]) as place:
        repo = Repo(Path(place, "project"))
        for key, value in (("core.autocrlf", autocrlf), ("core.eol", eol), ("core.safecrlf", "false")):
            repo.git("config", key, value)
        driven(repo)
        rules = "".join(f"/d{number}/* {rule}\n" for number, rule in enumerate(RULES))
        repo.write(".gitattributes", rules)
        for number, rule in enumerate(RULES):
            for name, content in enumerate(contents):
                data = content.replace(b"\xff", b"").decode().encode("utf-16-le") if "UTF-16" in rule else content
                repo.write(f"d{number}/{name}", data)
        repo.commit()
        if checked_out:
            for number in range(len(RULES)):
                os.rename(repo.at(f"d{number}"), repo.path.parent / f"d{number}")
            repo.git("checkout", "-q", ".")
        if turned:  # the rules change after the files were checked out, and Git does not look at the files again
            turned_rules = [line.replace("filter=rot", "") for line in reversed(rules.split("\n"))]
            repo.write(".gitattributes", "\n".join(turned_rules).replace("filter=nobody", "filter=rot"))
        repo.age()
        judged(repo, lambda: spoil(repo), limits)


@pytest.mark.parametrize("limits", BOTH, ids=BOTH_NAMES)
def test_crlf_files_of_a_text_auto_project_are_exact(repo: Repo, limits: Limits) -> None:
    repo.write(".gitattributes", "* text=auto eol=crlf\n")
    repo.write("a.txt", b"one\r\ntwo\r\n")
    repo.write("lf.txt", b"one\ntwo\n")
    repo.commit()
    repo.age()
    found = judged(repo, "rm a.txt lf.txt", limits)
    assert not found.gaps


@pytest.mark.parametrize("limits", BOTH, ids=BOTH_NAMES)
def test_mixed_line_ends_are_a_gap(repo: Repo, limits: Limits) -> None:
    repo.write(".gitattributes", "* text=auto\n")
    repo.write("mixed.txt", b"one\r\ntwo\n")
    repo.commit()
    repo.age()
    assert judged(repo, "rm mixed.txt", limits).gaps == {b"mixed.txt": "converted"}


@pytest.mark.parametrize("limits", BOTH, ids=BOTH_NAMES)
def test_attributes_that_the_command_rewrites_do_not_count(repo: Repo, limits: Limits) -> None:
    # The rule file is under its own rule only where a survey tells us to copy it.
    repo.write("sub/.gitattributes", "* filter=rot\n" if limits is SURVEYED else "*.txt filter=rot\n")
    repo.write("sub/a.txt", "secret\n")
    driven(repo)
    repo.commit()
    repo.age()
    found = judged(repo, "rm sub/.gitattributes; git config --unset filter.rot.clean; echo x > sub/a.txt", limits)
    assert found.gaps == {b"sub/a.txt": "converted"}
    assert found.changes[b"sub/.gitattributes"].undo == "recover"


@pytest.mark.parametrize("place", [".git/info/attributes", "../attributes", "sub/.gitattributes"])
def test_attributes_count_wherever_they_stand(repo: Repo, place: str) -> None:
    repo.git("config", "core.attributesFile", str(repo.path.parent / "attributes"))
    repo.write("sub/a.txt", "secret\n")
    repo.write(place, "*.txt filter=rot\n")
    driven(repo)
    repo.git("add", "sub/a.txt")
    repo.git("commit", "-qm", "c")
    repo.age()
    found = judged(repo, f"rm {place}; echo x > sub/a.txt", BLIND)
    assert found.gaps[b"sub/a.txt"] == "converted"


def test_attributes_that_nobody_could_copy_make_a_gap(repo: Repo) -> None:
    """Five files may be copied; the changed `.gitattributes` comes after them."""
    repo.write("z/.gitattributes", "")
    repo.write("z/a.enc", "secret\n")
    driven(repo)
    repo.commit()
    repo.write("z/.gitattributes", "*.enc filter=rot\n")
    os.unlink(repo.at("z/a.enc"))
    repo.git("checkout", "-q", "z/a.enc")
    assert repo.read("z/a.enc") == b"frperg\n"
    for number in range(5):
        repo.write(f"a{number}.txt", "untracked\n")
        repo.git("add", f"a{number}.txt")
    repo.age()
    found = judged(repo, "echo x > z/a.enc", Limits(files_per_run_max=5))
    assert found.gaps[b"z/a.enc"] == "converted"


def test_a_racy_entry_of_a_converted_file_is_a_gap(repo: Repo) -> None:
    repo.write(".gitattributes", "*.txt text=auto\n")
    repo.commit()
    repo.write("fresh.txt", b"one\r\n")
    repo.commit()
    found = judged(repo, "rm fresh.txt", SURVEYED)
    assert found.changes[b"fresh.txt"].undo == "recover"  # just written, so it was copied

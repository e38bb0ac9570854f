"""Each fault and reason has its sentence; no name forges a line; nobody is blamed."""

from __future__ import annotations

import string

import pytest

from ckpt_run.capture import errors, model, reasons
from ckpt_run.capture.errors import CkptError, Fault
from ckpt_run.capture.model import ABSENT, Change, Entry, Kind, Run, State
from ckpt_run.capture.reasons import Reason
from ckpt_run.capture.undo.recover import Failure, Kept
from ckpt_run.shim import card, card_verbs

HOSTILE = [
    b"new\nline",
    b"return\rover",
    b"esc\x1b[31mred",
    b"\xff\xfe no utf-8",
    b"tab\t",
    "bidi\u202etxt".encode(),
    b"",
]
BLAME = (
    "you must",
    "you should",
    "your fault",
    "your mistake",
    "invalid",
    "illegal",
    "wrong",
    "bad ",
    "oops",
    "sorry",
)


def names_of(table: type) -> list[str]:
    return [value for name, value in vars(table).items() if name.isupper()]


def is_one_line(text: str) -> bool:
    return text.isprintable() and bool(text)


FACTS = {
    "format": 9,
    "known": 1,
    "id": "abcd",
    "candidates": ["abcd1", "abcd2"],
    "top": b"/elsewhere",
    "key": "points_max",
    "value": "many",
    "allowed": "a number",
    "failures": (Failure(b"a.py", "Permission denied", "between"),),
    "kept": (Kept(b"b.py", b"/store/rescue/1"),),
}
NUMBERS: dict[str, int | str] = {
    "size_bytes": 6 << 20,
    "limit_bytes": 5 << 20,
    "limit_files": 500,
    "attribute": "eol",
    "flag": "skip-worktree",
    "cause": "Permission denied",
    "pattern": "*.log",
    "oid": "0123abcd",
    "to": "new name.py",
}


@pytest.mark.parametrize("fault", names_of(Fault))
def test_each_fault_has_a_sentence_whole_with_and_without_its_facts(fault: str) -> None:
    for error in (CkptError(fault), CkptError(fault, path=b"a.py", cause="Permission denied", **FACTS)):
        text = card.fault(error)
        assert is_one_line(text)
        assert not {"{", "}"} & set(text)
        assert "None" not in text
        assert "()" not in text
        assert "  " not in text


def test_no_sentence_stands_for_a_fault_or_reason_that_is_none() -> None:
    assert set(card.FAULTS) == set(names_of(Fault))
    assert set(card.REASONS) == set(names_of(Reason))
    assert errors.__doc__
    assert reasons.__doc__


@pytest.mark.parametrize("name", names_of(Reason))
def test_each_reason_has_words_and_names_its_numbers(name: str) -> None:
    text = card.reason(name, NUMBERS)
    assert is_one_line(text)
    assert not text.endswith(".")
    for _, fact, _, _ in string.Formatter().parse(card.REASONS[name]):
        if fact is not None:
            assert fact in NUMBERS, "a number that no comment in reasons.py promises"
    assert is_one_line(card.reason(name, {}))


def test_sizes_in_reasons_are_for_people() -> None:
    text = card.reason(Reason.TOO_LARGE, NUMBERS)
    assert "6 MiB" in text
    assert "5 MiB" in text


def test_a_reason_of_a_newer_store_is_shown_by_its_name() -> None:
    assert card.reason("made_of_\x1bglass", {}) == "made of \\x1bglass"


@pytest.mark.parametrize("sentence", [*card.FAULTS.values(), *card.REASONS.values()])
def test_no_sentence_blames_anybody(sentence: str) -> None:
    assert not [word for word in BLAME if word in sentence.lower()]


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_forges_a_line_or_speaks_to_the_terminal(name: bytes) -> None:
    assert is_one_line(card.shown(name))
    text = name.decode("utf-8", "surrogateescape")
    for fault in names_of(Fault):
        facts = {key: text for key in FACTS if key not in {"failures", "kept", "candidates", "top"}}
        error = CkptError(fault, path=name, cause=text, candidates=[text], top=name, file=name, **facts)
        assert is_one_line(card.fault(error)), fault
    for reason in names_of(Reason):
        assert is_one_line(card.reason(reason, dict.fromkeys(NUMBERS, text))), reason
    standing = CkptError(Fault.ROLL_BACK_FAILED, failures=(Failure(name, text, "between"),), kept=(Kept(name, name),))
    assert is_one_line(card.fault(standing))


@pytest.mark.parametrize("name", [name for name in HOSTILE if name])
def test_no_name_forges_a_line_of_a_note_or_card(name: bytes) -> None:
    text = name.decode("utf-8", "surrogateescape")
    gap = Change(name, ABSENT, Entry(Kind.FILE), reason=Reason.IGNORED_LEFT_OUT, numbers={"pattern": text})
    run = Run("abcdef0123", [name], name, 1, ended_ns=2, state=State.ENDED, changes=[gap], background=[(7, text)])
    run.label, run.git_moved = text, [text]
    for line in [*card.note(run).split("\n"), *card.warnings(run).split("\n")]:
        assert is_one_line(line)
    for _, line in card_verbs.point_card(model.Point("p", [run], started_ns=1, prompt=text), {}):
        assert is_one_line(line or "-")
    assert is_one_line(card_verbs.title([name], text, None))
    assert is_one_line(card_verbs.closed_run(run))
    assert is_one_line(card_verbs.by_time_line([name]))
    assert is_one_line(card_verbs.stat_line(name, (1, 0), "time"))
    assert is_one_line(card_verbs.no_diff(gap))
    assert is_one_line(card.powerless([name]))
    assert is_one_line(card.not_traced(text))


def test_two_names_that_differ_are_never_shown_alike() -> None:
    names = [b"a\\nb", b"a\nb", b"a", b" a", b"a ", b'"a"', b"\xff", b"\\xff", "ÿ".encode(), b"\xc3\xbf\xff"]
    assert len({card.shown(name) for name in names}) == len(names)


def test_numbers_agree_with_their_nouns() -> None:
    assert (card.counted(1, "file"), card.counted(2, "file"), card.counted(0, "file")) == (
        "1 file",
        "2 files",
        "0 files",
    )
    assert card.counted(1234, "file") == "1,234 files"
    sizes = [card.size(number) for number in (0, 1, 1023, 1024, 1536, 5 << 20, 3 << 30, 5 << 40)]
    assert sizes == ["0 bytes", "1 byte", "1023 bytes", "1 KiB", "1.5 KiB", "5 MiB", "3 GiB", "5120 GiB"]
    assert card.named(["a", "b", "c", "d", "e", "f", "g"]) == "a, b, c, d, e and 2 more"
    ages = [card_verbs.age(0, seconds * 10**9) for seconds in (0, 59, 60, 3599, 3600, 86_399, 86_400, 10**7)]
    assert ages == ["0 s ago", "59 s ago", "1 min ago", "59 min ago", "1 h ago", "23 h ago", "1 d ago", "115 d ago"]
    assert card_verbs.age(10**9, 0) == "0 s ago"


def test_the_line_after_a_run_counts_files_and_not_the_folders_around_them() -> None:
    folder = Change(b"new", ABSENT, Entry(Kind.DIRECTORY, mode=0o755))
    made = Change(b"new/file", ABSENT, Entry(Kind.FILE, mode=0o644))
    gap = Change(b"b", ABSENT, Entry(Kind.FILE), reason=Reason.MAYBE_THERE_BEFORE)
    run = Run("abcdef0123", [b"x"], b"/", 1, changes=[folder, made, gap])
    assert card.note(run) == "ckpt: 2 files changed (1 Undo leaves) · ckpt undo"
    assert card.warnings(run) == "ckpt: Undo leaves 1 of 2 changed files: b · ckpt show abcdef0123"
    run.changes = [made]
    assert (card.note(run), card.warnings(run)) == ("ckpt: 1 file changed · ckpt undo", "")

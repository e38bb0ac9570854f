"""Each three kinds of entry have their case, and each case says what stands at the path afterwards."""

from __future__ import annotations

from itertools import product

import pytest

from ckpt_run.capture.model import ABSENT, Entry, Kind
from ckpt_run.capture.reasons import Reason
from ckpt_run.capture.undo.change import CASES, MERGE_BYTES_MAX, Facts, Outcome, Rule, undo_change

KINDS = (Kind.FILE, Kind.LINK, Kind.DIRECTORY, Kind.SPECIAL, Kind.ABSENT)
SPECIAL = Entry(Kind.SPECIAL, mode=0o644)


def file(text: str, mode: int | None = 0o644, size: int | None = None) -> Entry:
    return Entry(Kind.FILE, mode=mode, size=len(text) if size is None else size, digest=text.encode())


def link(target: str) -> Entry:
    return Entry(Kind.LINK, target=target.encode())


def folder(mode: int | None = 0o755) -> Entry:
    return Entry(Kind.DIRECTORY, mode=mode)


def outcome(now: Entry, before: Entry, after: Entry, *, text: bool | None = True) -> Outcome:
    return undo_change(now, before, after, facts=Facts(lambda _: text, 0o644, 0o755))


def entries_of(kind: str) -> list[Entry]:
    """Three entries of a kind that differ, where entries of that kind can."""
    return {
        Kind.FILE: [file("one"), file("two", 0o600), file("three", 0o755)],
        Kind.LINK: [link("one"), link("two"), link("three")],
        Kind.DIRECTORY: [folder(0o755), folder(0o700), folder(0o500)],
        Kind.SPECIAL: [SPECIAL],
        Kind.ABSENT: [ABSENT],
    }[kind]


def test_every_three_kinds_have_exactly_one_named_case() -> None:
    assert set(CASES) == set(product(KINDS, repeat=3))
    assert len(CASES) == 125
    assert all(case.name for case in CASES.values())


def test_held_cases_know_their_reason() -> None:
    reasons = {value for name, value in vars(Reason).items() if name.isupper()}
    for case in CASES.values():
        assert case.reason is None or case.reason in reasons
        assert case.rule is not Rule.HOLD or case.reason is not None


@pytest.mark.parametrize("kinds", list(product(KINDS, repeat=3)), ids="-".join)
def test_the_function_is_total_and_never_writes_over_what_it_does_not_know(kinds: tuple[str, str, str]) -> None:
    for now, before, after in product(*(entries_of(kind) for kind in kinds)):
        found = outcome(now, before, after)
        if found.target is None:
            assert found.reason is not None
            continue
        assert found.reason is None
        if found.target.content != now.content and not found.merge:
            # Something is written or removed: only over what the command left, or over nothing.
            assert now.content == after.content
            assert found.target.content == before.content
        assert Kind.SPECIAL not in (now.kind, found.target.kind) or found.target.content == now.content


def test_what_the_command_left_goes_back_to_what_was() -> None:
    assert outcome(file("new", 0o600), file("old", 0o644), file("new", 0o600)).target == file("old", 0o644)
    assert outcome(link("new"), link("old"), link("new")).target == link("old")
    assert outcome(file("new"), ABSENT, file("new")).target == ABSENT
    assert outcome(ABSENT, file("old", 0o600), ABSENT).target == file("old", 0o600)
    assert outcome(folder(0o700), folder(0o755), folder(0o700)).target == folder(0o755)
    assert outcome(link("x"), folder(0o700), link("x")).target == folder(0o700)


def test_what_is_back_already_stays() -> None:
    assert outcome(file("old"), file("old"), file("new")).target == file("old")
    assert outcome(ABSENT, ABSENT, file("new")).target == ABSENT
    assert outcome(file("old"), file("old"), ABSENT).target == file("old")


@pytest.mark.parametrize(
    ("now", "before", "after", "mode"),
    [
        (0o600, 0o644, 0o600, 0o644),  # the command's permissions go
        (0o644, 0o644, 0o600, 0o644),  # they went already
        (0o755, 0o644, 0o644, 0o755),  # the command touched none: the user's stay
        (0o600, None, 0o600, 0o600),  # nobody knows those from before
        (0o755, 0o644, 0o600, None),  # the user and the command both changed them
    ],
)
def test_permissions_are_decided_apart_from_content(
    now: int, before: int | None, after: int, mode: int | None
) -> None:
    for text_now, text_before, text_after in (("new", "old", "new"), ("mine", "old", "new"), ("old", "old", "new")):
        found = outcome(file(text_now, now), file(text_before, before), file(text_after, after))
        if mode is None:
            assert found.reason == Reason.PERMISSIONS_CHANGED_SINCE
        else:
            assert found.target is not None
            assert found.target.mode == mode


def test_a_recovered_file_of_unknown_permissions_gets_those_of_a_new_file() -> None:
    found = outcome(ABSENT, file("old", None), ABSENT)
    assert found.target == file("old", 0o644)
    assert outcome(ABSENT, folder(None), ABSENT).target == folder(0o755)


@pytest.mark.parametrize(
    ("now", "before", "after", "reason"),
    [
        (file("mine"), ABSENT, file("new"), Reason.CREATED_AND_EDITED),
        (file("new", 0o755), ABSENT, file("new"), Reason.PERMISSIONS_CHANGED_SINCE),
        (link("mine"), ABSENT, file("new"), Reason.TYPE_CHANGED_SINCE),
        (file("mine"), file("old"), ABSENT, Reason.CREATED_SINCE),
        (file("old", 0o600), file("old"), ABSENT, Reason.CREATED_SINCE),
        (folder(), file("old"), ABSENT, Reason.CREATED_SINCE),
        (SPECIAL, file("old"), ABSENT, Reason.CREATED_SINCE),
        (ABSENT, file("old"), file("new"), Reason.DELETED_SINCE),
        (link("mine"), link("old"), link("new"), Reason.LINK_CHANGED_SINCE),
        (link("mine"), file("old"), file("new"), Reason.TYPE_CHANGED_SINCE),
        (file("mine"), link("old"), file("new"), Reason.CHANGED_SINCE),
        (SPECIAL, ABSENT, SPECIAL, Reason.SPECIAL_FILE),
        (file("new"), SPECIAL, file("new"), Reason.SPECIAL_FILE),
        (SPECIAL, file("old"), SPECIAL, Reason.SPECIAL_FILE),
    ],
)
def test_somebodys_later_work_is_held(now: Entry, before: Entry, after: Entry, reason: str) -> None:
    assert outcome(now, before, after).reason == reason


def test_text_that_all_three_differ_in_is_merged() -> None:
    found = outcome(file("mine"), file("old"), file("new"))
    assert found.merge
    assert found.target is not None
    assert found.target.kind == Kind.FILE


def test_binary_large_and_lost_bytes_are_not_merged() -> None:
    three = (file("mine"), file("old"), file("new"))
    assert outcome(*three, text=False).reason == Reason.BINARY_CHANGED_SINCE
    assert outcome(*three, text=None).reason == Reason.CHANGED_SINCE
    large = outcome(file("mine", size=MERGE_BYTES_MAX + 1), file("old"), file("new"))
    assert large.reason == Reason.LARGE_CHANGED_SINCE
    assert large.numbers == {"size_bytes": MERGE_BYTES_MAX + 1, "limit_bytes": MERGE_BYTES_MAX}


def test_a_file_that_nobody_read_is_like_no_other() -> None:
    unread = Entry(Kind.FILE, mode=0o644, size=3)
    found = outcome(unread, file("old"), unread)
    assert found.target is None

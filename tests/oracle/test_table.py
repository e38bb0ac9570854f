"""Each command of the table: run, undone, and the project stands as it stood; nothing is left silently."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from ckpt_run.capture import witness

from .judge import judge
from .stage import Stage
from .table import EVERYTHING, ROWS, UNSEEN, Row

LONG = bool(os.environ.get("CKPT_LONG"))
WITHOUT_SURVEY = [row for row in ROWS if LONG or row.short]
TRACED = [row for row in ROWS if row.short][:: 1 if LONG else 6]


def _may_leave(paths: tuple[str, ...], stage: Stage) -> set[bytes]:
    if paths == EVERYTHING:
        return {os.path.relpath(path, stage.top).encode("utf-8", "surrogateescape") for path in _all(stage)}
    return {os.fsencode(path) for path in paths}


def _all(stage: Stage) -> Iterator[str]:
    for folder, folders, names in os.walk(stage.top):
        yield from (os.path.join(folder, name) for name in (*folders, *names))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name.replace(" ", "-"))
def test_what_the_command_did_is_taken_back(row: Row, staged: Callable[[str], Stage]) -> None:
    stage = staged(row.variant)
    judge(stage, row.command, may_leave=_may_leave(row.leaves, stage), twin=row.twin)


@pytest.mark.parametrize("row", WITHOUT_SURVEY, ids=lambda row: row.name.replace(" ", "-"))
def test_what_git_does_not_see_is_put_back_or_listed(row: Row, staged: Callable[[str], Stage]) -> None:
    stage = staged(row.variant)
    told = stage.ckpt("config", "survey_files_max", "0")
    assert told.code == 0, told
    leaves = _may_leave(row.leaves, stage) | _may_leave(row.blind, stage)
    unseen = leaves | {os.fsencode(path) for path in UNSEEN}
    judge(stage, row.command, may_leave=unseen, unseen=unseen, twin=False)


@pytest.mark.skipif(not witness.probe().works, reason=f"no traced witness here: {witness.probe()}")
@pytest.mark.parametrize("row", TRACED, ids=lambda row: row.name.replace(" ", "-"))
def test_what_a_traced_command_did_is_taken_back(
    row: Row, staged: Callable[[str], Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CKPT_TRACE", "always")
    stage = staged(row.variant)
    judge(stage, row.command, may_leave=_may_leave(row.leaves, stage), twin=row.twin)


def test_each_command_is_named_once() -> None:
    names = [row.name for row in ROWS]
    assert len(names) == len(set(names))
    assert len(names) >= 80

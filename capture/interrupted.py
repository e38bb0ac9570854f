"""Closes a run whose wrapper died, from its spool: what it changed is recorded as interrupted."""

from __future__ import annotations

import time

from ckpt_run.capture import aftermath, worktree
from ckpt_run.capture.baseline import Baseline, Part
from ckpt_run.capture.copies import Uncopied, read_checked, unflat
from ckpt_run.capture.errors import GitError
from ckpt_run.capture.git import Repository
from ckpt_run.capture.index import ASSUME_UNCHANGED, NotAnIndex
from ckpt_run.capture.model import Run, State
from ckpt_run.capture.moved import ReferencesSeen
from ckpt_run.capture.private import PrivateRepository
from ckpt_run.capture.record import recorded, save
from ckpt_run.capture.spool import abandoned

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    from ckpt_run.capture.copies import Limits
    from ckpt_run.capture.model import Path
    from ckpt_run.capture.project import Project
    from ckpt_run.capture.spool import Abandoned


def close_interrupted(
    project: Project,
    environment: Mapping[bytes, bytes],
    limits: Limits,
    points_max: int,
    survivors: Callable[[str, int], list[tuple[int, str]]],
) -> list[Run]:
    """Record the runs whose wrapper died, as interrupted; gives them, oldest first.

    `survivors` tells the processes of a run (its id, its start in nanoseconds) that are still alive. Raises
    StoreError, GitError.
    """
    closed = []
    for dead in abandoned(project):
        try:
            if dead.record is not None:
                run, contents = _told(dead, project, environment, limits)
                run.background = survivors(run.id, run.started_ns)
                save(project, run, contents, points_max, limits.project_bytes_max)
                closed.append(run)
            dead.spool.remove()
        finally:
            dead.spool.close()  # a run that could not be closed is left for the next try, of this process too
    return closed


def _told(
    dead: Abandoned, project: Project, environment: Mapping[bytes, bytes], limits: Limits
) -> tuple[Run, dict[bytes, bytes]]:
    """The run as its spool and the worktree tell it, with the bytes that its record needs."""
    about, flat = dead.record
    baseline = _unflat_baseline(flat, project, environment)
    _take_kept_survey(baseline, dead.spool.folder)
    run_id, argv, cwd, started_ns, label, session, turn, point_id = about
    with aftermath.look(baseline, dead.spool) as looked:
        found = recorded(baseline, looked, dead.spool, limits)
    run = Run(
        run_id,
        argv,
        cwd,
        started_ns,
        ended_ns=time.time_ns(),
        state=State.INTERRUPTED,
        changes=found.changes,
        git_moved=found.git_moved,
        label=label,
        session=session,
        turn=turn,
        point_id=point_id,
    )
    return run, found.contents


def _unflat_baseline(value: Any, project: Project, environment: Mapping[bytes, bytes]) -> Baseline:
    """Read back what `Baseline.flat` gave; the survey is None."""
    _, started, parts, changed, untracked, files, folders, copied, uncopied, unlooked = value
    baseline = Baseline(project, started)
    for prefix, facts, private, fingerprint, seen in parts:
        repository = Repository(*facts)
        asked = PrivateRepository(private, repository.top, repository.common_dir, environment)
        baseline.parts.append(Part(prefix, repository, asked, fingerprint, ReferencesSeen(*seen)))
    for mine, theirs in (
        (baseline.changed, changed),
        (baseline.untracked, untracked),
        (baseline.ignored_files, files),
        (baseline.ignored_folders, folders),
        (baseline.unlooked, unlooked),
    ):
        mine.update(theirs)
    baseline.copied = {path: unflat(flat) for path, flat in copied.items()}
    baseline.uncopied = {path: Uncopied(*why) for path, why in uncopied.items()}
    return baseline


def _flagged(baseline: Baseline) -> Iterator[Path]:
    for part in baseline.parts:
        try:
            tracked = part.index.tracked
        except (NotAnIndex, GitError):
            continue
        yield from (part.prefix + path for path, one in tracked.items() if one.flag == ASSUME_UNCHANGED)


def _take_kept_survey(baseline: Baseline, folder: bytes) -> None:
    """Give the baseline the survey that `keep_survey` kept in the run's folder, if there is one."""
    value = read_checked(folder + b"/survey")
    if value is None:
        baseline.flagged.update(_flagged(baseline))  # killed before it was kept: nothing else tells of these
        return
    survey = worktree.Survey()
    survey.files, survey.folders = value[0], value[1]
    survey.nested, survey.unread = set(value[2]), set(value[3])
    baseline.survey = survey
    for path, files in value[4].items():
        baseline.ignored_surveys[path] = worktree.Survey()
        baseline.ignored_surveys[path].files = files

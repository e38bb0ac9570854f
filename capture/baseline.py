"""What was there before: Git's answer, a survey of the files, and copies of what Git does not hold.

Order, and why: the private repository first, for it freezes the rules; then Git is asked while we survey; then the
copies are written and made durable. Only then may the command start. A file that somebody writes meanwhile has a
timestamp from after the start and is copied even where Git called it clean.
"""

from __future__ import annotations

import os
import time

from ckpt_run.capture import index as git_index
from ckpt_run.capture import precious, worktree
from ckpt_run.capture.copies import (
    Copied,
    Copier,
    Limits,
    Memory,
    Uncopied,
    link_packs,
    write_checked,
)
from ckpt_run.capture.errors import GitError
from ckpt_run.capture.git import Discovery, Repository, parse_status
from ckpt_run.capture.moved import ReferencesSeen, references
from ckpt_run.capture.private import PrivateRepository, make_private_repository, parse_listing
from ckpt_run.capture.project import born_ns
from ckpt_run.capture.spool import store_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from ckpt_run.capture.copies import Listing
    from ckpt_run.capture.git import Status
    from ckpt_run.capture.index import Index
    from ckpt_run.capture.model import Fingerprint, Path, Run
    from ckpt_run.capture.project import Project
    from ckpt_run.capture.spool import Spool
    from ckpt_run.capture.worktree import Survey, Tree

ATTRIBUTE_FILE = b".gitattributes"
_NESTED_MAX = 32
_UNLIMITED = 1 << 62


class Part:
    """One repository of a project: the project's own (`prefix` empty), or one nested in it (`prefix` ends in /)."""

    __slots__ = ("_index", "index_fingerprint", "prefix", "private", "references", "repository")

    def __init__(
        self,
        prefix: bytes,
        repository: Repository,
        private: PrivateRepository,
        index_fingerprint: Fingerprint | None,
        seen: ReferencesSeen,
    ) -> None:
        """Hold the facts; `index_fingerprint` is of the repository's own index as it was copied."""
        self.prefix = prefix
        self.repository = repository
        self.private = private
        self.index_fingerprint = index_fingerprint
        self.references = seen
        self._index: Index | None = None

    @property
    def index(self) -> Index:
        """The index as Git refreshed it before the run. Raises `index.NotAnIndex`."""
        if self._index is None:
            oid_bytes = 32 if self.repository.settings.get(b"extensions.objectformat") == b"sha256" else 20
            self._index = git_index.parse(_read(self.private.index), oid_bytes=oid_bytes)
            if self._index.is_split:
                self.private.unsplit_index()
                self._index = git_index.parse(_read(self.private.index), oid_bytes=oid_bytes)
        return self._index

    def flat(self) -> Any:
        """As a value that marshal can write."""
        at = self.repository
        facts = (at.top, at.git_dir, at.common_dir, at.head, at.settings)
        return (self.prefix, facts, self.private.folder, self.index_fingerprint, self.references.flat())


class Baseline:
    """What was known of the worktree just before the run. Paths are relative to the project's top level.

    `survey` is None where the project has too many files for one, and then `flagged` holds the tracked paths that Git
    was told not to look at; `started_ns` is when the first look began; `unentered` holds the inode and mtime_ns of
    folders that nobody looked into.
    """

    __slots__ = (
        "changed",
        "copied",
        "flagged",
        "ignored_files",
        "ignored_folders",
        "ignored_surveys",
        "parts",
        "project",
        "started_ns",
        "survey",
        "uncopied",
        "unentered",
        "unlooked",
        "untracked",
    )

    def __init__(self, project: Project, started_ns: int) -> None:
        """Start with nothing known."""
        self.project = project
        self.started_ns = started_ns
        self.parts: list[Part] = []
        self.changed: set[Path] = set()
        self.untracked: set[Path] = set()
        self.ignored_files: set[Path] = set()
        self.ignored_folders: set[Path] = set()
        self.copied: dict[Path, Copied] = {}
        self.uncopied: dict[Path, Uncopied] = {}
        self.unlooked: set[Path] = set()
        self.unentered: dict[Path, tuple[int, int]] = {}
        self.flagged: set[Path] = set()
        self.survey: Survey | None = None
        self.ignored_surveys: dict[Path, Survey] = {}

    @property
    def has_folders_aside(self) -> bool:
        """Say whether there are folders that are not captured (see `aside`)."""
        return bool(self.ignored_folders or self.unlooked)

    def is_folder(self, path: Path) -> bool:
        """Say whether a known path lies below this one; for a project without a survey."""
        prefix = path + b"/"
        if any(
            known.startswith(prefix) for paths in (self.copied, self.uncopied, self.ignored_files) for known in paths
        ):
            return True
        part = self.part_of(prefix)
        return any((part.prefix + known).startswith(prefix) for known in part.index.tracked)

    def part_of(self, path: Path) -> Part:
        """The innermost repository that the path belongs to."""
        best = self.parts[0]
        for part in self.parts[1:]:
            if path.startswith(part.prefix) and len(part.prefix) > len(best.prefix):
                best = part
        return best

    def add_status(self, prefix: bytes, status: Status) -> None:
        """Take in Git's answer about one repository."""
        self.changed.update(prefix + path for path in status.changed)
        self.untracked.update(prefix + path for path in status.untracked)
        self.ignored_files.update(prefix + path for path in status.ignored_files)
        self.ignored_folders.update(prefix + path for path in status.ignored_folders)

    def flat(self) -> Any:
        """As a value that marshal can write; the survey is kept apart."""
        return (
            self.project.top,
            self.started_ns,
            [part.flat() for part in self.parts],
            *(list(paths) for paths in (self.changed, self.untracked, self.ignored_files, self.ignored_folders)),
            {path: copy.flat() for path, copy in self.copied.items()},
            {path: (why.reason, why.numbers, why.fingerprint) for path, why in self.uncopied.items()},
            list(self.unlooked),
        )


def begin_record(run: Run, baseline: Baseline) -> object:
    """The begin record of a run, as a value for the spool."""
    about = (run.id, run.argv, run.cwd, run.started_ns, run.label, run.session, run.turn, run.point_id)
    return (about, baseline.flat())


def keep_survey(baseline: Baseline, folder: bytes) -> None:
    """Keep the survey in the run's folder, while the command runs, for the case that the wrapper is killed."""
    survey = baseline.survey
    if survey is not None:
        ignored = {path: inner.files for path, inner in baseline.ignored_surveys.items()}
        value = (survey.files, survey.folders, list(survey.nested), list(survey.unread), ignored)
        write_checked(folder + b"/survey", value)


def take(
    project: Project,
    repository: Repository,
    environment: Mapping[bytes, bytes],
    spool: Spool,
    limits: Limits,
    *,
    protect_ignored: bool,
    argv: Sequence[bytes],
) -> tuple[Baseline, Memory, int]:
    """Take the baseline, its copies written into the spool (not yet durable).

    `argv` is the command, of which only the words are looked at. Gives it with the memory to keep for the next run
    and the number of bytes written. Raises GitError when Git cannot answer, StoreError when the store cannot be
    written.
    """
    baseline = Baseline(project, time.time_ns())
    memory = Memory(project.memory)
    with worktree.Reader(project.top) as tree:
        try:
            _ask(baseline, memory, tree, repository, environment, spool, limits)
            copier = Copier(tree, spool.fd, spool.pack, memory.copied, limits, baseline.started_ns)
            precious.copy(baseline, copier, protect_ignored=protect_ignored)
            _copy_attribute_files(baseline, copier)
            copier.copy(sorted(baseline.flagged), None)
            if precious.may_lose_objects(argv, project.top):
                precious.copy_clean(baseline, limits, copier)
            if gone := link_packs(copier.copied, memory.packs, spool.folder + b"/packs") - {spool.pack}:
                precious.copy_again(copier, gone, baseline)
        except OSError as error:
            raise store_error(error, spool.folder) from error
    baseline.copied = copier.copied
    baseline.uncopied = copier.uncopied
    return baseline, memory, copier.written


def _copy_attribute_files(baseline: Baseline, copier: Copier) -> None:
    """Copy the clean ones too: they tell what Git converts, and may be converted themselves."""
    survey = baseline.survey
    if survey is not None:
        copier.copy([path for path in survey.files if path.endswith(ATTRIBUTE_FILE)], survey.files)


def _ask(
    baseline: Baseline,
    memory: Memory,
    tree: Tree,
    repository: Repository,
    environment: Mapping[bytes, bytes],
    spool: Spool,
    limits: Limits,
) -> None:
    """Ask Git about the project and the repositories nested in it, and survey the files meanwhile."""
    part = _part(b"", 0, repository, environment, spool, memory)
    baseline.parts.append(part)
    asking = part.private.status()
    memory.load()
    guessed = memory.ignored_folders
    survey = _survey_or_none(part, tree, limits, guessed)
    listing = _listing(part, memory) if survey is None else None
    status = parse_status(asking.answer())
    baseline.add_status(b"", status)
    ignored = baseline.ignored_folders
    if survey is None and asking.complained:
        # git-status(1) goes on, with code 0, past what it cannot read: then each file is looked at, however many.
        guessed, survey = set(ignored), worktree.survey(tree, files_max=_UNLIMITED, left_out=ignored)
    elif survey is None and ignored - guessed:
        guessed, survey = set(ignored), _survey_or_none(part, tree, limits, ignored)
    nested = _nested(status, survey, ignored, set(listing[3] if listing else ()))
    if listing and survey is None:
        baseline.flagged.update(listing[1])
    _ask_nested(baseline, nested, environment, spool, memory)
    if survey is not None and not _settle(survey, tree, limits, guessed, baseline.ignored_folders):
        survey = None
    baseline.survey = survey
    if baseline.has_folders_aside:
        from ckpt_run.capture import aside

        aside.note(baseline, tree, memory)


def _part(
    prefix: bytes,
    number: int,
    repository: Repository,
    environment: Mapping[bytes, bytes],
    spool: Spool,
    memory: Memory,
) -> Part:
    fingerprint = index_fingerprint(repository)
    private = make_private_repository(
        repository,
        spool.folder + b"/git%d" % number,
        environment,
        index=None if prefix else memory.claim_index(fingerprint),
    )
    return Part(prefix, repository, private, fingerprint, references(repository))


def index_fingerprint(repository: Repository) -> Fingerprint | None:
    """The fingerprint of the repository's own index; None when there is none yet."""
    try:
        return worktree.fingerprint_of(os.stat(repository.git_dir + b"/index"))
    except OSError:
        return None


def _survey_or_none(part: Part, tree: Tree, limits: Limits, left_out: set[Path]) -> Survey | None:
    if git_index.count_entries(_read(part.private.index, 12)) > limits.survey_files_max:
        return None
    try:
        return worktree.survey(tree, files_max=limits.survey_files_max, left_out=left_out)
    except worktree.SurveyTooLarge:
        return None


def _listing(part: Part, memory: Memory) -> Listing:
    """What the list of the index tells that no status does; kept while the project's index stays as it is.

    In a sparse checkout Git itself leaves out what is not there (since 2.36 it forgets the flag of what is).
    """
    if memory.listing[0] is None or memory.listing[0] != part.index_fingerprint:
        unlooked, left_out, submodules = parse_listing(part.private.list_index().answer())
        if not part.repository.is_sparse:
            unlooked |= left_out
        memory.listing = (part.index_fingerprint, sorted(unlooked), sorted(left_out), sorted(submodules))
    return memory.listing


def _nested(status: Status, survey: Survey | None, ignored: set[Path], submodules: set[Path]) -> list[Path]:
    """The folders with a repository of their own, outermost first."""
    if survey is not None:
        return sorted(path for path in survey.nested if not is_below(path, ignored))
    return sorted(status.nested | submodules)


def is_below(path: Path, folders: set[Path]) -> bool:
    """Say whether the path is one of the folders or lies below one."""
    if not folders:
        return False
    while path:
        if path in folders:
            return True
        path = path.rpartition(b"/")[0]
    return False


def is_born_since(baseline: Baseline, path: Path) -> bool:
    """Say whether the file system knows that the path was made after the baseline began."""
    try:
        return born_ns(baseline.project.top + b"/" + path) >= baseline.started_ns
    except OSError:
        return False


def _ask_nested(
    baseline: Baseline, nested: list[Path], environment: Mapping[bytes, bytes], spool: Spool, memory: Memory
) -> None:
    top = baseline.project.top
    looked = nested[:_NESTED_MAX]
    baseline.unlooked.update(nested[_NESTED_MAX:])
    discoveries = [(path, Discovery(top + b"/" + path, environment)) for path in looked]
    asking = []
    for number, (path, discovery) in enumerate(discoveries, start=1):
        try:
            repository = discovery.finish()
            if repository.top != top + b"/" + path:
                baseline.unlooked.add(path)  # its repository is broken: Git found the one around it
                continue
            part = _part(path + b"/", number, repository, environment, spool, memory)
        except GitError:
            baseline.unlooked.add(path)
            continue
        asking.append((part, part.private.status()))
    for part, process in asking:
        try:
            baseline.add_status(part.prefix, parse_status(process.answer()))
        except GitError:
            baseline.unlooked.add(part.prefix.rstrip(b"/"))
            continue
        baseline.parts.append(part)


def _settle(survey: Survey, tree: Tree, limits: Limits, guessed: set[Path], ignored: set[Path]) -> bool:
    """Make the survey, made with guessed ignored folders, one with the right ones; False when it grows too large."""
    for path in ignored - guessed:
        prefix = path + b"/"
        for paths in (survey.files, survey.folders):
            for inner in [inner for inner in paths if inner.startswith(prefix)]:
                del paths[inner]
    for path in guessed - ignored:
        if path not in survey.folders:
            continue
        try:
            more = worktree.survey(tree, files_max=limits.survey_files_max, left_out=ignored, start=path)
        except worktree.SurveyTooLarge:
            return False
        survey.files.update(more.files)
        survey.folders.update(more.folders)
        survey.nested |= more.nested
        survey.unread |= more.unread
    return True


def _read(path: bytes, size: int = -1) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read() if size < 0 else file.read(size) or b""
    except FileNotFoundError:
        return b""

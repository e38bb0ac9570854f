"""ckpt-run: baseline, spawn, changes, record. The hot path, read top to bottom.

    ckpt-run [options] -- COMMAND [ARG...]

What it promises: the command runs as without the wrapper, after what it could destroy was made safe; or it does not
run, with exit code 125. Nothing heavy is imported before it is needed; a test holds the list.
"""

from __future__ import annotations

import gc
import os
import sys
import time

from ckpt_run.capture.errors import CkptError, Fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import NoReturn

    from ckpt_run.capture.aftermath import Looked
    from ckpt_run.capture.baseline import Baseline
    from ckpt_run.capture.copies import Memory
    from ckpt_run.capture.git import Discovery, Repository
    from ckpt_run.capture.model import Run
    from ckpt_run.capture.project import Project
    from ckpt_run.capture.spool import Spool
    from ckpt_run.capture.tracing import Evidence
    from ckpt_run.capture.witness.session import Session
    from ckpt_run.shim.config import Settings

EXIT_NOT_SAVED = 125
"""ckpt-run itself could not save what it needs and did not start the command."""
ACTIVE = b"CKPT_ACTIVE"
"""Names the folder of the run that the command belongs to."""
MARK = b"CKPT_RUN"
"""Names the run's id; `background` finds the run's processes by it."""
FOUND = b"/found"
"""Where the store keeps what Git said of repositories."""
_WITH_VALUE = ("note", "turn", "session", "label", "on-error", "trace")


class Options:
    """What stood before the command: `values` by option name, and the command's words."""

    __slots__ = ("command", "values")

    def __init__(self, values: Mapping[str, str], command: list[bytes]) -> None:
        """Hold the two."""
        self.values = dict(values)
        self.command = command


class UsageError(Exception):
    """The words before the command are not understood; `word` is the one at fault, None when a command is missing."""

    def __init__(self, word: str | None) -> None:
        """Hold the word."""
        super().__init__(word)
        self.word = word


def parse(words: list[bytes]) -> Options:
    """Read the command line. Options end at `--` or at the first word that is none. Raises UsageError."""
    values: dict[str, str] = {}
    rest = list(words)
    while rest and rest[0].startswith(b"-"):
        word = os.fsdecode(rest.pop(0))
        if word == "--":
            break
        name, equals, value = word.removeprefix("--").partition("=")
        if word in ("--help", "-h", "--version"):
            values[name.lstrip("-")] = "yes"
            return Options(values, [])
        if name not in _WITH_VALUE or not word.startswith("--"):
            raise UsageError(word)
        if not equals:
            if not rest:
                raise UsageError(word)
            value = os.fsdecode(rest.pop(0))
        values[name] = value
    if not rest:
        raise UsageError(None)
    return Options(values, rest)


def main() -> int:
    """Run the command of the command line; gives the exit code. Does not return where the command takes our place."""
    from ckpt_run.shim import process

    gc.disable()  # a run makes few cycles, and looking for them costs a millisecond
    environment = process.environment_given()
    try:
        options = parse([os.fsencode(word) for word in sys.argv[1:]])
    except UsageError as error:
        from ckpt_run.shim import card

        card.warn(card.run_usage(error.word))
        return EXIT_NOT_SAVED
    if not options.command:
        from ckpt_run.shim import saying

        return saying.about(options.values)
    with process.signals_held():
        outcome = _run(options, environment)
    if outcome is None:
        _take_our_place(options.command, environment)
    sys.stderr.flush()
    os._exit(outcome)  # what Python tears down at exit costs more than all that we do after the run


def _run(options: Options, environment: Mapping[bytes, bytes]) -> int | None:
    """Run and record; gives the exit code, None when the command shall run unrecorded in our place."""
    settings: Settings | None = None
    try:
        known = _known_repository(environment)
        discovery = None if known is not None else _discovery(environment)
        from ckpt_run.shim import config

        settings = config.load(environment).with_options(options.values)
        repository = known if discovery is None else _repository(discovery, environment)
        if repository is None or _is_nested(repository, environment):
            return None
        recorder = Recorder(options, settings, repository, environment)
        recorder.prepare()
    except CkptError as fault:
        from ckpt_run.shim import saying

        return None if saying.not_saved(fault, settings, options.values) else EXIT_NOT_SAVED
    return recorder.run()


def _known_repository(environment: Mapping[bytes, bytes]) -> Repository | None:
    """The repository around the cwd as an earlier run remembered it; None where Git must be asked."""
    from ckpt_run.capture import found, project

    return found.remembered(os.getcwdb(), environment, project.home(environment) + FOUND)


def _discovery(environment: Mapping[bytes, bytes]) -> Discovery:
    from ckpt_run.capture.git import Discovery

    return Discovery(os.getcwdb(), environment)


def _repository(discovery: Discovery, environment: Mapping[bytes, bytes]) -> Repository | None:
    """The repository around the cwd, None outside any. Raises GitError for one that Git cannot use."""
    from ckpt_run.capture.errors import GitError

    try:
        return discovery.finish()
    except GitError as error:
        if error.fault == Fault.BARE_REPOSITORY:
            return None
        if error.fault != Fault.NOT_A_PROJECT:
            raise
    if b"GIT_DIR" in environment and b"GIT_WORK_TREE" in environment:
        from ckpt_run.capture.git import Discovery

        return Discovery(os.getcwdb(), environment, bound=True).finish()
    broken = _dot_git_above(os.getcwdb())
    if broken is not None:
        raise GitError(Fault.CORRUPT_REPOSITORY, path=broken)
    return None


def _dot_git_above(folder: bytes) -> bytes | None:
    """A `.git` at the folder or above it, that Git does not take for a repository."""
    while True:
        if os.path.lexists(folder + b"/.git"):
            return folder.rstrip(b"/") + b"/.git"
        if folder in (b"/", b""):
            return None
        folder = os.path.dirname(folder)


def _is_nested(repository: Repository, environment: Mapping[bytes, bytes]) -> bool:
    """Say whether a run of the same project, which is alive, has started us: it records what we would."""
    folder = environment.get(ACTIVE)
    if not folder:
        return False
    from ckpt_run.capture import durable, project

    try:
        if project.locate(repository.top, environment).runs != os.path.dirname(folder):
            return False
        lock = durable.lock(folder + b"/spool", durable.Share.ALONE, wait=False, make=False)
    except (OSError, CkptError):
        return False
    if lock is not None:
        lock.release()
        return False
    return os.path.exists(folder + b"/spool")


class Recorder:
    """Records one run of a project: `prepare` before the command, `run` for the rest."""

    def __init__(
        self, options: Options, settings: Settings, repository: Repository, environment: Mapping[bytes, bytes]
    ) -> None:
        """Hold what the run is about; nothing is written."""
        from ckpt_run.capture import found, project

        self._settings = settings
        self._environment = dict(environment)
        self._repository = repository
        self._project: Project = project.locate(repository.top, environment)
        self._run = _new_run(options, environment)
        self._seen = found.look(self._run.cwd, environment, repository)
        self._spool: Spool
        self._baseline: Baseline
        self._memory: Memory

    def prepare(self) -> None:
        """Make safe what the command could destroy. Raises CkptError; the command may then not start."""
        from ckpt_run.capture import baseline, durable, project, spool

        project.prepare(self._project)
        try:
            self._lock = durable.lock(self._project.runs_lock, durable.Share.TOGETHER, wait=True)
        except OSError as error:
            raise spool.store_error(error, self._project.runs_lock) from error
        if os.listdir(self._project.runs):
            close_interrupted(self._project, self._environment, self._settings)
        self._spool = spool.open_spool(self._project, self._run.id)
        try:
            self._baseline, self._memory, written = baseline.take(
                self._project,
                self._repository,
                self._environment,
                self._spool,
                self._settings.limits,
                protect_ignored=self._settings.protect_ignored,
                argv=self._run.argv,
            )
            begin = baseline.begin_record(self._run, self._baseline)
            self._spool.commit(begin, at=written, durably=written > 0)
        except OSError as error:
            self._spool.remove()
            raise spool.store_error(error, self._spool.folder) from error
        except BaseException:
            self._spool.remove()
            raise

    def run(self) -> int:
        """Run the command and record what it changed; gives the exit code for the caller."""
        from ckpt_run.shim import process

        environment = dict(self._environment)
        environment[MARK] = self._run.id.encode("ascii")
        environment[ACTIVE] = self._spool.folder
        session = self._traced()
        ended = process.run(self._run.argv, environment, on_started=self._keep_survey, door=session)
        self._run.ended_ns = time.time_ns()
        self._run.exit_code = ended.exit_code
        if session is not None:
            session.end()
        if not ended.started:
            self._spool.remove()
            if ended.signal is None:
                from ckpt_run.shim import card

                card.warn(card.not_started(ended))
            return ended.exit_code
        try:
            self._record(session)
        except (CkptError, OSError) as error:
            from ckpt_run.shim import card

            card.warn(card.not_recorded(error, self._spool.folder))
            self._spool.close()  # the folder stays: the next ckpt command closes the run from it
        return ended.exit_code

    def _traced(self) -> Session | None:
        """The door through which the command is traced, where it shall be: importing it costs 10 ms."""
        if self._settings.trace == "never":
            return None
        from ckpt_run.shim import tracing

        return tracing.begin(self._settings, self._run, self._baseline, self._spool, self._environment)

    def _keep_survey(self, _pid: int) -> None:
        """While the command runs there is time: keep the survey for the case that we are killed."""
        from ckpt_run.capture import baseline

        try:
            baseline.keep_survey(self._baseline, self._spool.folder)
        except OSError:
            return  # without it an interrupted run is closed with what Git says

    def _record(self, session: Session | None) -> None:
        from ckpt_run.capture import aftermath
        from ckpt_run.shim import background

        self._run.background = background.survivors(self._run.id, self._run.started_ns, newer_than_pid=os.getpid())
        with aftermath.look(self._baseline, self._spool) as looked:
            evidence = None
            if session is not None:
                from ckpt_run.shim import tracing

                evidence = tracing.evidence(session, self._settings, self._baseline, self._spool, looked.touched)
            if looked.touched:
                self._save(looked, evidence)
        self._remember()
        self._spool.retire()
        if self._run.changes or self._run.background:
            from ckpt_run.shim import saying

            saying.note(self._run, self._settings)

    def _save(self, looked: Looked, evidence: Evidence | None) -> None:
        from ckpt_run.capture import record
        from ckpt_run.capture.model import State

        limits = self._settings.limits
        found = record.recorded(self._baseline, looked, self._spool, limits, evidence)
        self._run.state = State.ENDED
        self._run.changes = found.changes
        self._run.git_moved = found.git_moved
        record.save(self._project, self._run, found.contents, self._settings.points_max, limits.project_bytes_max)

    def _remember(self) -> None:
        """Leave for the next run what spares it work; a failure costs time, not safety."""
        from ckpt_run.capture import baseline

        part = self._baseline.parts[0]
        try:
            if self._seen is not None:
                from ckpt_run.capture import found, project

                cache = project.home(self._environment) + FOUND
                found.remember(self._run.cwd, self._environment, cache, self._repository, self._seen)
            self._memory.keep(
                self._baseline.copied,
                self._baseline.ignored_folders,
                pack=self._spool.pack,
                spool=self._spool.path,
            )
            fingerprint = baseline.index_fingerprint(self._repository)
            if fingerprint is not None and fingerprint == part.index_fingerprint:
                self._memory.keep_index(part.private.index, fingerprint)
        except OSError:
            return


def close_interrupted(project: Project, environment: Mapping[bytes, bytes], settings: Settings) -> list[Run]:
    """Close the runs of the project whose wrapper died. Raises CkptError."""
    from ckpt_run.capture import interrupted
    from ckpt_run.shim import background

    return interrupted.close_interrupted(
        project, environment, settings.limits, settings.points_max, background.survivors
    )


def _new_run(options: Options, environment: Mapping[bytes, bytes]) -> Run:
    from ckpt_run.capture.model import Run

    values = options.values
    session = values.get("session") or os.fsdecode(environment.get(b"CKPT_SESSION", b"")) or None
    turn = values.get("turn") or os.fsdecode(environment.get(b"CKPT_TURN", b"")) or None
    return Run(
        os.urandom(5).hex(),
        options.command,
        os.getcwdb(),
        time.time_ns(),
        label=values.get("label"),
        session=session,
        turn=turn,
        point_id=_point_of_turn(session, turn),
    )


def _point_of_turn(session: str | None, turn: str | None) -> str | None:
    """The id of the point that all runs of a turn share."""
    if turn is None:
        return None
    from _blake2 import blake2b

    return blake2b(os.fsencode(f"{session or ''}\0{turn}"), digest_size=5).hexdigest()


def _take_our_place(command: list[bytes], environment: Mapping[bytes, bytes]) -> NoReturn:
    from ckpt_run.shim import process

    try:
        process.exec_instead(command, environment)
    except process.NotStartedError as error:
        from ckpt_run.shim import card

        card.warn(card.not_started(error.ended))
        sys.stderr.flush()
        os._exit(error.ended.exit_code)

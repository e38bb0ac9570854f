"""Settings: defaults, the person's file, the environment, the words before a command; in this order.

Knows nothing of what the settings do. A run asks for them before its command, so a file that did not change is not
parsed again: its values are kept, compiled, in the store's home.
"""

from __future__ import annotations

import os

from ckpt_run.capture.errors import CkptError, Fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from ckpt_run.capture.copies import Limits

    Value = str | int | bool

_MIB = 1 << 20


class Setting:
    """One setting: its name, default, what it takes, its variable (None where it has none), its sentence.

    `words` are the allowed values of a text; `least` and `most` bound a number; neither means true or false.
    """

    __slots__ = ("default", "least", "most", "name", "sentence", "variable", "words")

    def __init__(
        self,
        name: str,
        default: Value,
        sentence: str,
        *,
        words: tuple[str, ...] = (),
        least: int = 0,
        most: int = 0,
        variable: bytes | None = None,
    ) -> None:
        """Hold the facts."""
        self.name = name
        self.default = default
        self.sentence = sentence
        self.words = words
        self.least = least
        self.most = most
        self.variable = variable

    @property
    def allowed(self) -> str:
        """What it takes, in words."""
        if self.words:
            return " or ".join(self.words)
        return f"a whole number from {self.least} to {self.most}" if self.most else "true or false"

    def is_allowed(self, value: object) -> bool:
        """Say whether the value, as TOML gives it, is one that it takes."""
        if self.words:
            return value in self.words
        if self.most:
            return type(value) is int and self.least <= value <= self.most
        return type(value) is bool

    def read(self, text: str) -> Value | None:
        """The value that a word of a command line or a variable means; None when it means none."""
        value: Value = text
        if self.most:
            digits = text.removeprefix("-").replace("_", "")
            value = int(text) if digits.isascii() and digits.isdigit() and len(digits) < 19 else text
        elif not self.words:
            value = {"true": True, "false": False}.get(text, text)
        return value if self.is_allowed(value) else None


SETTINGS: dict[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting(
            "note",
            "auto",
            "The line on stderr after a run that changed something; auto: on a terminal.",
            words=("auto", "always", "never"),
            variable=b"CKPT_NOTE",
        ),
        Setting(
            "on_error",
            "refuse",
            "When the state before a command cannot be saved: refuse to start it, or run it unrecorded.",
            words=("refuse", "run"),
            variable=b"CKPT_ON_ERROR",
        ),
        Setting(
            "trace",
            "never",
            "Whether the kernel is asked which process wrote a file, which costs a command some 25 ms; auto: where"
            " that changes nothing else.",
            words=("auto", "always", "never"),
            variable=b"CKPT_TRACE",
        ),
        Setting(
            "protect_ignored",
            default=True,
            sentence="Whether ignored files outside ignored folders, such as .env, are copied.",
        ),
        Setting(
            "copy_bytes_max", 5 * _MIB, "The largest file that is copied before a command, in bytes.", most=1 << 30
        ),
        Setting("files_per_run_max", 500, "How many files are copied anew before one command.", most=1_000_000),
        Setting(
            "project_bytes_max",
            128 * _MIB,
            "How many bytes a project may keep in the store, and a run may copy.",
            least=_MIB,
            most=1 << 40,
        ),
        Setting("points_max", 512, "How many points a project keeps; the oldest make room.", least=1, most=100_000),
        Setting(
            "survey_files_max",
            4000,
            "Up to how many files a project is looked at file by file, for permission bits that Git does not keep"
            " and empty folders; 0: never.",
            most=1_000_000,
        ),
    )
}


class Settings:
    """The settings in force, each an attribute of its name."""

    __slots__ = (
        "copy_bytes_max",
        "files_per_run_max",
        "note",
        "on_error",
        "points_max",
        "project_bytes_max",
        "protect_ignored",
        "survey_files_max",
        "trace",
    )

    note: str
    on_error: str
    trace: str
    protect_ignored: bool
    copy_bytes_max: int
    files_per_run_max: int
    project_bytes_max: int
    points_max: int
    survey_files_max: int

    def __init__(self, values: Mapping[str, Value]) -> None:
        """Take the values by name, all of them allowed; the others are the defaults."""
        for name, setting in SETTINGS.items():
            setattr(self, name, values.get(name, setting.default))

    @property
    def limits(self) -> Limits:
        """How much a run may copy."""
        from ckpt_run.capture.copies import Limits

        return Limits(
            copy_bytes_max=self.copy_bytes_max,
            files_per_run_max=self.files_per_run_max,
            project_bytes_max=self.project_bytes_max,
            survey_files_max=self.survey_files_max,
        )

    def with_options(self, options: Mapping[str, str]) -> Settings:
        """The same with what a command line says: `note`, `on-error`, `trace`. Raises CkptError(BAD_SETTING)."""
        values: dict[str, Value] = {name: getattr(self, name) for name in SETTINGS}
        for option, text in options.items():
            setting = SETTINGS.get(option.replace("-", "_"))
            if setting is not None and setting.variable is not None:
                values[setting.name] = _read(setting, text, f"--{option}")
        return Settings(values)


def _read(setting: Setting, text: str, key: str) -> Value:
    value = setting.read(text)
    if value is None:
        raise CkptError(Fault.BAD_SETTING, key=key, value=text, allowed=setting.allowed)
    return value


def file_of(environment: Mapping[bytes, bytes]) -> bytes:
    """Where the person's settings are, whether or not the file is there."""
    home = environment.get(b"CKPT_HOME")
    if home:
        return os.path.join(os.path.abspath(home), b"config.toml")
    base = environment.get(b"XDG_CONFIG_HOME", b"")
    if not base.startswith(b"/"):  # XDG Base Directory Specification: a relative path is to be ignored
        base = os.path.join(environment.get(b"HOME") or os.path.expanduser(b"~"), b".config")
    return os.path.join(base, b"ckpt", b"config.toml")


def load(environment: Mapping[bytes, bytes]) -> Settings:
    """The settings in force without a command line's. Raises CkptError(BAD_SETTING)."""
    values = read_file(environment)
    for setting in SETTINGS.values():
        text = environment.get(setting.variable) if setting.variable else None
        if text:
            values[setting.name] = _read(setting, os.fsdecode(text), os.fsdecode(setting.variable or b""))
    return Settings(values)


def read_file(environment: Mapping[bytes, bytes]) -> dict[str, Value]:
    """The values that the person's file gives. Raises CkptError(BAD_SETTING)."""
    path = file_of(environment)
    try:
        info = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise CkptError(Fault.BAD_SETTING, cause=error.strerror, file=path) from error
    from ckpt_run.capture.copies import is_recent, read_checked, write_checked
    from ckpt_run.capture.project import home
    from ckpt_run.capture.worktree import fingerprint_of

    fingerprint = fingerprint_of(info)
    kept_in = home(environment)
    compiled = read_checked(kept_in + b"/config.compiled")
    if isinstance(compiled, tuple) and compiled[:2] == (path, fingerprint):
        return dict(compiled[2])
    values = _checked(_parsed(path), path)
    import time

    if os.path.isdir(kept_in + b"/projects") and not is_recent(fingerprint, time.time_ns()):
        try:
            write_checked(kept_in + b"/config.compiled", (path, fingerprint, values))
        except OSError:
            return values  # it costs the next run some milliseconds
    return values


def _parsed(path: bytes) -> dict[str, object]:
    import tomllib

    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise CkptError(Fault.BAD_SETTING, cause=error.strerror, file=path) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CkptError(Fault.BAD_SETTING, cause=str(error), file=path) from error


def _checked(values: Mapping[str, object], path: bytes) -> dict[str, Value]:
    checked: dict[str, Value] = {}
    for key, value in values.items():
        setting = setting_of(key, path)
        if not setting.is_allowed(value):
            raise CkptError(Fault.BAD_SETTING, key=key, value=value, allowed=setting.allowed, file=path)
        if isinstance(value, str | int):
            checked[key] = value
    return checked


def setting_of(key: str, file: bytes | None = None) -> Setting:
    """The setting of this name. Raises CkptError(BAD_SETTING) with the nearest name."""
    setting = SETTINGS.get(key)
    if setting is None:
        from difflib import get_close_matches

        nearest = get_close_matches(key, SETTINGS, n=1, cutoff=0.5)
        raise CkptError(Fault.BAD_SETTING, key=key, nearest=nearest[0] if nearest else None, file=file)
    return setting


def write(environment: Mapping[bytes, bytes], key: str, text: str) -> Value:
    """Set one value in the person's file, keeping the others; gives it. Raises CkptError(BAD_SETTING), OSError."""
    import tomli_w

    from ckpt_run.capture import durable

    path = file_of(environment)
    value = setting_of(key).read(text)
    if value is None:
        raise CkptError(Fault.BAD_SETTING, key=key, value=text, allowed=SETTINGS[key].allowed)
    values = {**read_file(environment), key: value}
    durable.make_private_folder(os.path.dirname(path))
    real = os.path.realpath(path)  # a link into somebody's dotfiles stays a link
    durable.write_private(real, tomli_w.dumps(values).encode())
    durable.sync_folder(os.path.dirname(real))
    return value

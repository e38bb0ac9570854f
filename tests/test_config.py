"""Settings: defaults, the person's file, the environment, the words of a command line; in this order."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest

from ckpt_run.capture.errors import CkptError, Fault
from ckpt_run.shim import config

KINDS = {"note": "always", "points_max": "7", "protect_ignored": "false"}


def environment(**more: str) -> dict[bytes, bytes]:
    return {**os.environb, **{os.fsencode(name): os.fsencode(value) for name, value in more.items()}}


def home() -> Path:
    return Path(os.environ["CKPT_HOME"])


def put(text: str) -> None:
    home().mkdir(mode=0o700, exist_ok=True)
    (home() / "config.toml").write_text(text)


def test_without_a_file_everything_is_its_default() -> None:
    settings = config.load(environment())
    for name, setting in config.SETTINGS.items():
        assert getattr(settings, name) == setting.default
        assert setting.is_allowed(setting.default)
        assert setting.sentence.endswith(".")
    limits = settings.limits
    assert (limits.copy_bytes_max, limits.files_per_run_max, limits.project_bytes_max) == (5 << 20, 500, 128 << 20)
    assert not home().exists()


def test_the_file_the_environment_and_the_command_line_speak_in_this_order() -> None:
    put('note = "never"\n')
    assert config.load(environment()).note == "never"
    assert config.load(environment(CKPT_NOTE="always")).note == "always"
    assert config.load(environment(CKPT_NOTE="")).note == "never"
    settings = config.load(environment(CKPT_NOTE="always")).with_options({"note": "auto", "label": "x"})
    assert (settings.note, settings.on_error) == ("auto", "refuse")
    assert settings.with_options({"on-error": "run"}).on_error == "run"


@pytest.mark.parametrize(("key", "text"), KINDS.items())
def test_what_is_written_is_read_and_the_rest_stays(key: str, text: str) -> None:
    put("files_per_run_max = 9\n")
    value = config.write(environment(), key, text)
    settings = config.load(environment())
    assert getattr(settings, key) == value
    assert settings.files_per_run_max == 9
    assert tomllib.loads((home() / "config.toml").read_text()) == {"files_per_run_max": 9, key: value}
    assert (home() / "config.toml").stat().st_mode & 0o777 == 0o600


def test_a_link_into_somebodys_dotfiles_stays_a_link(tmp_path: Path) -> None:
    home().mkdir(mode=0o700)
    (tmp_path / "dotfile.toml").write_text("")
    (home() / "config.toml").symlink_to(tmp_path / "dotfile.toml")
    config.write(environment(), "points_max", "7")
    assert (home() / "config.toml").is_symlink()
    assert tomllib.loads((tmp_path / "dotfile.toml").read_text()) == {"points_max": 7}


BAD = [
    ("points_max", "0"),
    ("points_max", "-1"),
    ("points_max", "many"),
    ("points_max", "1.5"),
    ("points_max", "true"),
    ("points_max", "9" * 30),
    ("points_max", "٣"),
    ("note", "loud"),
    ("protect_ignored", "yes"),
    ("trace", ""),
]


@pytest.mark.parametrize(("key", "text"), BAD)
def test_a_value_that_it_does_not_take_is_refused_and_nothing_is_written(key: str, text: str) -> None:
    with pytest.raises(CkptError) as refused:
        config.write(environment(), key, text)
    assert refused.value.fault == Fault.BAD_SETTING
    assert refused.value.facts["allowed"] == config.SETTINGS[key].allowed
    assert not home().exists()


@pytest.mark.parametrize(
    "line", ['points_max = "7"', "points_max = true", "points_max = 0", "note = 1", "trace = []"]
)
def test_a_file_with_such_a_value_is_refused_by_name(line: str) -> None:
    put(line + "\n")
    with pytest.raises(CkptError) as refused:
        config.load(environment())
    assert refused.value.facts["file"] == os.fsencode(home() / "config.toml")
    assert refused.value.facts["key"] == line.partition(" ")[0]


@pytest.mark.parametrize("text", ["points_max = ", "= 1", "a = 1\na = 2\n", "\x00", "note = 'never"])
def test_a_file_that_is_no_toml_is_refused(text: str) -> None:
    put(text)
    with pytest.raises(CkptError) as refused:
        config.load(environment())
    assert refused.value.fault == Fault.BAD_SETTING
    assert refused.value.cause


def test_a_folder_in_its_place_is_refused() -> None:
    (home() / "config.toml").mkdir(parents=True)
    with pytest.raises(CkptError) as refused:
        config.load(environment())
    assert refused.value.fault == Fault.BAD_SETTING


def test_a_name_that_is_none_gets_the_nearest_one() -> None:
    put("point_max = 7\n")
    with pytest.raises(CkptError) as refused:
        config.load(environment())
    assert refused.value.facts["nearest"] == "points_max"
    with pytest.raises(CkptError) as unlike:
        config.setting_of("zzz")
    assert unlike.value.facts["nearest"] is None


def test_a_variable_of_a_bad_value_is_refused_by_its_name() -> None:
    with pytest.raises(CkptError) as refused:
        config.load(environment(CKPT_NOTE="loud"))
    assert refused.value.facts["key"] == "CKPT_NOTE"


def test_a_changed_file_is_never_read_from_what_was_compiled() -> None:
    (home() / "projects").mkdir(parents=True, mode=0o700)
    path = home() / "config.toml"
    for number in range(1, 6):
        put(f"points_max = {number}\n")
        long_ago = 1_000_000_000 + number
        os.utime(path, (long_ago, long_ago))
        assert config.load(environment()).points_max == number
        assert config.load(environment()).points_max == number
    path.unlink()
    assert config.load(environment()).points_max == config.SETTINGS["points_max"].default


def test_what_was_compiled_is_only_a_help(tmp_path: Path) -> None:
    (home() / "projects").mkdir(parents=True, mode=0o700)
    put("points_max = 7\n")
    os.utime(home() / "config.toml", (1, 1))
    config.load(environment())
    for rubbish in (b"", b"rubbish", b"\0" * 100):
        (home() / "config.compiled").write_bytes(rubbish)
        assert config.load(environment()).points_max == 7


def test_the_file_is_where_the_person_keeps_such_files(tmp_path: Path) -> None:
    person = {b"HOME": b"/home/p"}
    assert config.file_of(person) == b"/home/p/.config/ckpt/config.toml"
    assert config.file_of({**person, b"XDG_CONFIG_HOME": b"/x"}) == b"/x/ckpt/config.toml"
    assert config.file_of({**person, b"XDG_CONFIG_HOME": b"relative"}) == b"/home/p/.config/ckpt/config.toml"
    assert config.file_of({**person, b"XDG_CONFIG_HOME": b"/x", b"CKPT_HOME": b"/c"}) == b"/c/config.toml"

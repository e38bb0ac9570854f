"""The sealed room every test runs in: no variable, config, umask or place of the real user reaches it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

LEAKS = ("GIT_", "CKPT_", "XDG_", "PYTEST_ADDOPTS")
"""Variables that begin so would carry the outside world (a hook's repository, a user's store) into a test."""


def sealed_variables(home: Path) -> dict[str, str]:
    """Return a whole environment whose home, state, config and caches lie under `home` (which is made)."""
    places = {
        "HOME": home / "home",
        "XDG_CONFIG_HOME": home / "config",
        "XDG_STATE_HOME": home / "state",
        "XDG_DATA_HOME": home / "data",
        "XDG_CACHE_HOME": home / "cache",
        "XDG_RUNTIME_DIR": home / "runtime",
        "CKPT_HOME": home / "ckpt",
    }
    for name, place in places.items():
        if name != "CKPT_HOME":
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(LEAKS)}
    # Variables of terminals and pagers change what Git and rich print, so none of them comes in.
    for name in ("PAGER", "LESS", "EDITOR", "VISUAL", "LINES", "NO_COLOR", "FORCE_COLOR", "TERM", "LANG", "LANGUAGE"):
        kept.pop(name, None)
    return {
        **kept,
        **{name: str(place) for name, place in places.items()},
        "GIT_CONFIG_NOSYSTEM": "1",
        "TZ": "UTC",
        "LC_ALL": "C.UTF-8",
        "COLUMNS": "100",
        "TERM": "dumb",
    }


@pytest.fixture(scope="session", name="sealed_variables")
def _sealed_variables() -> object:
    """Hand out the function `sealed_variables(home)`, for what is built once a session."""
    return sealed_variables


@pytest.fixture(autouse=True)
def sealed_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Point HOME, XDG_* and CKPT_HOME to a folder of this test's own (beside `tmp_path`, never inside it)."""
    home = tmp_path_factory.mktemp("sealed")
    variables = sealed_variables(home)
    for name in set(os.environ) - set(variables) - {"PYTEST_CURRENT_TEST"}:
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    outside = os.umask(0o022)
    yield home
    os.umask(outside)

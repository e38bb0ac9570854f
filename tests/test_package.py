"""The wheel and the sdist hold real files, and the wheel works in an empty virtual environment.

Builds once a session, isolated, through the package index that pip is set up for.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("package")]

ROOT = Path(__file__).resolve().parent.parent
# Taken before any fixture seals HOME: pip needs to know which index this machine uses.
PIP_ENVIRONMENT = {
    name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "PYTHON", "PYTEST_"))
}
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


class Built(NamedTuple):
    """What one build made, and an environment with nothing but the wheel and its dependencies."""

    sdist: Path
    wheel: Path
    programs: Path


def quietly(argv: list[str], *, cwd: Path, environment: dict[str, str] | None = None) -> str:
    """Run to the end, and show everything it said when it fails; returns what it wrote on stdout."""
    ended = subprocess.run(
        argv, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, f"{argv} ended with {ended.returncode}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout


def checkout_copy(place: Path) -> Path:
    """Copy what a build reads, links as links: no build folder of an earlier day can leak into the wheel."""
    unwanted = shutil.ignore_patterns("__pycache__", "*.egg-info", "node_modules")
    for folder in ("shim", "capture", "integration", "src"):
        shutil.copytree(ROOT / folder, place / folder, symlinks=True, ignore=unwanted)
    for file in ("pyproject.toml", "MANIFEST.in", "README.md", "CHANGELOG.md", "LICENSE"):
        shutil.copy2(ROOT / file, place / file)
    return place


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Build the sdist and, from it, the wheel; install the wheel in an empty virtual environment."""
    place = tmp_path_factory.mktemp("package")
    checkout = checkout_copy(place / "checkout")
    output = place / "dist"
    quietly([sys.executable, "-m", "build", "--outdir", str(output)], cwd=checkout, environment=PIP_ENVIRONMENT)
    (sdist,), (wheel,) = list(output.glob("*.tar.gz")), list(output.glob("*.whl"))
    quietly([sys.executable, "-m", "venv", str(place / "empty")], cwd=place, environment=PIP_ENVIRONMENT)
    python = place / "empty" / "bin" / "python"
    quietly([str(python), "-m", "pip", "install", "--quiet", str(wheel)], cwd=place, environment=PIP_ENVIRONMENT)
    return Built(sdist, wheel, python.parent)


def wanted_files() -> set[str]:
    """What must be in the wheel, as paths in it: each Python file and all of integration/."""
    found = {
        f"ckpt_run/{path.relative_to(ROOT)}"
        for folder in ("shim", "capture")
        for path in (ROOT / folder).rglob("*.py")
    }
    found |= {f"ckpt_run/{path.relative_to(ROOT)}" for path in (ROOT / "integration").rglob("*") if path.is_file()}
    return {name for name in found if "node_modules" not in name and "__pycache__" not in name}


def test_the_wheel_holds_real_files(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as wheel:
        links = [info.filename for info in wheel.infolist() if stat.S_ISLNK(info.external_attr >> 16)]
        names = set(wheel.namelist())
    assert not links
    wanted = wanted_files()
    assert any(name.startswith("ckpt_run/integration/") for name in wanted)
    assert wanted | {"ckpt_run/__init__.py", "ckpt_run/py.typed"} <= names
    outside = {name for name in names if not name.startswith(("ckpt_run/", f"ckpt_run-{VERSION}.dist-info/"))}
    assert not outside


def test_the_sdist_holds_real_files(built: Built) -> None:
    with tarfile.open(built.sdist) as sdist:
        members = sdist.getmembers()
    assert not [member.name for member in members if member.issym() or member.islnk()]
    names = {member.name.partition("/")[2] for member in members}
    assert {f"src/{name}" for name in wanted_files()} <= names
    assert {"LICENSE", "README.md", "pyproject.toml", "src/ckpt_run/py.typed"} <= names


def test_the_licence_and_the_commands_come_with_it(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as wheel:
        names = wheel.namelist()
        commands = wheel.read(f"ckpt_run-{VERSION}.dist-info/entry_points.txt").decode()
    assert f"ckpt_run-{VERSION}.dist-info/licenses/LICENSE" in names
    assert "ckpt-run = ckpt_run.shim.run:main" in commands
    assert "ckpt = ckpt_run.shim.cli:main" in commands


@pytest.mark.parametrize("command", ["ckpt", "ckpt-run"])
def test_installed_commands_tell_their_version(built: Built, command: str, tmp_path: Path) -> None:
    assert VERSION in quietly([str(built.programs / command), "--version"], cwd=tmp_path)


def test_the_installed_wheel_runs_a_command_and_takes_it_back(built: Built, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    quietly(["git", "init", "-q"], cwd=project)
    (project / "notes.txt").write_text("never committed\n")
    wrapper = str(built.programs / "ckpt-run")
    quietly([wrapper, "--", "true"], cwd=project)
    quietly([wrapper, "--", "rm", "notes.txt"], cwd=project)
    assert not (project / "notes.txt").exists()
    quietly([str(built.programs / "ckpt"), "undo", "--yes"], cwd=project)
    assert (project / "notes.txt").read_text() == "never committed\n"


def test_the_tour_for_newcomers_ends_well() -> None:
    said = quietly([str(ROOT / "scripts" / "try"), "--remove"], cwd=ROOT, environment=PIP_ENVIRONMENT)
    assert said.count("byte for byte") == 3

"""Environments in which packages are installed, and the command line in them."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Done:
    """What a command did."""

    status: int
    out: str
    err: str


def run(*arguments: str | Path, cwd: Path, path: str = "", **variables: str) -> Done:
    """Run a command that sees nothing of this process's paths and plugins."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("OUTRIDER_", "PYTHON"))}
    clean |= {"OMP_NUM_THREADS": "1", "COLUMNS": "200", **({"PYTHONPATH": path} if path else {}), **variables}
    done = subprocess.run([*map(str, arguments)], cwd=cwd, env=clean, capture_output=True, text=True, check=False)
    return Done(done.returncode, done.stdout, done.stderr)


# pip reads the opposite of what it says for the first.
_OFFLINE = {"NO_BUILD_ISOLATION": "0", "NO_DEPS": "1", "NO_INDEX": "1", "IGNORE_INSTALLED": "1", "QUIET": "1"}
_MARK = "=== status "
_DRIVER = f"""
import json, sys
from outrider.cli.app import app, run_app
for command in json.loads(sys.argv[1]):
    status = run_app(app, command, "outrider")
    for stream in (sys.stdout, sys.stderr):
        print(f"\\n{_MARK}{{status}}", file=stream, flush=True)
"""


def run_several(
    python: str | Path, *commands: Sequence[str | Path], cwd: Path, path: str = "", **variables: str
) -> list[Done]:
    """Run command lines of outrider one after another in one process, which has to import torch but once."""
    listed = json.dumps([[str(part) for part in command] for command in commands])
    done = run(python, "-c", _DRIVER, listed, cwd=cwd, path=path, **variables)
    assert done.status == 0, done.err
    outs, errs = (text.split(_MARK) for text in (done.out, done.err))
    statuses = [int(text.partition("\n")[0]) for text in outs[1:]]
    shown = [[text.partition("\n")[2] if at else text for at, text in enumerate(texts)] for texts in (outs, errs)]
    return [Done(status, out[:-1], err[:-1]) for status, out, err in zip(statuses, *shown, strict=False)]


def pretend_installed(folder: Path, distribution: str, plugin: str, body: str | None) -> None:
    """Write what pip leaves of a package with one module, None for one that is not there."""
    module = distribution.replace("-", "_")
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[outrider]\n{plugin} = {module}\n")
    if body is not None:
        (folder / f"{module}.py").write_text(body)


class Environment:
    """A virtual environment that shares what this one has installed, but for outrider itself."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        done = run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder.parent)
        assert done.status == 0, done.err
        (self.site,) = folder.glob("lib/python*/site-packages")
        # Paths alone: what is installed for editing, as outrider is here, comes by the shared folders' own .pth files.
        shared = [one for one in sys.path if Path(one).name in ("site-packages", "dist-packages")]
        (self.site / "zshared.pth").write_text("\n".join(shared) + "\n")

    def python(self, *arguments: str | Path, cwd: Path) -> Done:
        return run(self.folder / "bin" / "python", *arguments, cwd=cwd)

    def outrider(self, *arguments: str | Path, cwd: Path) -> Done:
        return run(self.folder / "bin" / "outrider", *arguments, cwd=cwd)

    def shell(self, script: str, cwd: Path) -> Done:
        """Run a script with this environment's programs; what pip builds and installs comes from here."""
        offline = {f"PIP_{name}": value for name, value in _OFFLINE.items()}
        return run("bash", "-ec", script, cwd=cwd, PATH=f"{self.folder / 'bin'}:{os.environ['PATH']}", **offline)

    def several(self, *commands: Sequence[str | Path], cwd: Path) -> list[Done]:
        return run_several(self.folder / "bin" / "python", *commands, cwd=cwd)

    def install(self, what: Path) -> None:
        done = self.python(
            "-m",
            "pip",
            "install",
            "-q",
            "--no-deps",
            "--no-build-isolation",
            "--ignore-installed",
            what,
            cwd=self.folder,
        )
        assert done.status == 0, done.err


def build_wheel(source: Path, out: Path) -> Path:
    """Build a package's wheel from its source, with nothing fetched."""
    done = run(
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        out,
        source,
        cwd=out.parent,
    )
    assert done.status == 0, done.err
    (wheel,) = out.glob("*.whl")
    return wheel

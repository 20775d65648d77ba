"""The packages of requirements/ are installed from where pip is set up to take them."""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import os
import re
import subprocess
import sys
import threading
import tomllib
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from requirements.packages import main, settings
from tests.repository.source_files import ROOT

WHEEL = "thing-1.0-py3-none-any.whl"


class _Responses(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def index(tmp_path: Path) -> Iterator[str]:
    """Run an index that has one package; return its address."""
    place = tmp_path / "index" / "simple" / "thing"
    place.mkdir(parents=True)
    files = {
        "thing.py": "",
        "thing-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: thing\nVersion: 1.0\n",
        "thing-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\n",
    }
    files["thing-1.0.dist-info/RECORD"] = "".join(f"{name},,\n" for name in files)
    with zipfile.ZipFile(place / WHEEL, "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
    (place / "index.html").write_text(f'<a href="{WHEEL}">{WHEEL}</a>')
    responses = partial(_Responses, directory=str(tmp_path / "index"))
    with ThreadingHTTPServer(("127.0.0.1", 0), responses) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/simple/"
        server.shutdown()
        thread.join()


def installed(index: str, digest: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """Install the package of an index into a new environment, as a user of that index does."""
    (directory / "some.lock").write_text(f"thing==1.0 --hash=sha256:{digest}\n")
    inherited = {
        name: text for name, text in os.environ.items() if not name.startswith(("PIP_", "UV_"))
    }
    words = ("install", directory / "some.lock", directory / "made")
    return subprocess.run(
        [sys.executable, ROOT / "requirements" / "packages.py", *words],
        check=False,
        capture_output=True,
        env=inherited | {"PIP_INDEX_URL": index, "UV_CACHE_DIR": str(directory / "cache")},
        text=True,
    )


def test_a_package_comes_from_the_index_that_pip_is_configured_for(
    index: str, tmp_path: Path
) -> None:
    digest = hashlib.sha256((tmp_path / "index/simple/thing" / WHEEL).read_bytes()).hexdigest()

    ended = installed(index, digest, tmp_path)

    assert (ended.returncode, ended.stderr) == (0, "")
    assert len([*(tmp_path / "made").rglob("thing.py")]) == 1


def test_a_package_of_another_digest_is_refused(index: str, tmp_path: Path) -> None:
    """Harm prevented: code that nobody has looked at runs on every machine."""
    ended = installed(index, "0" * 64, tmp_path)

    assert ended.returncode != 0
    assert "Hash mismatch" in ended.stderr
    assert [*(tmp_path / "made").rglob("thing.py")] == []


def test_uv_has_what_pip_is_set_up_with(tmp_path: Path) -> None:
    settings_of_pip = f"""\
global.index-url='https://a.invalid/simple'
install.index-url='https://b.invalid/simple'
:env:.extra-index-url='https://c.invalid/simple https://d.invalid/simple'
global.cert='/ours.pem'
global.find-links='\\n{tmp_path}\\n/no-such-place'
freeze.timeout='10'
:env:.disable-pip-version-check='1'
"""
    found = settings(settings_of_pip, {"HOME": "/home"})

    assert found == {
        "HOME": "/home",
        "SSL_CERT_FILE": "/ours.pem",
        "UV_DEFAULT_INDEX": "https://b.invalid/simple",
        "UV_FIND_LINKS": str(tmp_path),
        "UV_INDEX": "https://c.invalid/simple https://d.invalid/simple",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_SYSTEM_CERTS": "1",
    }


def test_settings_of_uv_itself_take_precedence() -> None:
    environment = {"UV_DEFAULT_INDEX": "https://mine.invalid/", "SSL_CERT_FILE": "/mine.pem"}

    assert (
        settings("global.index-url='x'\n:env:.cert='/y'\n", environment).items()
        >= environment.items()
    )


def test_a_command_that_is_none_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lock"]) == 2

    assert "packages.py install LOCK ENVIRONMENT" in capsys.readouterr().err


def test_a_package_that_replaces_a_file_of_another_has_replaced_it() -> None:
    """Harm prevented: chdb is now one of two modules, by which of its packages came last."""
    (file,) = (
        file
        for file in importlib.metadata.distribution("chdb").files or ()
        if str(file) == "chdb/__init__.py"
    )
    digest = hashlib.sha256(Path(str(file.locate())).read_bytes()).digest()

    assert file.hash is not None
    assert file.hash.value == base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def test_the_locks_name_no_place() -> None:
    """Where packages come from is the business of the machine that installs them."""
    locks = [*ROOT.glob("requirements/**/*.lock")]

    assert ROOT / "requirements" / "dev.lock" in locks
    for lock in locks:
        text = lock.read_text(encoding="utf-8")
        assert "://" not in text
        assert all(
            line.startswith("    --hash=sha256:") or "==" in line for line in text.splitlines()
        )


def test_the_makefile_takes_every_supported_python() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = {
        line.rpartition(" ")[2].replace(".", "")
        for line in project["classifiers"]
        if re.search(r"Python :: 3\.\d+$", line)
    }
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (supported,) = re.findall(r"^SUPPORTED := (.*)$", makefile, re.MULTILINE)

    assert set(supported.split()) == wanted


@pytest.mark.parametrize(
    ("target", "does"),
    [
        ("set-up-check", {"dev.lock", "spark_ext.jvm.build"}),
        (
            "set-up-test",
            {
                *(
                    "dev.lock",
                    "readers.lock",
                    "spark_ext.jvm.build",
                    "tests.support.iceberg_runtime",
                ),
                *("class_archive", "rest_jars", "s3proxy_jar"),
            },
        ),
    ],
)
def test_a_set_up_has_what_its_tier_needs_and_no_more(target: str, does: set[str]) -> None:
    """Harm prevented: everybody waits minutes for a compiler of which a few tests have need."""
    output = subprocess.check_output(
        ["make", "--dry-run", "--always-make", target], cwd=ROOT, text=True
    )

    found = re.findall(
        r"install requirements/(?:\w+/)?(\w+\.lock)"
        r"|python -m (?:tests\.services\.)?([\w.]+)(?= |$)",
        output,
        re.MULTILINE,
    )
    assert {one or other for one, other in found} - {"venv"} == does

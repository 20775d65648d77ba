"""Files of Maven come whole and as they should be, or not at all."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tableformat.errors import SourceError
from tests.services.maven_files import MavenFile, fetch, main_of, repository

CONTENT = b"classes" * 1000
ONE = MavenFile("org.example", "one", "1.0", "jar", hashlib.sha256(CONTENT).hexdigest())
TESTS = replace(ONE, classifier="tests")


class Repository(ThreadingHTTPServer):
    """A repository of Maven that has the given files, and cuts or refuses responses."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Responses)
        self.files = {f"/maven/{one.path}": CONTENT for one in (ONE, TESTS)}
        self.asked: list[str] = []
        self.cut = self.broken = 0
        """How many responses are still to end early, or to be an error of the server."""


class _Responses(BaseHTTPRequestHandler):
    server: Repository

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        if self.server.broken:
            self.server.broken -= 1
            self.send_error(503)
            return
        content = self.server.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.server.cut:
            self.server.cut -= 1
            content = content[:100]
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Repository]:
    """Run a repository, which the environment names."""
    with Repository() as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        monkeypatch.setenv(
            "DEFAULT_ARTIFACT_REPOSITORY", f"http://127.0.0.1:{made.server_port}/maven"
        )
        yield made
        made.shutdown()
        thread.join()


def test_files_are_fetched_once(server: Repository, tmp_path: Path) -> None:
    kept = replace(ONE, kept_as="as-spark-names-it.jar")
    for _ in range(2):
        fetch((kept, TESTS), tmp_path / "made")

    assert {file.name: file.read_bytes() for file in (tmp_path / "made").iterdir()} == {
        "as-spark-names-it.jar": CONTENT,
        "one-1.0-tests.jar": CONTENT,
    }
    assert sorted(server.asked) == [
        "/maven/org/example/one/1.0/one-1.0-tests.jar",
        "/maven/org/example/one/1.0/one-1.0.jar",
    ]


def test_a_network_that_fails_is_asked_again(server: Repository, tmp_path: Path) -> None:
    server.cut, server.broken = 1, 1

    fetch((ONE,), tmp_path)

    assert (tmp_path / ONE.file).read_bytes() == CONTENT
    assert len(server.asked) == 3


def test_a_file_that_is_cut_each_time_leaves_nothing(server: Repository, tmp_path: Path) -> None:
    server.cut = 100

    with pytest.raises(SourceError, match=r"Cannot fetch org\.example:one:1\.0: .* network"):
        fetch((ONE,), tmp_path)

    assert [*tmp_path.iterdir()] == []
    assert len(server.asked) == 3


def test_a_file_that_is_another_one_leaves_nothing(server: Repository, tmp_path: Path) -> None:
    """Harm prevented: a jar that somebody put in place of ours is run."""
    server.files[f"/maven/{ONE.path}"] = b"x"

    with pytest.raises(SourceError, match=rf"its SHA-256 is [0-9a-f]+, not {ONE.sha256}"):
        fetch((ONE,), tmp_path)

    assert [*tmp_path.iterdir()] == []


def test_a_file_that_is_not_there_is_asked_for_once(
    server: Repository, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.files.clear()

    assert main_of((ONE,), tmp_path) == 1

    stderr = capsys.readouterr().err
    assert stderr.startswith("Cannot fetch org.example:one:1.0: HTTP Error 404")
    assert stderr.count("\n") == 1
    assert len(server.asked) == 1


def test_without_a_name_it_is_the_repository_that_ivy_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DEFAULT_ARTIFACT_REPOSITORY", raising=False)

    found = repository()

    assert found.startswith("https://")
    assert found.endswith("/")

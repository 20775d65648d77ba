"""What is given to log in with, in which order it counts, and whose password it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from catalog.clickhouse.server.settings import (
    ClientCertificate,
    Credentials,
    Secret,
    ServerSettings,
    parse_server,
)
from catalog.secret_variables import harmless_environment
from catalog.sources import SourcePlace, server_of
from tableformat.errors import NotFoundError, RefusedError, UsageError

CERTIFICATE = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
KEY = "-----BEGIN EC PRIVATE KEY-----\nBBBB\n-----END EC PRIVATE KEY-----\n"


def parse(
    uri: str = "https://ch1", file: Path | None = None, variables: str = ""
) -> ServerSettings:
    """Read an address, a file and an environment, given as `NAME=VALUE NAME=VALUE`."""
    pairs = (text.partition("=") for text in variables.split())
    environment = {f"MERGEBERG_SOURCE_{name}": value for name, _, value in pairs}
    return parse_server(uri, environment=environment, config_file=file)


def configuration(tmp_path: Path, text: str, mode: int = 0o600) -> Path:
    path = tmp_path / "mergeberg.toml"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_the_address_counts_before_the_environment_and_that_before_the_file(tmp_path: Path) -> None:
    file = configuration(tmp_path, '[source]\nuser = "third"\npassword = "file-secret"\n')

    assert parse(file=file).credentials == Credentials("third", Secret("file-secret"))
    both = parse(file=file, variables="USER=second PASSWORD=env-secret")
    assert both.credentials == Credentials("second", Secret("env-secret"))
    all_ = parse("https://first:own@ch1", file, variables="USER=second PASSWORD=env-secret")
    assert all_.credentials == Credentials("first", Secret("own"))
    assert parse().credentials == Credentials()
    assert parse(variables="USER= PASSWORD=").credentials == Credentials()


def test_a_user_in_the_address_takes_the_password_of_the_environment() -> None:
    """That is how a command in a script is written."""
    found = parse("https://exporter@ch1", variables="PASSWORD=secret").credentials

    assert found == Credentials("exporter", Secret("secret"))


def test_a_password_is_not_sent_for_another_user(tmp_path: Path) -> None:
    """It would be tried, logged and locked out there, or tell a stranger."""
    file = configuration(tmp_path, '[source]\nuser = "alice"\npassword = "of-alice"\n')

    with pytest.raises(
        UsageError, match=r"the address names the user 'bob', and the secret in the conf.*'alice'"
    ) as raised:
        parse("https://bob@ch1", file)
    assert "of-alice" not in str(raised.value)


def test_a_password_and_a_token_contradict_each_other() -> None:
    with pytest.raises(UsageError, match=r"the environment gives a password and an access token"):
        parse(variables="PASSWORD=secret TOKEN=token")
    with pytest.raises(UsageError, match=r"an access token and a user are given"):
        parse("https://exporter@ch1", variables="TOKEN=token")
    assert parse(variables="TOKEN=e.y.J").credentials == Credentials(token=Secret("e.y.J"))


def test_a_file_that_others_may_read_keeps_no_secret(tmp_path: Path) -> None:
    for mode in (0o640, 0o604, 0o666):
        for name in ("password", "token"):
            file = configuration(tmp_path, f'[source]\n{name} = "hidden-one"\n', mode)
            with pytest.raises(RefusedError, match=rf"mode {mode:o}\)\. Run: chmod 600") as raised:
                parse(file=file)
            assert "hidden-one" not in str(raised.value)
    open_ = configuration(tmp_path, '[source]\nuser = "exporter"\n', 0o644)
    assert parse(file=open_).credentials.user == "exporter"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[source]\npasswort = "hidden-one"', r"\[source\] has passwort, and may have user, passw"),
        ("[source]\npassword = 77", r"\[source\] has password, and may have"),
        ('source = "hidden-one"', r"\[source\] has source"),
        ("[source]\npassword = hidden-one", r"it is no TOML \(line 2\)"),
        ("\xff\xfe", r"it is no TOML"),
    ],
)
def test_a_malformed_file_is_refused_without_showing_what_is_in_it(
    tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "mergeberg.toml"
    file.write_bytes(text.encode("latin-1"))
    file.chmod(0o600)

    with pytest.raises(UsageError, match=message) as raised:
        parse(file=file)
    assert "hidden-one" not in str(raised.value)
    assert raised.value.__cause__ is None


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"nowhere\.toml: there is no such file"):
        parse(file=tmp_path / "nowhere.toml")
    with pytest.raises(UsageError, match=r"Is a directory\. Check its rights"):
        parse(file=tmp_path)
    with pytest.raises(NotFoundError, match=r"the file nowhere\.pem, which the environment names"):
        parse(variables="CA_FILE=nowhere.pem")


def test_certificates_are_read_as_texts(tmp_path: Path) -> None:
    """An executor on another host has no such files."""
    (tmp_path / "ca.pem").write_text(CERTIFICATE)
    (tmp_path / "own.pem").write_text(CERTIFICATE)
    (tmp_path / "own.key").write_text(KEY)
    (tmp_path / "both.pem").write_text(KEY + CERTIFICATE)
    file = configuration(
        tmp_path,
        '[source]\nuser = "u"\nca-file = "ca.pem"\ncertificate = "own.pem"\nkey = "own.key"\n',
        0o644,
    )

    settings = parse(file=file)
    assert settings.tls.ca == CERTIFICATE
    assert settings.credentials.certificate == ClientCertificate(CERTIFICATE, Secret(KEY))
    both = parse(variables=f"CERTIFICATE={tmp_path / 'both.pem'}").credentials.certificate
    assert both == ClientCertificate(KEY + CERTIFICATE, Secret(KEY + CERTIFICATE))
    with pytest.raises(
        UsageError, match=r"own\.pem, which the environment names: it contains no private key"
    ):
        parse(variables=f"CERTIFICATE={tmp_path / 'own.pem'}")
    with pytest.raises(UsageError, match=r"own\.key, .*: it contains no certificate in PEM format"):
        parse(variables=f"CA_FILE={tmp_path / 'own.key'}")
    with pytest.raises(UsageError, match=r"gives the key of a client certificate and no cert"):
        parse(variables=f"KEY={tmp_path / 'own.key'}")
    with pytest.raises(UsageError, match=r"over http no server requests one"):
        parse_server(
            "http://ch1",
            environment={"MERGEBERG_SOURCE_CERTIFICATE": str(tmp_path / "both.pem")},
            allow_insecure=True,
        )


def test_processes_inherit_no_secret_and_a_place_keeps_what_was_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The environment of a process can be read, and it hands it on; its files can be named."""
    monkeypatch.setenv("MERGEBERG_SOURCE_USER", "exporter")
    monkeypatch.setenv("MERGEBERG_SOURCE_PASSWORD", "pa55")
    place = SourcePlace("https://ch1")

    inherited = harmless_environment()
    monkeypatch.delenv("MERGEBERG_SOURCE_PASSWORD")

    assert inherited["MERGEBERG_SOURCE_USER"] == "exporter"
    assert "pa55" not in inherited.values()
    assert "pa55" not in repr(place)
    settings = server_of(place)
    assert settings is not None
    assert settings.credentials == Credentials("exporter", Secret("pa55"))

"""Addresses of ledgers in Keeper: valid forms, refusals without secrets."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.ledgers.keeper.address import KeeperAddress, parse_keeper
from catalog.ledgers.uris import open_ledger
from catalog.secret_variables import harmless_environment
from tableformat.errors import NotFoundError, RefusedError, TableFormatError, UsageError

SECRET = "s3cr3t-w0rd"  # noqa: S105 - of nobody
_NAMES = st.from_regex(r"[a-z][a-z0-9.-]{0,10}", fullmatch=True)


@given(
    hosts=st.lists(st.tuples(_NAMES, st.integers(1, 65_535)), min_size=1, max_size=3, unique=True),
    chroot=st.lists(_NAMES.filter(lambda n: n != "zookeeper"), max_size=3),
    user=st.one_of(st.none(), _NAMES),
    secure=st.booleans(),
    seconds=st.integers(1, 999_999),
    session_seconds=st.sampled_from([0.5, 30.0, 40.25]),
)
def test_what_is_shown_is_read_again(
    hosts: list[tuple[str, int]],
    chroot: list[str],
    user: str | None,
    secure: bool,  # noqa: FBT001 - given by its name
    seconds: int,
    session_seconds: float,
) -> None:
    address = KeeperAddress(
        tuple(f"{name}:{port}" for name, port in hosts),
        "".join(f"/{name}" for name in chroot),
        secure=secure,
        user=user,
        password=SECRET if user else None,
        seconds=float(seconds),
        session_seconds=session_seconds,
        allow_insecure=not secure,
    )
    environment = {"MERGEBERG_LEDGER_PASSWORD": SECRET} if user else {}

    assert SECRET not in address.shown
    assert parse_keeper(address.shown, environment=environment) == address


def test_ports_and_chroot_may_be_left_out() -> None:
    plain = parse_keeper("keeper://localhost,127.0.0.1:99,localhost/", environment={})
    secure = parse_keeper("KEEPERS://Zk1,[::1]:5/a/b/", environment={})

    assert (plain.hosts, plain.chroot) == (("localhost:2181", "127.0.0.1:99"), "")
    assert (secure.hosts, secure.chroot) == (("zk1:2281", "[::1]:5"), "/a/b")
    assert secure.secure


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("keeper:", "it is no address of Keeper"),
        ("keeper://", "'' is not HOST or HOST:PORT"),
        ("keeper://h:0/x", "'h:0' is not HOST or HOST:PORT"),
        ("keeper://h:70000/x", "'h:70000' is not HOST"),
        ("keeper://h:1,,h2/x", "'' is not HOST or HOST:PORT"),
        ("keeper://localhost//x", "'//x' is no path"),
        ("keeper://localhost/a/../b", "'/a/../b' is no path"),
        ("keeper://localhost/zookeeper/x", "'/zookeeper/x' is no path"),
        ("keeper://localhost/a b", "'/a b' is no path"),
        ("keeper://localhost/x?timeout=0", "'timeout' is not an option, or has an invalid value"),
        (
            "keeper://localhost/x?timeout=soon",
            "'timeout' is not an option, or has an invalid value",
        ),
        ("keeper://localhost/x?allow-insecure=yes", "'allow-insecure' is not an option, or has"),
        (f"keeper://localhost/x?password={SECRET}", "'password' is not an option"),
        (f"keeper://u:{SECRET}@localhost/x", "no user name. A password in it could be seen"),
        (f"keeper://u:{SECRET}/@localhost/x", "no user name"),
        (f"keeper:u:{SECRET}@localhost/x", "it is no address of Keeper"),
        ("keeper://u@localhost/x", "the user u is given alone. Set MERGEBERG_LEDGER_PASSWORD"),
    ],
)
def test_a_malformed_address_is_refused_without_its_secret(uri: str, message: str) -> None:
    """Harm prevented: a typing error shows a password, or opens another place."""
    with pytest.raises(UsageError) as caught:
        parse_keeper(uri, environment={})

    assert message in caught.value.message
    assert SECRET not in caught.value.message


@pytest.mark.parametrize("host", ["zk1", "10.0.0.1", "127.0.0.1,zk2", "[2001:db8::1]", "8.8.8.8:1"])
def test_another_machine_needs_tls(host: str) -> None:
    """Harm prevented: an attacker in the network changes the ledger."""
    with pytest.raises(RefusedError, match="without TLS anyone on the network"):
        parse_keeper(f"keeper://{host}/x", environment={})

    assert parse_keeper(f"keepers://{host}/x", environment={}).warnings == ()
    for uri, environment in (
        (f"keeper://{host}/x?allow-insecure=1", {}),
        (f"keeper://{host}/x", {"MERGEBERG_ALLOW_INSECURE": "1"}),
    ):
        (warning,) = parse_keeper(uri, environment=environment).warnings
        assert "is used without TLS" in warning


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.8.8:1", "[::1]:2181"])
def test_this_machine_needs_no_tls(host: str) -> None:
    assert parse_keeper(f"keeper://{host}/x", environment={}).warnings == ()


def test_what_the_environment_gives_is_checked(tmp_path: Path) -> None:
    pem = tmp_path / "c.pem"
    pem.write_text("no certificate")
    for environment, uri, error, message in (
        ({"PASSWORD": SECRET}, "keeper://localhost", UsageError, "a password is given alone. Set"),
        ({"USER": "a:b", "PASSWORD": SECRET}, "keeper://localhost", UsageError, "has a colon"),
        ({"CA_FILE": "/nowhere"}, "keepers://h", NotFoundError, "there is no such file"),
        ({"KEY": str(pem)}, "keepers://h", UsageError, "Set MERGEBERG_LEDGER_CERTIFICATE, too"),
        ({"CERTIFICATE": str(pem)}, "keeper://localhost", UsageError, "no server requests one"),
    ):
        given = {f"MERGEBERG_LEDGER_{name}": text for name, text in environment.items()}
        with pytest.raises(error, match=message) as caught:
            parse_keeper(uri, environment=given)
        assert SECRET not in str(caught.value)


def test_neither_the_value_nor_the_ledger_shows_the_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MERGEBERG_LEDGER_PASSWORD", SECRET)
    assert SECRET not in harmless_environment().values()
    ledger = open_ledger("keeper://exporter@localhost:1/x?timeout=1", local_warehouse=None)
    address = parse_keeper(
        "keeper://exporter@localhost", environment={"MERGEBERG_LEDGER_PASSWORD": SECRET}
    )

    assert ledger.uri == "keeper://exporter@localhost:1/x?timeout=1"
    with pytest.raises(TableFormatError) as caught:
        ledger.is_made()
    ledger.close()
    for text in (repr(address), str(address), address.shown, repr(ledger), str(caught.value)):
        assert SECRET not in text

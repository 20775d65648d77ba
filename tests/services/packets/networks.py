"""Networks of a run's own (namespaces of Linux, without names), which end with their processes.

    leave_the_machine()
    with host("one", 1, seed=7) as one:
        process = one.run("python", "-m", "...")
        one.link.become(CUT)

The process that left, and all that it starts, reach nothing of the machine's network, and nobody
there reaches them. From a host everything that listens on 127.0.0.1 of the process that left is
reached at that address, through the host's link and nowhere else, so that servers and their
certificates are as ever. Needs Linux and the rights of root: `unshare`, `ip`, /dev/net/tun.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.services.packets.link import Link

__all__ = ["Host", "host", "leave_the_machine"]

_NEW_NETWORK: Final = 0x40000000
"""CLONE_NEWNET of linux/sched.h."""
_TOGETHER: Final = ("setpriv", "--pdeathsig", "KILL")
"""Before a program that is to end with this process."""
_STANDS: Final = "echo {name} > /proc/sys/kernel/hostname && echo up && exec sleep infinity"
_THEIRS: Final = "127.0.0.0/8"


def leave_the_machine() -> None:
    """Give this process, before it has begun anything, a network in which it is alone.

    Raises:
        OSError: it may not; what to do is in its text.
    """
    if ctypes.CDLL(None, use_errno=True).unshare(_NEW_NETWORK) != 0:
        number = ctypes.get_errno()
        why = os.strerror(number)
        raise OSError(number, f"Cannot have a network of its own: {why}. Run it as root on Linux.")
    devices = [name for _, name in socket.if_nameindex()]
    assert devices == ["lo"], f"this is no network of its own: {devices}"
    _run("ip", "link", "set", "lo", "up")


class Host:
    """Processes with a network and a host name of their own."""

    def __init__(self, name: str, number: int, over: Link) -> None:
        """Make it; its end of the link becomes its one way out.

        Args:
            name: its host name.
            number: from 1, another one for each host.
            over: the link.
        """
        self.name, self.link = name, over
        words = ["unshare", "--net", "--uts", "sh", "-c", _STANDS.format(name=name)]
        self._holder = subprocess.Popen([*_TOGETHER, *words], stdout=subprocess.PIPE)
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == b"up\n", "no network could be made"
        self._connect(number)

    def _connect(self, number: int) -> None:
        outer, inner = f"10.77.{number}.1", f"10.77.{number}.2"
        here, there = self.link.here, self.link.there
        _run("ip", "link", "set", there, "netns", str(self._holder.pid))
        _run("ip", "addr", "add", outer, "peer", inner, "dev", here)
        _run("ip", "link", "set", here, "up")
        _run("sh", "-c", _passes_loopback(here))
        self._within("ip", "addr", "add", inner, "peer", outer, "dev", there)
        self._within("ip", "link", "set", there, "up")
        self._within("sh", "-c", _passes_loopback(there))
        self._within("ip", "route", "add", _THEIRS, "dev", there, "src", inner)

    def run(self, *words: str) -> subprocess.Popen[bytes]:
        """Start a program on it, which ends with this process at the latest."""
        return subprocess.Popen([*_TOGETHER, *self._enter, *words])

    def figure(self, name: str) -> int:
        """Return what its kernel has counted of TCP, by the kernel's own name: `InCsumErrors`."""
        text = Path(f"/proc/{self._holder.pid}/net/snmp").read_text(encoding="ascii")
        names, figures = (line.split() for line in text.splitlines() if line.startswith("Tcp:"))
        return int(figures[names.index(name)])

    def close(self) -> None:
        """Let it end with the processes that run on it; its link ends now."""
        self.link.close()
        self._holder.kill()
        self._holder.communicate()

    @property
    def _enter(self) -> tuple[str, ...]:
        of = f"/proc/{self._holder.pid}/ns"
        return "nsenter", f"--net={of}/net", f"--uts={of}/uts"

    def _within(self, *words: str) -> None:
        _run(*self._enter, *words)


@contextlib.contextmanager
def host(name: str, number: int, *, seed: int) -> Iterator[Host]:
    """Have a host for the time of a context, with a link of its own; `seed` is the link's."""
    over = Link(f"to-{number}", f"from-{number}", seed)
    with contextlib.closing(Host(name, number, over)) as made:
        yield made


def _passes_loopback(device: str) -> str:
    """Return what lets a device carry packets from and to 127.0.0.0/8."""
    return f"echo 1 > /proc/sys/net/ipv4/conf/{device}/route_localnet"


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"

"""A fault meets effects of an export over Keeper, a REST catalog and S3; then the same command.

As much of `python -m tests.enumeration --far` (`make soak`) as a minute allows.
"""

from __future__ import annotations

from functools import partial

import pytest

from tests.enumeration.cases import Cases
from tests.enumeration.faults import Fault, seams
from tests.enumeration.scenarios import SCENARIOS, Scenario
from tests.places.services import FarServices
from tests.services.minio import MinIO
from tests.services.zookeeper import ZooKeeper

pytestmark = pytest.mark.nightly

FIRST = SCENARIOS[0]
REPLACEMENT = next(s for s in SCENARIOS if s.name == "replacement after the TTL")


@pytest.mark.parametrize(
    ("scenario", "every"), [(FIRST, 1), (REPLACEMENT, 4)], ids=["first", "replacement"]
)
def test_a_death_and_the_same_command_again_is_exactly_once(
    zookeeper_server: ZooKeeper, minio_server: MinIO, scenario: Scenario, every: int
) -> None:
    """Harm prevented: what holds for files and SQLite does not for sessions, objects and HTTP."""
    services = FarServices(zookeeper_server, minio_server)
    with Cases(scenario, services.settled) as cases:
        cases.check(Fault.DIES_BEFORE, seams(cases.steps, Fault.DIES_BEFORE)[::every])
        cases.check(Fault.LOST_RESPONSE, seams(cases.steps, Fault.LOST_RESPONSE))


def test_a_death_after_which_the_session_is_over_is_exactly_once(
    zookeeper_server: ZooKeeper, minio_server: MinIO
) -> None:
    """Harm prevented: what holds while a dead run's leases are there does not without them."""
    services = FarServices(zookeeper_server, minio_server)
    with Cases(FIRST, partial(services.settled, sessions_end=True)) as cases:
        cases.check(Fault.DIES_BEFORE, seams(cases.steps, Fault.DIES_BEFORE)[::3])

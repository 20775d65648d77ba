"""A policy: who has which privileges, by himself or by roles. What it does not grant is denied.

Roles and users are apart: a user who is called like a role has nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from tableformat.access.privileges import Need, Privilege, includes
from tableformat.access.scope import Scope

__all__ = ["Grant", "Grantee", "Membership", "Policy", "Role", "User"]


@dataclass(frozen=True, slots=True)
class User:
    """A user, by the name that the server knows him by."""

    name: str


@dataclass(frozen=True, slots=True)
class Role:
    """A role that the policy creates."""

    name: str


Grantee: TypeAlias = User | Role


@dataclass(frozen=True, slots=True)
class Grant:
    """A privilege on something, granted to users and roles."""

    privilege: Privilege
    on: Scope
    to: tuple[Grantee, ...]

    def gives(self, need: Need) -> bool:
        """Whether who has it has what is needed."""
        return includes(self.privilege, need.privilege) and self.on.covers(need.on)


@dataclass(frozen=True, slots=True)
class Membership:
    """A role granted to users and to other roles."""

    role: Role
    to: tuple[Grantee, ...]


@dataclass(frozen=True, slots=True)
class Policy:
    """Who may do what."""

    roles: tuple[Role, ...] = ()
    memberships: tuple[Membership, ...] = ()
    grants: tuple[Grant, ...] = ()

    def missing(self, user: str, needs: Iterable[Need]) -> tuple[Need, ...]:
        """Return what of it a user has not been granted, each once, in order."""
        is_he = self._is(user)
        held = [grant for grant in self.grants if not is_he.isdisjoint(grant.to)]
        asked = dict.fromkeys(needs)
        return tuple(need for need in asked if not any(grant.gives(need) for grant in held))

    def _is(self, user: str) -> set[Grantee]:
        """Return a user and all roles that he has, those of his roles included."""
        found: set[Grantee] = {User(user)}
        while True:
            more = {one.role for one in self.memberships if not found.isdisjoint(one.to)} - found
            if not more:
                return found
            found |= more

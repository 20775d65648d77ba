"""PyIceberg's REST catalog with a time-out on every request; its own waits for ever."""

from __future__ import annotations

from typing import Any

from pyiceberg.catalog.rest import RestCatalog
from requests import PreparedRequest, Response, Session

from catalog.time_outs import TimeOuts

__all__ = ["BoundedRestCatalog"]


class BoundedRestCatalog(RestCatalog):
    """A REST catalog none of whose requests waits for ever, its first one included."""

    def __init__(self, name: str, time_outs: TimeOuts, **properties: Any) -> None:
        """Open the catalog.

        Args:
            name: of the catalog.
            time_outs: of every request.
            properties: PyIceberg's own.
        """
        self._bounds = (time_outs.connect, time_outs.read)
        super().__init__(name, **properties)

    def _create_session(self) -> Session:
        session = super()._create_session()
        send = session.send

        def bounded(request: PreparedRequest, **options: Any) -> Response:
            if options.get("timeout") is None:
                options["timeout"] = self._bounds
            if isinstance(session.verify, str):
                # The catalog names authorities; requests would take REQUESTS_CA_BUNDLE before them.
                options["verify"] = session.verify
            return send(request, **options)

        # Around whatever adapters PyIceberg has mounted: one of them signs requests.
        session.send = bounded  # type: ignore[method-assign]
        return session

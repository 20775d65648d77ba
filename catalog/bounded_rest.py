"""PyIceberg's REST catalog with a time-out on every request; its own waits for ever.

What its server sends is taken as `file_properties` has it, and no property of a table says how the
table's files are opened.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from pyiceberg.catalog.rest import RestCatalog, TableResponse
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.table import StagedTable, Table
from requests import PreparedRequest, Response, Session

from catalog.file_properties import CLASSES, with_vended
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
        self._own: Mapping[str, Any] = dict(properties)
        super().__init__(name, **properties)

    def _fetch_config(self) -> None:
        super()._fetch_config()
        for name in CLASSES:
            self.properties.pop(name, None)
            if name in self._own:
                self.properties[name] = self._own[name]

    def _response_to_table(
        self, identifier_tuple: tuple[str, ...], table_response: TableResponse
    ) -> Table:
        return Table(
            identifier=identifier_tuple,
            metadata=table_response.metadata,
            metadata_location=str(table_response.metadata_location),
            io=self._io(table_response),
            catalog=self,
            config=table_response.config,
        )

    def _response_to_staged_table(
        self, identifier_tuple: tuple[str, ...], table_response: TableResponse
    ) -> StagedTable:
        return StagedTable(
            identifier=identifier_tuple,
            metadata=table_response.metadata,
            metadata_location=str(table_response.metadata_location),
            io=self._io(table_response),
            catalog=self,
        )

    def _io(self, response: TableResponse) -> FileIO:
        """Return what opens the files of a table."""
        at = response.metadata_location
        lent = self._resolve_storage_credentials(response.storage_credentials, at)
        of_server = {n: v for n, v in self.properties.items() if self._own.get(n) != v}
        vended = {**of_server, **response.config, **lent}
        return load_file_io(with_vended(self._own, vended, os.environ), at)

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

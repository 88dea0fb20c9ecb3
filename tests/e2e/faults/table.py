"""Every fault there is. A row says how it begins and ends, and what names it."""

from tests.e2e.faults import of_api_server, of_engine, of_process, of_prometheus

FAULTS = (*of_prometheus.ROWS, *of_api_server.ROWS, *of_engine.ROWS, *of_process.ROWS)

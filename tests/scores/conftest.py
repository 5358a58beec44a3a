"""Places for new stores: SQLite files, and databases of a PostgreSQL server where that is installed."""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import psycopg
import pytest

from initio.scores.database import StorePlace
from studies.servers import PostgresServer, postgres_programs, postgres_server

NewPlace = Callable[[], StorePlace]
NUMBERS = count()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    if postgres_programs() is None:
        pytest.skip("PostgreSQL is not installed: this was tried on SQLite alone")
    with postgres_server(durable=False) as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def new_place(request: pytest.FixtureRequest, tmp_path: Path) -> NewPlace:
    """Makes a place for a store that is not there yet; two can be in use at once."""
    if request.param == "sqlite":
        return lambda: tmp_path / f"{next(NUMBERS)}.db"
    databases: list[str] = request.getfixturevalue("databases")
    return lambda: emptied(databases[next(NUMBERS) % len(databases)])


@pytest.fixture(scope="session")
def databases(postgres: PostgresServer) -> list[str]:
    """To be used again and again: a new one takes a second."""
    return [postgres.create(f"store{number}") for number in range(2)]


def emptied(url: str) -> str:
    with psycopg.connect(url) as connection:
        connection.execute("DROP SCHEMA IF EXISTS initio CASCADE")
    return url

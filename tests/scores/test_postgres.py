"""What a store on a server promises beside: one sentence about what went wrong, never a password, and nothing lost."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from urllib.parse import quote

import psycopg
import pytest

from initio import Evaluation, InputError
from initio.cli import main
from initio.scores.database import STORE_VERSION
from initio.scores.postgres import ALIVE, address
from initio.scores.store import Store, find_store
from studies.servers import PASSWORD, USER, PostgresServer, postgres_programs, postgres_server
from tests.scores.conftest import emptied
from tests.scores.test_store import score

SECRETS = ["p%ss", "p%25ss", PASSWORD]


def refused(place: str, match: str) -> None:
    for read_only in (False, True):
        with pytest.raises(InputError, match=match) as error:
            Store(place, read_only=read_only)
        assert not any(secret in str(error.value) for secret in [*SECRETS, "s3cret", "cret"])


def test_a_name_has_no_password() -> None:
    assert address("postgresql://ada:s3cret@db:5433/scores").name == "postgresql://ada@db:5433/scores"
    assert address("postgresql:///scores?password=s3cret").name == "postgresql:///scores"
    assert "s3cret" not in repr(address("postgresql://ada:s3cret@db/scores"))
    assert find_store("postgresql://db/scores") == "postgresql://db/scores"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ada:s3/cret@db/scores",
        "postgresql://ada:s3@cret@db/scores",
        "postgresql://ada:s3#cret@db/scores",
        "postgresql://ada:12#s3cret@db/scores",
        "postgresql://ada:s3%cret@db/scores",
        "postgresql://ada:s3cret@db:port/scores",
    ],
)
def test_an_address_that_cannot_be_read_shows_nothing_of_it(url: str) -> None:
    refused(url, "the address of the store cannot be read: it is postgresql://USER:PASSWORD@HOST:PORT/DATABASE")


def test_other_addresses() -> None:
    refused("mysql://db/scores", r"a store is a file or begins with postgresql://, not with mysql:/")
    refused("postgresql://ada:s3cret@127.0.0.1:1/scores", "cannot be reached .*refused")
    refused("postgresql://ada:s3cret@host.invalid/scores", "cannot be reached")


NO_ADDRESS = (
    "postgresql//ada:s3cret@db/scores",
    "postgres:/ada:s3cret@db/scores",
    "postgresql:ada:s3cret@db/scores",
    "POSTGRESQL://ada:s3cret@db/scores",
    " postgresql://ada:s3cret@db/scores",
    "postgresql+psycopg://ada:s3cret@db/scores",
    "jdbc:postgresql://ada:s3cret@db/scores",
    "jdbc:postgresql:scores",
    "ada:s3cret@db.example/scores",
    "host=127.0.0.1 user=initio password=s3cret dbname=scores",
    "host=127.0.0.1 user=initio Password = s3cret",
    "postgresql:",
    "postgresql//db/scores",
    "postgres/scores",
)


@pytest.mark.parametrize("place", NO_ADDRESS)
def test_what_looks_like_an_address_is_no_file(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    scoring = ["score", "nb201", "--sample", "2", "--metrics", "params", "--store", place]
    for command in (scoring, ["store", "info", place], ["store", "copy", "nb201-study", place]):
        assert main(command) == 2
        said = capfd.readouterr()
        assert said.out == ""
        assert said.err.count("\n") == 1
        assert "postgresql://" in said.err
        assert "s3cret" not in said.err
    assert not list(tmp_path.iterdir())
    with pytest.raises(InputError, match="address|the folder of the store 'postgres(ql)?") as error:
        Store(Path(place))  # which has one slash of two
    assert "s3cret" not in str(error.value)
    assert not list(tmp_path.iterdir())


def test_a_folder_may_have_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("postgres").mkdir()
    with Store(Path("./postgres/scores.db")) as store:
        store.put([score()])
    assert main(["store", "info", "./postgres/scores.db"]) == 0


def test_a_wrong_password_and_a_database_that_is_not_there(postgres: PostgresServer) -> None:
    refused(postgres.url(password="s3cret"), "refuses this user: the name or the password is wrong")
    refused(postgres.url("absent"), "has no such database: make it by createdb")


def test_a_schema_of_someone_else(databases: list[str]) -> None:
    url = emptied(databases[0])
    with psycopg.connect(url) as connection:
        connection.execute("CREATE SCHEMA initio")
        connection.execute("CREATE TABLE initio.things (x INTEGER)")
    refused(url, "is not a store of Initio: its schema 'initio' holds something else")


def test_a_user_without_rights_is_told_so(databases: list[str]) -> None:
    """Not that there is no store: it is there, and somebody else's."""
    import psycopg

    url = emptied(databases[0])
    bob = url.replace(f"//{USER}:", "//bob:").replace(quote(PASSWORD), "bob")
    with Store(url) as store:
        store.put([score()])
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE USER bob PASSWORD 'bob'")
        for grant in ("USAGE ON SCHEMA initio", "SELECT ON TABLE initio.store"):
            refused(bob, "does not let this user do that: grant it the right")
            connection.execute(f"GRANT {grant} TO bob".encode())
        with Store(bob, read_only=True) as store, pytest.raises(InputError, match="does not let this user do that"):
            list(store.evaluations())
        connection.execute("GRANT SELECT ON ALL TABLES IN SCHEMA initio TO bob")
        with Store(bob, read_only=True) as store:
            assert list(store.evaluations()) == [score()]
        connection.execute("DROP OWNED BY bob")
        connection.execute("DROP USER bob")


def test_many_writers_where_the_database_is_serializable(postgres: PostgresServer) -> None:
    """Which would end transactions that overlap; all of them open one new store at once."""
    import psycopg

    url, many = postgres.create("serializable"), 6
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("ALTER DATABASE serializable SET default_transaction_isolation = 'serializable'")
    at_once = Barrier(many)

    def write(_: int) -> None:
        at_once.wait(60)
        with Store(url) as store:
            for number in range(20):
                store.put([score(seed=seed, batch=number) for seed in range(3)])

    with ThreadPoolExecutor(many) as pool:
        list(pool.map(write, range(many)))
    with Store(url, read_only=True) as store:
        assert len(store) == 60


def test_a_connection_that_died_is_noticed(databases: list[str]) -> None:
    """Whatever an address says itself stays."""
    url = emptied(databases[0])
    with Store(url) as store, Store(f"{url}?keepalives_idle=7") as other:
        kept, own = (opened._db._db.info.get_parameters() for opened in (store, other))  # type: ignore[attr-defined]
    assert {name: kept[name] for name in ALIVE} == {name: str(value) for name, value in ALIVE.items()}
    assert own["keepalives_idle"] == "7"


def test_a_lock_that_does_not_end_is_a_sentence(databases: list[str]) -> None:
    url = emptied(databases[0])
    with Store(url) as holder, Store(url, patience=0.1) as store:
        locked = pytest.raises(InputError, match="has been locked by another process")
        with holder._db.transaction(), locked:
            holder._db.execute("LOCK TABLE scores")
            store.put([score()])
        store.put([score()])
        assert len(store) == 1


def test_who_may_only_read(databases: list[str]) -> None:
    url = emptied(databases[0])
    with Store(url) as store:
        store.put([score()])
    with Store(url, read_only=True) as store, pytest.raises(InputError, match="can only be read"):
        store.put([score(seed=1)])


def test_commands_end_with_one_sentence_and_nothing_is_lost(
    postgres: PostgresServer, databases: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    url = emptied(databases[0])
    with Store(url) as store:
        store.put([score()])
        store._db.set_version(STORE_VERSION + 1)
    said = {
        url: f"has version {STORE_VERSION + 1}, this Initio reads up to {STORE_VERSION}: install a newer Initio or use",
        postgres.url("store0", password="s3cret"): "refuses this user: the name or the password is wrong",
        "postgresql://ada:s3cret@127.0.0.1:1/scores": "cannot be reached",
        "postgresql://ada:s3/cret@db/scores": "the address of the store cannot be read",
    }
    for place, sentence in said.items():
        for command in (["score", "nb201", "--sample", "2", "--metrics", "params", "--store"], ["store", "info"]):
            assert main([*command, place]) == 2
            told = capfd.readouterr()
            assert told.out == ""
            assert told.err.startswith("initio: ")
            assert told.err.count("\n") == 1
            assert sentence in told.err
            assert not any(secret in told.err for secret in [*SECRETS, "s3cret", "cret@"])
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE initio.store SET version = %s", [STORE_VERSION])
    with Store(url, read_only=True) as store:
        assert len(store) == 1


@pytest.mark.skipif(postgres_programs() is None, reason="PostgreSQL is not installed: there is no server to stop")
def test_a_server_that_stops_during_a_run_loses_nothing(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    score_cells = ["score", "nb201", "--sample", "20", "--metrics", "params", "--quiet", "--store"]
    with postgres_server(durable=False) as server:
        url, put, written = server.create("stops"), Store.put, []

        def put_and_stop(store: Store, evaluations: Iterable[Evaluation]) -> None:
            put(store, evaluations)
            written.append(len(store))
            if len(written) == 7:
                server.stop()

        monkeypatch.setattr(Store, "put", put_and_stop)
        assert main([*score_cells, url]) == 2
        first = capfd.readouterr()
        assert main([*score_cells, url]) == 2  # nobody is there
        second = capfd.readouterr()
        with server.again() as back, Store(back.url("stops"), read_only=True) as store:
            assert len(store) == written[-1] == 7
    for said in (first, second):
        assert said.err.startswith("initio: the store 'postgresql://initio@127.0.0.1:")
        assert said.err.count("\n") == 1
        assert not any(secret in said.err + said.out for secret in SECRETS)
    assert "went away: what was written is kept" in first.err
    assert "cannot be reached" in second.err

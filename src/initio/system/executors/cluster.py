"""A cluster, by Dask: the extra `initio[cluster]`.

The scheduler gives what a dead worker was at to another one, so that a kill costs nothing but time. Every worker must
have the versions that are here: values are promised to the bit. Only use a cluster that is your own: whoever reaches
its scheduler can run code on its workers.
"""

from __future__ import annotations

import logging
import pickle
import platform
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from initio.errors import InputError
from initio.system.executors.base import Answer, Executor, Session, Task, Work, WorkerDiedError, relay

LOCAL = re.compile(r"local:([1-9]\d{0,3})")
ADDRESS = re.compile(r"(tcp|tls|ucx|ws|wss)://\S+")
REACH = 10  # seconds to wait for a scheduler
GATHER = 60  # seconds to wait for its first worker
FETCHERS = 32  # answers that are handed over at once, so that a lost one keeps no other waiting
DESERTED, SAID = 600.0, 30.0  # seconds without any worker after which it ends, and after which that is said
HAND_OVER = 20.0  # seconds for an answer that a worker has ready; a client gives up a lost scheduler after 10
log = logging.getLogger(__name__)
SAME = ("initio", "torch", "numpy")  # whose versions must be the same everywhere


@dataclass(frozen=True)
class Cluster(Executor):
    """The workers of a Dask scheduler, or, as local:8, eight processes of this machine under a scheduler of its own."""

    where: str

    def __post_init__(self) -> None:
        if not LOCAL.fullmatch(self.where) and not ADDRESS.fullmatch(self.where):
            raise InputError(
                f"a cluster is the address of a Dask scheduler, tcp://HOST:PORT, or local:8, not {self.where!r}"
            )

    @property
    def workers(self) -> int:
        """Those of a local cluster; of another, at least one."""
        local = LOCAL.fullmatch(self.where)
        return int(local[1]) if local else 1

    @contextmanager
    def open(self, work: Work[Task, Answer]) -> Iterator[Session[Task, Answer]]:
        """A client of the scheduler, once it has a worker; each says with a task whether it is like this process."""
        import cloudpickle

        distributed: Any
        try:
            import distributed
        except ImportError:
            raise InputError("a cluster needs Dask: pip install 'initio[cluster]'") from None
        logging.getLogger("distributed").setLevel(logging.CRITICAL)  # what matters becomes a sentence
        with self._scheduler() as scheduler:
            try:
                client = distributed.Client(scheduler, timeout=REACH, set_as_default=False)
            except (OSError, TimeoutError, ValueError) as error:
                raise InputError(f"the cluster {self.where} cannot be reached: {error}") from None
            with client:
                try:
                    client.wait_for_workers(1, timeout=GATHER)
                except TimeoutError:
                    raise InputError(f"the cluster {self.where} has no worker: start some with dask worker") from None
                fetchers = ThreadPoolExecutor(FETCHERS)
                try:
                    yield _ClusterSession(client, self.where, cloudpickle.dumps(work), fetchers)
                finally:
                    fetchers.shutdown(wait=False, cancel_futures=True)

    @contextmanager
    def _scheduler(self) -> Iterator[Any]:
        if not LOCAL.fullmatch(self.where):
            yield self.where
            return
        with local_cluster(self.workers) as cluster:
            yield cluster


@contextmanager
def local_cluster(workers: int) -> Iterator[Any]:
    """A scheduler and processes of this machine, which are started again when they die, however long that takes."""
    import dask
    import distributed

    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    patient = {"distributed.deploy.lost-worker-timeout": "1 day", "distributed.comm.timeouts.connect": "120s"}
    made: Any = distributed.LocalCluster
    with dask.config.set(patient), made(workers, threads_per_worker=1, dashboard_address=":0") as cluster:
        yield cluster


def versions() -> dict[str, str]:
    """What must be the same everywhere."""
    return {"python": platform.python_version()} | {name: version(name) for name in SAME}


class _ClusterSession(Session[Task, Answer]):
    def __init__(self, client: Any, where: str, work: bytes, fetchers: ThreadPoolExecutor) -> None:
        self._client, self._where, self._mine, self._fetchers = client, where, versions(), fetchers
        self._seen, self._said = time.monotonic(), False  # when there was a worker, and whether its absence was told
        self._work = client.submit(pickle.loads, work)  # kept by the scheduler, made again where a worker lacks it

    @property
    def workers(self) -> int:
        return max(1, self._present)

    @property
    def _present(self) -> int:
        return len(self._client.scheduler_info(n_workers=-1).get("workers", ()))

    def submit(self, task: Task) -> Future[Answer]:
        return relay(self._client.submit(_do, self._work, self._mine, task, pure=False), self._answer, self._fetchers)

    def look(self) -> None:
        if self._present:
            self._seen, self._said = time.monotonic(), False
        absent = time.monotonic() - self._seen
        if absent > DESERTED:
            raise InputError(
                f"the cluster {self._where} has had no worker for {DESERTED / 60:.0f} minutes: what was done is kept, "
                f"and the same command goes on once it has some"
            )
        if absent > SAID and not self._said:
            self._said = True
            log.warning("the cluster %s has no worker: waiting %.0f minutes for one", self._where, DESERTED / 60)

    def _answer(self, sent: Any) -> Any:
        from distributed import KilledWorker

        try:
            return sent.result(timeout=HAND_OVER)
        except TimeoutError as error:
            if self._client.status != "running":
                raise self._gone() from error
            raise WorkerDiedError("a worker died with an answer that it had not handed over") from None
        except ImportError as error:
            raise InputError(
                f"a worker of the cluster {self._where} has no {error.name}: install the same as here"
            ) from None
        except KilledWorker as error:
            raise WorkerDiedError(str(error)) from None
        except (CancelledError, OSError) as error:
            raise self._gone() from error

    def _gone(self) -> InputError:
        return InputError(
            f"the scheduler of the cluster {self._where} went away: what was done is kept, and the same command "
            f"goes on once it is back"
        )


# --- in a worker ------------------------------------------------------------------------------------------------------

_ONE = threading.Lock()  # torch's random numbers and threads belong to the process


def _do(work: Work[Any, Any], expected: dict[str, str], task: Any) -> Any:
    from distributed import get_worker

    for name, theirs in versions().items():
        if theirs != expected[name]:
            mine, who = expected[name], get_worker().address
            raise InputError(f"the worker {who} has {name} {theirs}, this process has {mine}: install the same")
    with _ONE:
        return work(task)

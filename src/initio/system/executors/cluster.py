"""A cluster, by Dask: the extra `initio[cluster]`.

The scheduler gives what a dead worker was at to another one, so that a kill costs nothing but time. Every worker must
have the versions that are here and compute alike: values are promised to the bit. It is asked for its versions by
functions of the standard library, before anything of ours is unpickled there. Only use a cluster that is your own:
whoever reaches its scheduler can run code on its workers.
"""

from __future__ import annotations

import logging
import math
import pickle
import platform
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from initio.errors import InputError
from initio.system.executors.base import (
    Alike,
    Answer,
    Executor,
    Session,
    Task,
    Work,
    WorkerDiedError,
    public,
    refuse_unlike,
    relay,
    versions,
)
from initio.system.tasks import as_task

LOCAL = re.compile(r"local:([1-9]\d{0,3})")
ADDRESS = re.compile(r"(tcp|tls|ucx|ws|wss)://\S+")
REACH = 10  # seconds to wait for a scheduler
PEER = 2  # seconds for a worker to reach another one, which may have died: then it asks the scheduler
ASKED = 1.0  # seconds between two questions who the workers are
MESSAGE, MOST = 0.5, 1000  # seconds of work in one message, and tasks
FETCHERS = 32  # answers that are handed over at once, so that a lost one keeps no other waiting
DESERTED, SAID = 600.0, 30.0  # seconds without any worker after which it ends, and after which that is said
WAITED = 0.2  # seconds between two looks for the first worker
HAND_OVER = 20.0  # seconds for an answer that a worker has ready; a client gives up a lost scheduler after 10
log = logging.getLogger(__name__)


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
        """A client of the scheduler, once it has a worker; each says before its first task whether it is alike."""
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
                fetchers = ThreadPoolExecutor(FETCHERS)
                try:
                    yield _ClusterSession(client, self.where, cloudpickle.dumps(work), fetchers, self.alike)
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
    settings = {
        "distributed.deploy.lost-worker-timeout": "1 day",
        "distributed.comm.timeouts.connect": "120s",
        "distributed.worker.profile.enabled": False,  # which nobody reads
    }
    made: Any = distributed.LocalCluster
    with (
        dask.config.set(settings),
        made(
            n_workers=workers,
            threads_per_worker=1,
            dashboard_address=":0",
            silence_logs=logging.CRITICAL,  # of workers, too
            timeout=PEER,
        ) as cluster,
    ):
        yield cluster


class _ClusterSession(Session[Task, Answer]):
    def __init__(self, client: Any, where: str, work: bytes, fetchers: ThreadPoolExecutor, alike: Alike) -> None:
        self._client, self._where, self._fetchers = client, where, fetchers
        self._seen, self._said = time.monotonic(), False  # when there was a worker, and whether its absence was told
        self._met = set[str]()  # workers that have our versions
        self._known, self._asked = set[str](), -math.inf  # who was there, and when
        self._pace = math.inf  # seconds of a task
        self._gather()
        self._terms = alike, dict(alike())
        self._work = client.submit(pickle.loads, work)  # kept by the scheduler, made again where a worker lacks it

    def _gather(self) -> None:
        """Jobs of workers may be queued: the first one is waited for as long as one after all have gone."""
        while not self._meet():
            self.look()
            time.sleep(WAITED)

    @property
    def workers(self) -> int:
        return max(1, len(self._present))

    @property
    def _present(self) -> set[str]:
        """The answer takes a scheduler of many workers a while."""
        if time.monotonic() - self._asked > ASKED:
            self._known = set(self._client.scheduler_info(n_workers=-1).get("workers", ()))
            self._asked = time.monotonic()
        return self._known

    @property
    def together(self) -> int:
        return max(1, min(MOST, int(MESSAGE / self._pace)))

    def _meet(self, *, now: bool = False) -> bool:
        """Whether there is a worker; new ones are asked for their versions."""
        if now:
            self._asked = -math.inf
        with self._reached():
            present = self._present
            for who, theirs in ask_versions(self._client, sorted(present - self._met)).items():
                refuse_unlike(f"the worker {who}", theirs, versions())
                self._met.add(who)
        return bool(present)

    def submit(self, task: Task) -> Future[Answer]:
        return relay(self.submit_all([task]), lambda sent: sent.result()[0])

    def submit_all(self, tasks: Sequence[Task]) -> Future[list[Answer]]:
        self._meet()
        with self._reached():
            sent = self._client.submit(_do, self._work, self._terms, list(tasks), pure=False)
        return relay(sent, self._answers, self._fetchers)

    def look(self) -> None:
        if self._meet():
            self._seen, self._said = time.monotonic(), False
        absent = time.monotonic() - self._seen
        if absent > DESERTED:
            raise InputError(
                f"the cluster {self._where} has had no worker for {DESERTED / 60:.0f} minutes: what was done is kept, "
                f"and the same command goes on once it has some (dask worker starts them)"
            )
        if absent > SAID and not self._said:
            self._said = True
            log.warning("the cluster %s has no worker: waiting %.0f minutes for one", self._where, DESERTED / 60)

    def _answers(self, sent: Any) -> Any:
        answers, seconds = self._answer(sent)
        pace = max(1e-6, seconds / len(answers))
        self._pace = pace if math.isinf(self._pace) else 0.7 * self._pace + 0.3 * pace
        return answers

    def _answer(self, sent: Any) -> Any:
        from distributed import KilledWorker

        try:
            return sent.result(timeout=HAND_OVER)
        except TimeoutError as error:
            if self._client.status != "running":
                raise self._gone() from error
            raise WorkerDiedError("a worker died with an answer that it had not handed over") from None
        except ImportError as error:
            self._meet(now=True)  # one that came just now, perhaps with another version
            raise InputError(
                f"a worker of the cluster {self._where} has no {error.name}: install the same as here"
            ) from None
        except KilledWorker as error:
            raise WorkerDiedError(str(error)) from None
        except (CancelledError, OSError) as error:
            raise self._gone() from error
        except (AttributeError, TypeError):
            self._meet(now=True)
            raise

    @contextmanager
    def _reached(self) -> Iterator[None]:
        """A scheduler that is gone is a sentence."""
        from distributed.client import ClosedClientError

        try:
            yield
        except (OSError, ClosedClientError) as error:
            raise self._gone() from error

    def _gone(self) -> InputError:
        return InputError(
            f"the scheduler of the cluster {self._where} went away: what was done is kept, and the same command "
            f"goes on once it is back"
        )


def ask_versions(client: Any, workers: Sequence[str]) -> dict[str, dict[str, str]]:
    """What `versions` would say in each of these workers; nothing of ours is sent there, nor of one that has gone."""
    found: dict[str, dict[str, str]] = {who: {} for who in workers}
    for name in versions():
        if not found:
            break
        question: tuple[Any, ...] = (version, name)
        if name == "python":
            question = (platform.python_version,)
        for who, answer in client.run(*question, workers=list(found), on_error="return").items():
            if isinstance(answer, str):
                found[who][name] = public(answer)
            elif not isinstance(answer, PackageNotFoundError):
                del found[who]
    return found


# --- in a worker ------------------------------------------------------------------------------------------------------

_ONE = threading.Lock()  # torch's random numbers and threads belong to the process
ENDING = ("stopping", "stopped", "closing", "closed", "failed")  # of a worker, once its scheduler is gone


def _do(work: Work[Any, Any], terms: tuple[Alike, Mapping[str, str]], tasks: list[Any]) -> tuple[list[Any], float]:
    """The answers, and how long they took."""
    from distributed import get_worker

    alike, ours = terms
    with _ONE, as_task(_wanted()):
        refuse_unlike(f"the worker {get_worker().address}", alike(), ours)
        began = time.perf_counter()
        answers = [work(task) for task in tasks]
        return answers, time.perf_counter() - began


def _wanted() -> Callable[[], bool]:
    """Says whether anybody waits for the task of this thread: its client may be gone, or the scheduler."""
    from distributed import get_worker

    worker = get_worker()
    key = worker.active_threads[threading.get_ident()]

    def ask() -> bool:
        task = worker.state.tasks.get(key)
        return task is not None and task.state != "cancelled" and worker.status.name not in ENDING

    return ask

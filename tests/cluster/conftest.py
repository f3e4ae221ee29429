"""Tests against an unmodified Kubernetes control plane: `make cluster-test`.

    pytest tests/cluster --with-cluster

What runs: one etcd, kube-apiserver and kube-controller-manager for the whole session, on free
loopback ports, and a kubelet double that plays every node; kube-scheduler and our own server are
started by the tests. Tests share the API server, so each works in a fresh namespace, and what it
makes outside of one (nodes, CRDs, webhook configurations, pools) it deletes itself.
tests/cluster/node alone has a real kubelet and real containers, and needs root.
The programs are built from components/go.mod (4-5 minutes once) or taken from KUBEBUILDER_ASSETS.

A cluster of your own: with GPU_CLUSTER_KUBECONFIG=FILE nothing is started. Tests that ask only for
`cluster`, `api`, `kubectl` and `namespace` run there, as the user of that file, who must be an
administrator. Tests that ask for more (`control_plane` and everything made of it: processes to
kill, an audit log to count, users, nodes without a kubelet) cannot run there; they are
deselected, and the summary counts them and names why.

Logs, kubeconfigs and the audit log of a run stay in build/cluster-logs/<run>; the last ten runs
are kept. Whatever ends the session, its processes are killed (environment/reaper.py).
"""

import asyncio
import os
import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.bench import page, report
from tests.cluster.environment import (
    audit,
    binaries,
    client,
    components,
    control_plane,
    failure_logs,
    kubeconfigs,
    kubectl,
    nodes,
    outcomes,
    polling,
    processes,
    server_process,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence

PLAIN_USERS = ("alice", "bob")
"""Users with a token and no rights but those that a test gives them."""

_GIVEN_KUBECONFIG = "GPU_CLUSTER_KUBECONFIG"
_OPTION = "--with-cluster"
_WRITE_FIGURES = "--write-figures"
_OUTCOMES = "--outcomes"
_RUN_AGAIN = "--run-again"
_NEEDS_CONTROL = "control_plane"
_DESELECTED = pytest.StashKey[int]()
_RUN_DIRECTORY = pytest.StashKey[Path]()
_LOGGED_BEFORE = pytest.StashKey[failure_logs.Sizes]()
_HERE = Path(__file__).parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        _OPTION,
        action="store_true",
        help="run tests/cluster: start a real Kubernetes control plane on loopback",
    )
    parser.addoption(
        _WRITE_FIGURES,
        action="store_true",
        help="tests marked `figures` write build/bench/*.json: where nothing else runs on the machine",
    )
    parser.addoption(
        _OUTCOMES, metavar="FILE", help="append what failed; see tests/cluster/__main__.py"
    )
    parser.addoption(
        _RUN_AGAIN,
        action="store_true",
        help="these tests failed before: append what passes as well",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Let connections of the tests' own client end with their event loop.

    A cancelled watch waits for the API server to end TLS, which a busy one does after the loop is closed. What is
    tested runs in processes of its own.
    """
    config.addinivalue_line("filterwarnings", "ignore:unclosed:ResourceWarning")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    ours = [item for item in items if item.path.is_relative_to(_HERE)]
    if ours and not config.getoption(_OPTION, default=False):
        raise pytest.UsageError(
            f"{len(ours)} tests of tests/cluster were collected, and they need a real Kubernetes "
            f"control plane: run `make cluster-test`, or `pytest tests/cluster {_OPTION}`"
        )
    nightly = frozenset((_HERE / "nightly.txt").read_text(encoding="utf-8").split())
    for item in ours:
        item.add_marker("cluster")
        module, _, function = item.nodeid.partition("[")[0].partition("::")
        if not nightly.isdisjoint({module, f"{module}::{function}"}):
            item.add_marker("nightly")
    if os.environ.get(_GIVEN_KUBECONFIG):
        impossible = [item for item in ours if _NEEDS_CONTROL in getattr(item, "fixturenames", ())]
        config.stash[_DESELECTED] = len(impossible)
        config.hook.pytest_deselected(items=impossible)
        items[:] = [item for item in items if item not in impossible]


def pytest_runtest_setup(item: pytest.Item) -> None:
    directory = item.config.stash.get(_RUN_DIRECTORY, None)
    item.stash[_LOGGED_BEFORE] = {} if directory is None else failure_logs.sizes(directory)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> "Generator[None, pytest.TestReport, pytest.TestReport]":
    """Show with a failure what was logged meanwhile, and write the outcome where that is asked for."""
    made = yield
    is_again = item.config.getoption(_RUN_AGAIN, default=False) and made.when == "call"
    if not (made.failed or is_again):
        return made
    directory, logged = item.config.stash.get(_RUN_DIRECTORY, None), ""
    if directory is not None:
        logged = failure_logs.logged_since(directory, item.stash[_LOGGED_BEFORE])
    if made.failed:
        made.sections.append(("logged since the test began", logged))
    if path := item.config.getoption(_OUTCOMES, default=None):
        outcome = outcomes.outcome_of(
            made.nodeid, has_failed=made.failed, said=made.longreprtext, logged=logged
        )
        outcomes.append(Path(path), outcome)
    return made


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    deselected = config.stash.get(_DESELECTED, 0)
    if deselected:
        terminalreporter.section("NOT RUN", red=True)
        terminalreporter.write_line(
            f"{deselected} cluster tests need control over the components and did not run against "
            f"{_GIVEN_KUBECONFIG}={os.environ[_GIVEN_KUBECONFIG]}; unset it to run them"
        )
    directory = config.stash.get(_RUN_DIRECTORY, None)
    if directory is not None:
        terminalreporter.write_line(f"logs of the components: {directory}")


@pytest.fixture(scope="session")
def progress(pytestconfig: pytest.Config) -> "Callable[[str], None]":
    """Print a line to the terminal at once, captured output or not."""
    reporter: Any = pytestconfig.pluginmanager.get_plugin("terminalreporter")
    capture: Any = pytestconfig.pluginmanager.get_plugin("capturemanager")

    def write(line: str) -> None:
        with capture.global_and_fixture_disabled():
            reporter.ensure_newline()
            reporter.write_line(line)
            sys.stdout.flush()

    return write


@pytest.fixture(scope="session")
def write_figures(pytestconfig: pytest.Config) -> "Callable[[Sequence[report.Result]], None]":
    """Write what a test has measured, one subject a call, for docs/performance.md; see `--write-figures`."""

    def write(results: "Sequence[report.Result]") -> None:
        (subject,) = {result.subject for result in results}
        assert subject in page.SUBJECTS, f"tests/bench/page.py has no place for {subject}"
        if pytestconfig.getoption(_WRITE_FIGURES):
            report.write(subject, results)

    return write


@pytest.fixture(scope="session")
def run(pytestconfig: pytest.Config) -> "Iterator[processes.Run]":
    """The directory of logs and the owner of all processes of the session."""
    with processes.Run(binaries.ROOT / "build" / "cluster-logs") as opened:
        pytestconfig.stash[_RUN_DIRECTORY] = opened.directory
        yield opened


@pytest.fixture(name="control_plane", scope="session")
def _control_plane(
    run: processes.Run, progress: "Callable[[str], None]"
) -> control_plane.ControlPlane:
    """etcd, kube-apiserver and kube-controller-manager, all running."""
    programs = binaries.find_binaries(progress)
    progress(f"starting Kubernetes {binaries.kubernetes_version()}, logs in {run.directory}")
    started = control_plane.ControlPlane(run, programs, plain_users=PLAIN_USERS)

    async def start() -> None:
        await started.start()
        await components.KubeControllerManager(started).start()

    asyncio.run(start())
    progress(f"Kubernetes is ready at {started.url}")
    return started


@pytest.fixture(scope="session")
def kubelets(control_plane: control_plane.ControlPlane) -> components.Kubelets:
    """The kubelet double: `pause()` keeps pods Pending and Terminating until `resume()`."""
    double = components.Kubelets(control_plane)
    asyncio.run(double.start())
    return double


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> kubeconfigs.Cluster:
    """The control plane of the session, or the cluster of GPU_CLUSTER_KUBECONFIG."""
    given = os.environ.get(_GIVEN_KUBECONFIG)
    if given:
        return kubeconfigs.GivenCluster(Path(given))
    started: control_plane.ControlPlane = request.getfixturevalue("control_plane")
    return started


@pytest.fixture
async def api(cluster: kubeconfigs.Cluster) -> "AsyncIterator[client.ApiClient]":
    """A client of the administrator."""
    async with client.open_client(cluster.kubeconfig()) as opened:
        yield opened


@pytest.fixture(name="kubectl", scope="session")
def _kubectl(
    cluster: kubeconfigs.Cluster, run: processes.Run, progress: "Callable[[str], None]"
) -> kubectl.Kubectl:
    """`await kubectl("get", "pods", user="alice")`."""
    return kubectl.Kubectl(
        binaries.find_kubectl(progress), cluster, run.directory / "kubectl-cache"
    )


@pytest.fixture
async def namespace(api: client.ApiClient) -> "AsyncIterator[str]":
    """The name of a fresh namespace, deleted after the test, together with all that is in it."""
    name = f"test-{secrets.token_hex(4)}"
    await api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    # Pods are refused until the default account is there.
    account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    await polling.eventually(lambda: api.find(account), what=f"the default account of {name}")
    yield name
    await api.delete(f"/api/v1/namespaces/{name}")


@pytest.fixture(name="audit")
def _audit(control_plane: control_plane.ControlPlane) -> audit.AuditLog:
    """`mark = await audit.mark()`, then `await audit.writes(mark, user=…)`."""
    return control_plane.audit


@pytest.fixture
async def create_nodes(
    control_plane: control_plane.ControlPlane, kubelets: components.Kubelets
) -> "AsyncIterator[Callable[..., Any]]":
    """`await create_nodes(3, gpus=8, resources={…})`: nodes whose pods run; deleted afterwards.

    The arguments are those of `nodes.create_nodes`; names are unique where no prefix is given.
    """
    created: list[str] = []

    async with client.open_client(control_plane.kubeconfig()) as api:

        async def create(count: int, **options: Any) -> list[str]:
            prefix = options.setdefault("prefix", f"node-{secrets.token_hex(3)}")
            # Before the fact: a creation that fails half-way leaves nodes too.
            created.extend(nodes.node_names(prefix, count))
            return await nodes.create_nodes(api, count, **options)

        yield create
        await nodes.delete_nodes(api, created)


@pytest.fixture(scope="session")
def kwok(
    control_plane: control_plane.ControlPlane, progress: "Callable[[str], None]"
) -> components.Kwok:
    """kwok, for nodes that `create_kwok_nodes` makes."""
    started = components.Kwok(control_plane, binaries.find_kwok(progress))
    asyncio.run(started.start())
    return started


@pytest.fixture
async def create_kwok_nodes(
    control_plane: control_plane.ControlPlane, kwok: components.Kwok
) -> "AsyncIterator[Callable[..., Any]]":
    """`await create_kwok_nodes(3, labels={…})`: nodes that kwok runs, Ready; deleted afterwards."""
    created: list[str] = []

    async with client.open_client(control_plane.kubeconfig()) as api:

        async def create(count: int, **options: Any) -> list[str]:
            prefix = options.setdefault("prefix", secrets.token_hex(3))
            created.extend(nodes.node_names(nodes.KWOK_PREFIX + prefix, count))
            names = await nodes.create_kwok_nodes(api, count, **options)
            await polling.eventually(
                lambda: _all_ready(api, names),
                what=f"{count} nodes are ready",
                within=polling.PATIENCE_S + count / 2,
                every=0.1 if count < 50 else 0.5,
            )
            return names

        yield create
        await nodes.delete_nodes(api, created)


@pytest.fixture
async def start_scheduler(
    control_plane: control_plane.ControlPlane,
) -> "AsyncIterator[Callable[..., Any]]":
    """`scheduler = await start_scheduler(configuration)`: a healthy kube-scheduler, stopped after; stock by default."""
    started: list[components.KubeScheduler] = []

    async def start(
        configuration: str = components.STOCK_SCHEDULER,
    ) -> components.KubeScheduler:
        scheduler = components.KubeScheduler(
            control_plane, configuration=configuration, name=f"scheduler-{secrets.token_hex(3)}"
        )
        started.append(scheduler)
        await scheduler.start()
        return scheduler

    yield start
    for scheduler in started:
        scheduler.kill9()


@pytest.fixture
async def start_server(
    control_plane: control_plane.ControlPlane,
) -> "AsyncIterator[Callable[..., Any]]":
    """`server = await start_server(settings, port=…)`: our server, ready; killed after the test.

    `kubeconfig` is the administrator's where none is given, `until` the path to wait for.
    """
    started: list[server_process.ServerProcess] = []

    async def start(
        settings: "Mapping[str, Any]",
        *,
        port: int,
        kubeconfig: Path | None = None,
        until: str = "/readyz",
    ) -> server_process.ServerProcess:
        server = server_process.ServerProcess(
            control_plane.run,
            settings=settings,
            kubeconfig=kubeconfig or control_plane.kubeconfig(),
            port=port,
            name=f"server-{secrets.token_hex(3)}",
        )
        started.append(server)
        await server.start(until=until)
        return server

    yield start
    for server in started:
        server.kill9()


async def _all_ready(api: client.ApiClient, names: "Sequence[str]") -> bool:
    ready = {
        node["metadata"]["name"]
        for node in (await api.get(nodes.NODES))["items"]
        for item in node.get("status", {}).get("conditions") or []
        if (item["type"], item["status"]) == ("Ready", "True")
    }
    return ready.issuperset(names)

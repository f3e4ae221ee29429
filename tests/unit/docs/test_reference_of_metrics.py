"""docs/reference/metrics.md is made from the registries of the server and of the node agent.

UPDATE_GOLDEN=1 .venv/bin/pytest -q tests/unit/docs   # writes the pages of the reference
"""

from collections.abc import Iterable, Iterator
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client.metrics_core import Metric

import telemetry
from agent.driver.device_fields import DeviceField
from telemetry import (
    agent_metrics,
    console_metrics,
    device_page,
    kernel_cache_metrics,
    metrics,
    node_software_metrics,
    usage_metrics,
)
from telemetry.metric_declaration import DeclaredMetric, labels_of
from tests.support.reference_page import cell, check_page, code, table

HEAD = """\
# Metrics
Made from the registries of the programs by `make golden`. [Operations](../operations.md#metrics) says how to read the important ones, and [its alerts](../operations.md#alerts) what to do.

Gauges of pools, pods, devices and reservations are exported by the leader only. A histogram has the series `_bucket`, `_sum` and `_count`, with the label `le` besides.
"""
SERVER = """
## Server
`/metrics` of port 8443, without authentication.
"""
NODE_SOFTWARE = """
## Node software
`/metrics` of port 8443 of the leader, where `node_software.enabled` is set. Metrics with the prefix `gpu_operator_` are those of NVIDIA's GPU Operator ([what they show](../node-software.md#metrics)).
"""
USAGE = """
## Use by namespace and pod
`/metrics/usage` of port 8443, for callers with the right to it ([how](../operations.md#metrics)).
"""
AGENT = """
## Node agents and device plugins
`/metrics` of port 8081 of each pod of `gpu-node-agent` and `gpu-device-plugin-POOL`. Metrics of watches, events, requests to the API server and tasks have the same names as those of the server.
"""
DEVICES = """
## Devices
`/metrics/devices` of port 8081 of the node agent, with the labels `gpu`, `UUID`, `pci_bus_id`, `device`, `modelName`, `Hostname`, `GPU_I_ID`, `GPU_I_PROFILE`, `pool`, `namespace`, `pod` and `container` ([how they are read](../node-agent.md#metrics-of-devices)).
"""
CONSOLE = """
## Console
`/metrics` of the console in a cluster. Metrics of watches, requests to the API server and tasks have the same names as those of the server.
"""
PROCESS = """
## Process
All programs, from the client library.
"""
COLUMNS = ("metric", "type", "labels", "meaning")
Row = tuple[str, str, str, str]


def name_of(family: Metric) -> str:
    return f"{family.name}_total" if family.type == "counter" else family.name


def row_of(family: Metric, labels: Iterable[str]) -> Row:
    names = ", ".join(map(code, labels))
    return code(name_of(family)), family.type, names, cell(family.documentation)


def rows_of(*modules: ModuleType) -> Iterator[Row]:
    """Yield the metrics of the modules in the order of their definition."""
    for module in modules:
        for metric in vars(module).values():
            if isinstance(metric, DeclaredMetric):
                for family in metric.describe():
                    yield row_of(family, labels_of(metric))


def build_row() -> Row:
    (family,) = [item for item in metrics.REGISTRY.collect() if item.name == "gpu_build"]
    return code("gpu_build_info"), "gauge", "`version`, `revision`", cell(family.documentation)


def process_rows() -> Iterator[Row]:
    for collector in (ProcessCollector, PlatformCollector):
        for family in collector(registry=CollectorRegistry()).collect():
            labels = dict.fromkeys(label for sample in family.samples for label in sample.labels)
            yield row_of(family, labels)


def field_rows() -> Iterator[Row]:
    for field in DeviceField:
        yield code(field.value.name), field.value.type, "", cell(field.value.help)


def page() -> str:
    parts = [
        (HEAD + SERVER, rows_of(metrics, kernel_cache_metrics)),
        (NODE_SOFTWARE, rows_of(node_software_metrics)),
        (USAGE, rows_of(usage_metrics)),
        (AGENT, rows_of(agent_metrics)),
        (DEVICES, [*field_rows(), *rows_of(device_page)]),
        (CONSOLE, rows_of(console_metrics)),
        (PROCESS, [build_row(), *process_rows()]),
    ]
    return "".join(f"{text}\n{table(COLUMNS, rows)}" for text, rows in parts)


def test_the_reference_has_every_metric_as_the_program_exports_it():
    check_page("metrics.md", page())


def test_every_module_with_metrics_is_in_the_reference():
    modules = [
        import_module(f"telemetry.{found.name}") for found in iter_modules(telemetry.__path__)
    ]
    declaring = {
        module.__name__
        for module in modules
        for value in vars(module).values()
        if isinstance(value, DeclaredMetric)
    }
    current = (
        metrics,
        kernel_cache_metrics,
        agent_metrics,
        device_page,
        node_software_metrics,
        usage_metrics,
        console_metrics,
    )
    assert declaring == {module.__name__ for module in current}


def test_the_rows_are_every_family_of_the_registry():
    named = {
        row[0].strip("`")
        for row in rows_of(metrics, kernel_cache_metrics, agent_metrics, console_metrics)
    }
    of_the_process = {row[0].strip("`") for row in (build_row(), *process_rows())}
    exported = {name_of(family) for family in metrics.REGISTRY.collect()} - {"gpu_build"}
    assert exported | {"gpu_build_info"} == named | of_the_process

"""What promtool says of the names of all metrics."""

import subprocess
from collections.abc import Callable, Iterator
from typing import Final

from tests.cluster.environment import binaries
from tests.support.exported_series import declared_metrics, series_of

_IS_PROMISED: Final = "the name is promised to stay"
_IS_NVIDIAS: Final = "the name is NVIDIA's"
ACCEPTED: Final = {
    **dict.fromkeys(
        (
            f'{name} non-counter metrics should not have "_total" suffix'
            for name in (
                "gpu_device_faulted_total",
                "gpu_device_reserved_total",
                "gpu_device_stale_total",
                "gpu_device_unassigned_total",
                "gpu_inventory_devices_total",
                "gpupool_capacity_total",
            )
        ),
        _IS_PROMISED,
    ),
    'gpu_operator_gpu_nodes_total non-counter metrics should not have "_total" suffix': _IS_NVIDIAS,
    "gpu_process_unaccounted label names should be written in 'snake_case' not 'camelCase'": _IS_NVIDIAS,
}
"""What promtool says -> why it stays."""


def page() -> Iterator[str]:
    """Yield a page with a sample of each series."""
    for metric in declared_metrics():
        (family,) = metric.describe()
        series = series_of(metric)
        name = family.name if len(series) > 1 else next(iter(series))
        yield f"# HELP {name} {family.documentation}"
        yield f"# TYPE {name} {family.type}"
        for sample, labels in series.items():
            values = {label: "+Inf" if label == "le" else "x" for label in sorted(labels)}
            text = ",".join(f'{label}="{value}"' for label, value in values.items())
            yield f"{sample}{{{text}}} 1"


def test_names_break_no_rule_but_where_there_is_a_reason(progress: Callable[[str], None]):
    program = binaries.find_prometheus("promtool", progress)
    text = "\n".join(page()) + "\n"
    done = subprocess.run(
        [program, "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    assert set(done.stderr.splitlines()) == ACCEPTED.keys()

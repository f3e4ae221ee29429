"""`python -m tests.bench [SUBJECT ...]`."""

import sys

import uvloop

from tests.bench import bench_admission, bench_extender, bench_startup, report

SUBJECTS = {
    "extender": bench_extender.measure,
    "admission": bench_admission.measure,
    "startup": bench_startup.measure,
}


def main(names: list[str]) -> int:
    unknown = set(names) - SUBJECTS.keys()
    if unknown:
        sys.stderr.write(
            f"no such subject: {', '.join(sorted(unknown))}; there are {', '.join(SUBJECTS)}\n"
        )
        return 2
    for name in names or SUBJECTS:
        sys.stdout.write(f"measuring {name} …\n")
        sys.stdout.flush()
        results = uvloop.run(SUBJECTS[name]())
        report.write(name, results)
        for result in results:
            figures = {
                key: getattr(result, key)
                for key in ("p50_ms", "p99_ms", "rate_per_s", "echo_p50_ms", "ratio", "rss_mib")
            }
            text = "  ".join(
                f"{key} {value:,.2f}" for key, value in figures.items() if value is not None
            )
            sys.stdout.write(f"  {result.case}: {text}\n")
            sys.stdout.flush()
    report.write_page()
    sys.stdout.write(
        f"written: {report.RESULTS.relative_to(report.ROOT)}, {report.PAGE.relative_to(report.ROOT)}\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

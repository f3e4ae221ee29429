"""Benchmarks: seeded, on a ladder of sizes, correct before timed, compared within one run.

    make bench                     all subjects
    python -m tests.bench extender

Each subject writes build/bench/<subject>.json; docs/performance.md is made from those files.
"""

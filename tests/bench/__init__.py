"""Benchmarks: seeded, on a ladder of sizes, correct before timed, compared within one run.

    make bench                     all subjects
    python -m tests.bench extender

Each subject writes build/bench/<subject>.json, and so do tests of tests/cluster that are marked `figures`
(`make bench-karpenter`). docs/performance.md is made from those files; what has none stays as it is there.
"""

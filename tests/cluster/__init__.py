"""Tests on an unmodified Kubernetes: `make cluster-test`. A package, so that its folders are no packages of the same names."""

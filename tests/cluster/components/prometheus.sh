#!/usr/bin/env bash
# Takes prometheus and promtool from Debian's package `prometheus` into a directory; needs apt, and no root.
#
#   prometheus.sh OUTDIR
#
# What is already there is left alone.
set -euo pipefail

die() { echo "prometheus.sh: $*" >&2; exit 1; }

[ $# -eq 1 ] || die "usage: prometheus.sh OUTDIR"
mkdir -p "$1"
out=$(cd "$1" && pwd)
[ ! -x "$out/promtool" ] || [ ! -x "$out/prometheus" ] || exit 0

for needed in apt-get dpkg-deb; do
  command -v $needed >/dev/null || die "Prometheus is needed, and without $needed it cannot be fetched.
Install Prometheus, so that prometheus and promtool are on PATH."
done
part=$(mktemp -d "$out/.part.XXXXXX")
trap 'rm -rf "$part"' EXIT
cd "$part"
echo "fetching Debian's package prometheus"
# As root apt would download as _apt, who cannot write here, and says so.
apt-get --quiet=2 -o APT::Sandbox::User=root download prometheus
dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x ./usr/bin/promtool ./usr/bin/prometheus
mv usr/bin/promtool usr/bin/prometheus "$out/"

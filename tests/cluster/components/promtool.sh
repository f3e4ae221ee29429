#!/usr/bin/env bash
# Takes promtool from Debian's package `prometheus` into a directory; needs apt, and no root.
#
#   promtool.sh OUTDIR
#
# What is already there is left alone.
set -euo pipefail

die() { echo "promtool.sh: $*" >&2; exit 1; }

[ $# -eq 1 ] || die "usage: promtool.sh OUTDIR"
mkdir -p "$1"
out=$(cd "$1" && pwd)
[ ! -x "$out/promtool" ] || exit 0

for needed in apt-get dpkg-deb; do
  command -v $needed >/dev/null || die "promtool is needed, and without $needed it cannot be fetched.
Install Prometheus, so that promtool is on PATH."
done
part=$(mktemp -d "$out/.part.XXXXXX")
trap 'rm -rf "$part"' EXIT
cd "$part"
echo "fetching Debian's package prometheus for its promtool"
# As root apt would download as _apt, who cannot write here, and says so.
apt-get --quiet=2 -o APT::Sandbox::User=root download prometheus
dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x ./usr/bin/promtool
mv usr/bin/promtool "$out/promtool"

#!/usr/bin/env bash
# Takes docker-registry from Debian's package of that name into a directory; needs apt, and no root.
#
#   docker-registry.sh OUTDIR
#
# What is already there is left alone.
set -euo pipefail

die() { echo "docker-registry.sh: $*" >&2; exit 1; }

[ $# -eq 1 ] || die "usage: docker-registry.sh OUTDIR"
mkdir -p "$1"
out=$(cd "$1" && pwd)
[ ! -x "$out/docker-registry" ] || exit 0

for needed in apt-get dpkg-deb; do
  command -v $needed >/dev/null || die "docker-registry is needed, and without $needed it cannot be fetched.
Install distribution's registry, so that docker-registry is on PATH."
done
part=$(mktemp -d "$out/.part.XXXXXX")
trap 'rm -rf "$part"' EXIT
cd "$part"
echo "fetching Debian's package docker-registry"
# As root apt would download as _apt, who cannot write here, and says so.
apt-get --quiet=2 -o APT::Sandbox::User=root download docker-registry ||
  die "apt-get cannot download docker-registry: is there a network, and has 'apt-get update' been run?"
dpkg-deb --fsys-tarfile docker-registry_*.deb | tar -x ./usr/bin/docker-registry
mv usr/bin/docker-registry "$out/"

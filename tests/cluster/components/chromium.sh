#!/usr/bin/env bash
# Installs Debian's package chromium where there is no chromium on PATH; needs apt and root. Its hundred libraries are
# packages, too, so that it is installed and not unpacked.
set -euo pipefail

die() { echo "chromium.sh: $*" >&2; exit 1; }

! command -v chromium >/dev/null || exit 0
command -v apt-get >/dev/null || die "Chromium is needed, and without apt-get it cannot be installed.
Install Chromium, so that chromium is on PATH."
[ "$(id -u)" = 0 ] || die "Chromium is needed, and only root installs packages: apt-get install chromium"
echo "installing Debian's package chromium"
export DEBIAN_FRONTEND=noninteractive
install() { apt-get --quiet=2 install --yes --no-install-recommends chromium; }
# Without lists, or with old ones, packages are not found.
install || { apt-get --quiet=2 update && install; } || die "apt-get cannot install chromium: is there a network?"

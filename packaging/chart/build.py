"""Write the chart: `python -m chart.build DIRECTORY`.

The directory is replaced as a whole.
"""

import functools
import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from api.version import VERSION
from chart.schema import schema_text
from chart.template import template_of
from chart.tokens import TOKEN, Tokens, value_expression
from chart.values_text import values_text
from chart.workload_helper import NAME as WORKLOAD_WEBHOOKS
from chart.workload_helper import workload_helper
from cli.installed_objects import ObjectGroup, build_groups
from manifests import constants
from manifests.install.cert_manager import OWN_ISSUER
from manifests.install.installation import Installation, base_settings
from manifests.install.values import ChartValues
from server.retired_settings import RETIRED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

Json = dict[str, Any]

STATIC: Final = Path(__file__).parent / "static"
_GENERATED: Final = "{{- /* Written by `make chart` from the builders of `manifests`. */ -}}\n"
_SETTINGS: Final = 'include "gpu-control-plane.settings" . | fromYaml'
_CERT_MANAGER: Final = 'eq .Values.tls.source "CertManager"'
_CONDITIONS: Final = {
    "tls.uses_cert_manager": _CERT_MANAGER,
    "console.needs_issued_certificate": "not (or .Values.console.plainHttp .Values.console.tls.secretName)",
}
"""What is no value by itself."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A value that builders compare: some files have a part for each of its two meanings."""

    path: str
    condition: str
    met: object
    unmet: object


VARIANTS: Final = (
    Variant("kernel_caches.enabled", ".Values.kernelCaches.enabled", met=True, unmet=False),
    Variant("tls.source", _CERT_MANAGER, "CertManager", "SelfSigned"),
    Variant("console.plain_http", ".Values.console.plainHttp", met=True, unmet=False),
    Variant("crds.keep", ".Values.crds.keep", met=True, unmet=False),
    Variant(
        "monitoring.service_monitor.usage",
        ".Values.monitoring.serviceMonitor.usage",
        met=True,
        unmet=False,
    ),
    Variant("node_software.enabled", ".Values.nodeSoftware.enabled", met=True, unmet=False),
    Variant("uninstall.force", ".Values.uninstall.force", met=True, unmet=False),
)


def main(arguments: "Sequence[str]") -> int:
    (directory,) = map(Path, arguments)
    files = build_chart()  # before the directory goes, which has the dashboards' source
    if directory.exists():
        shutil.rmtree(directory)
    for path, text in files.items():
        file = directory / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return 0


def build_chart() -> dict[str, str]:
    """Return the files of the chart: path -> text."""
    static = {
        path.relative_to(STATIC).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(STATIC.rglob("*"))
        if path.is_file()
    }
    written = {
        "Chart.yaml": yaml.safe_dump(_chart(), sort_keys=False, width=100),
        "values.yaml": values_text(),
        "values.schema.json": schema_text(),
        "files/retired-settings.yaml": yaml.safe_dump(RETIRED, width=200),
        **dict(_templates()),
    }
    if static.keys() & written.keys():
        raise ValueError(f"written twice: {sorted(static.keys() & written.keys())}")
    return dict(sorted((static | written).items()))


def _chart() -> Json:
    return {
        "apiVersion": "v2",
        "name": constants.NAME,
        "description": "GPU pools for Kubernetes: devices under one resource name, bound to pods by name.",
        "type": "application",
        "version": VERSION,
        "appVersion": VERSION,
        # Vendors' versions have suffixes, which count as pre-releases.
        "kubeVersion": ">=1.30.0-0",
        "keywords": ["gpu", "scheduling", "device plugin"],
    }


def _templates() -> "Iterator[tuple[str, str]]":
    tokens = Tokens()

    @functools.cache
    def groups(*fixed: tuple[str, object]) -> dict[str, ObjectGroup]:
        made = build_groups(_installation(tokens, dict(fixed)))
        return {group.name: group for group in made}

    @functools.cache
    def rendered(documents: str) -> str:
        """Most objects are the same for most variants, and to write them as YAML takes a hundred times as long."""
        return template_of(json.loads(documents), tokens.expressions())

    usual = {variant.path: variant.unmet for variant in VARIANTS}
    for name, group in groups(*usual.items()).items():
        if not group.is_in_chart:
            continue
        yield from _with_files(group, tokens)[1].items()

        def text_of(fixed: "Mapping[str, object]", name: str = name) -> str:
            documents, _ = _with_files(groups(*fixed.items())[name], tokens)
            return rendered(json.dumps(documents))

        text = _with_variants(text_of, usual)
        yield f"templates/{name}.yaml", _GENERATED + _if_all(_conditions(group), text)
    yield "templates/_base_settings.tpl", _base_settings(tokens, usual)
    yield "templates/_workload_webhooks.tpl", _GENERATED + workload_helper(_SETTINGS)


def _with_variants(
    text_of: "Callable[[Mapping[str, object]], str]",
    fixed: "Mapping[str, object]",
    variants: "Sequence[Variant]" = VARIANTS,
) -> str:
    """Return the text with a part for each meaning of the variants that it depends on."""
    if not variants:
        return text_of(fixed)
    first, *others = variants
    met, unmet = (
        _with_variants(text_of, {**fixed, first.path: value}, others)
        for value in (first.met, first.unmet)
    )
    return unmet if met == unmet else _if_else(first.condition, met, unmet)


def _installation(tokens: Tokens, fixed: "Mapping[str, object]") -> Installation:
    images = 'include "gpu-control-plane.operandImages" . | fromJsonArray | join "\', \'"'
    writers = ".Values.managedFields.nodeWriters | join \"', '\""
    issuer = " ".join(f'"{key}" "{value}"' for key, value in OWN_ISSUER.items())
    given = value_expression("tls.cert_manager.issuer_ref")
    return Installation(
        values=tokens.values(ChartValues, fixed),
        namespace=tokens.text(".Release.Namespace"),
        image=tokens.text('include "gpu-control-plane.image" .'),
        scheduler_image=tokens.text('include "gpu-control-plane.schedulerImage" .'),
        settings=tokens.text(f'{_SETTINGS} | toJson | replace "$" "$$"'),
        port=tokens.number(f'dig "listen" "port" {constants.CONTAINER_PORT} ({_SETTINGS})'),
        operand_images=(tokens.text(images),),
        pull_secrets=tokens.sequence('include "gpu-control-plane.pullSecrets" . | fromYamlArray'),
        node_writers=(tokens.text(writers),),
        workload_webhooks=tokens.sequence(f'include "{WORKLOAD_WEBHOOKS}" . | fromYamlArray'),
        viewer_subjects=tokens.sequence(
            'include "gpu-control-plane.poolViewers" . | fromYamlArray'
        ),
        serving_issuer=tokens.mapping(f"{given} | default (dict {issuer})"),
        cache_volumes=tokens.sequence('include "gpu-control-plane.cacheVolumes" . | fromYamlArray'),
        cache_mounts=tokens.sequence('include "gpu-control-plane.cacheMounts" . | fromYamlArray'),
        console_secret=tokens.text(
            f'.Values.console.tls.secretName | default "{constants.CONSOLE_SECRET}"'
        ),
        console_arguments=tokens.sequence(
            'include "gpu-control-plane.consoleArguments" . | fromYamlArray'
        ),
    )


def _base_settings(tokens: Tokens, usual: "Mapping[str, object]") -> str:
    """Return the helper with the settings that follow from other values."""

    def text_of(fixed: "Mapping[str, object]") -> str:
        settings = base_settings(
            tokens.values(ChartValues, fixed),
            namespace=tokens.text(".Release.Namespace"),
            image=tokens.text('include "gpu-control-plane.image" .'),
        )
        return template_of([settings], tokens.expressions()).removeprefix("---\n")

    body = _with_variants(text_of, usual)
    return f'{_GENERATED}{{{{- define "gpu-control-plane.baseSettings" }}}}\n{body}{{{{- end }}}}\n'


def _with_files(group: ObjectGroup, tokens: Tokens) -> tuple[list[Json], dict[str, str]]:
    """Return the objects, and the files for those whose text Helm would take for its own."""
    documents: list[Json] = []
    files: dict[str, str] = {}
    for object_ in group.objects:
        document = object_
        if group.name == "dashboards":
            data = {}
            for key, text in object_["data"].items():
                name = f"files/{group.name}/{key}"
                files[name], given = _with_marks(text, tokens)
                data[key] = tokens.lines(f'.Files.Get "{name}"{given}')
            document = {**object_, "data": data}
        elif "{{" in str(object_):
            name = f"files/{group.name}.yaml"
            files[name], given = _with_marks(_yaml_of(json.dumps(object_["spec"])), tokens)
            document = {key: value for key, value in object_.items() if key != "spec"}
            document["spec"] = tokens.mapping(f'.Files.Get "{name}"{given} | fromYaml')
        documents.append(document)
    return documents, files


@functools.cache
def _yaml_of(document: str) -> str:
    text: str = yaml.safe_dump(json.loads(document), sort_keys=False, allow_unicode=True, width=100)
    return text


def _with_marks(text: str, tokens: Tokens) -> tuple[str, str]:
    """Return a file with `<expression>` for each token, and what has Helm replace them by their values."""
    expressions = {
        token: tokens.expressions()[token].text for token in sorted({*TOKEN.findall(text)})
    }
    for token, expression in expressions.items():
        text = text.replace(token, f"<{expression}>")
    replaced = (f' | replace "<{item}>" ({item})' for item in expressions.values())
    return text, "".join(replaced)


def _if_else(condition: str, met: str, unmet: str) -> str:
    return f"{{{{- if {condition} }}}}\n{met}{{{{- else }}}}\n{unmet}{{{{- end }}}}\n"


def _conditions(group: ObjectGroup) -> list[str]:
    conditions = [_CONDITIONS.get(path, value_expression(path)) for path in group.needs]
    if group.needs_backend:
        named = f'dig "autoscaling" "backends" (list) ({_SETTINGS})'
        conditions.append(f'has "{group.needs_backend}" ({named})')
    return conditions


def _if_all(conditions: list[str], text: str) -> str:
    """Return the text under the conditions of its group."""
    match conditions:
        case []:
            return text
        case [condition]:
            return f"{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n"
        case _:
            return f"{{{{- if and {' '.join(f'({item})' for item in conditions)} }}}}\n{text}{{{{- end }}}}\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

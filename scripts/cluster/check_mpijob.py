"""Checks a manifest against the schema of an installed MPI Operator: unknown fields are errors, as with
`kubectl --validate=strict`. For those who have the operator's file but no cluster at hand.

    pip install jsonschema pyyaml
    kubectl get crd mpijobs.kubeflow.org -o yaml > crd.yaml     # or manifests/base/kubeflow.org_mpijobs.yaml
    python3 scripts/cluster/check_mpijob.py crd.yaml scripts/cluster/mpijob.yaml
"""

import sys

import jsonschema
import yaml


def closed(schema):
    """The schema with all other fields forbidden, and with what is no JSON Schema turned into it."""
    if not isinstance(schema, dict):
        return schema
    new = {
        key: {name: closed(part) for name, part in value.items()} if key == "properties" else closed(value)
        for key, value in schema.items()
    }
    if "properties" in schema and "additionalProperties" not in schema:
        new["additionalProperties"] = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    if schema.get("x-kubernetes-int-or-string"):
        new.pop("type", None)
    return new


def main(crd_path, manifest_path):
    with open(crd_path) as file:
        crd = next(d for d in yaml.safe_load_all(file) if d and d["kind"] == "CustomResourceDefinition")
    with open(manifest_path) as file:
        manifest = yaml.safe_load(file)
    group, version = manifest["apiVersion"].split("/")
    assert group == crd["spec"]["group"], f"the schema is of {crd['spec']['group']}"
    versions = {v["name"]: v["schema"]["openAPIV3Schema"] for v in crd["spec"]["versions"]}
    schema = closed(versions[version])
    schema["properties"]["metadata"] = {"type": "object"}  # the server's own
    errors = sorted(jsonschema.Draft202012Validator(schema).iter_errors(manifest), key=lambda e: e.json_path)
    for error in errors:
        print(f"{error.json_path}: {error.message}")
    sys.exit(1 if errors else 0)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])

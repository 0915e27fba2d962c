"""What an installed wheel brings: an SBOM that also lists files of others and weights, and a licence report.

    python release/report.py ENVIRONMENT.json OUT

ENVIRONMENT.json is what `cyclonedx-py environment` writes of an environment with the wheel and nothing else;
`make sbom` does all of it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BROUGHT = Path(__file__).with_name("brought.json")
#: By trove classifier, where a package names its licence by no SPDX identifier.
CLASSIFIERS = "License :: OSI Approved :: "


def brought() -> Iterator[dict[str, Any]]:
    """Components of the wheel that are no Python packages, with a hash of each file."""
    for entry in json.loads(BROUGHT.read_text()):
        files = sorted(path for pattern in entry["files"] for path in ROOT.glob(pattern))
        if not files:
            raise SystemExit(f"release: {BROUGHT.name}: {entry['name']}: no file {entry['files'][0]}")
        component: dict[str, Any] = {
            "type": entry["type"],
            "bom-ref": f"brought:{entry['name']}",
            "name": entry["name"],
            "description": entry["note"],
        }
        component |= {name: entry[name] for name in ("version", "purl") if name in entry}
        if entry["licence"] is not None:
            said = entry["licence"]
            component["licenses"] = [{"expression": said} if " " in said else {"license": {"id": said}}]
        component["components"] = [
            {
                "type": "file",
                "bom-ref": f"brought:{path.relative_to(ROOT).as_posix()}",
                "name": path.relative_to(ROOT).as_posix(),
                "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(path.read_bytes()).hexdigest()}],
            }
            for path in files
        ]
        yield component


def licence_of(component: dict[str, Any]) -> str:
    """What a component says of its licence, best first: an expression, an identifier, a name."""
    said = component.get("licenses", [])
    for entry in said:
        if "expression" in entry:
            return str(entry["expression"])
    named = [entry["license"] for entry in said if "license" in entry]
    for key in ("id", "name"):
        found = dict.fromkeys(str(entry[key]).removeprefix(CLASSIFIERS) for entry in named if key in entry)
        if found:
            return ", ".join(found)
    return "not stated"


def report(bom: dict[str, Any]) -> str:
    """The licences as Markdown, what is brought first."""
    own = bom["metadata"]["component"]
    parts = [part for part in bom["components"] if part["bom-ref"].startswith("brought:")]
    packages = [part for part in bom["components"] if part not in parts]
    lines = [
        f"# Licences of {own['name']} {own['version']} and what it brings",
        "",
        f"The wheel as a whole: {licence_of(own)}.",
        "",
        "## In the wheel, beside its code",
        "",
        "| what | licence | note |",
        "|---|---|---|",
        *(f"| {part['name']} | {licence_of(part)} | {part['description']} |" for part in parts),
        "",
        f"## Installed with it: {len(packages)} packages",
        "",
        "| package | version | licence |",
        "|---|---|---|",
    ]
    rows = sorted(packages, key=lambda part: part["name"].lower())
    lines += [f"| {part['name']} | {part.get('version', '')} | {licence_of(part)} |" for part in rows]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write both files."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("environment", type=Path, help="of cyclonedx-py, JSON")
    parser.add_argument("out", type=Path, help="folder")
    options = parser.parse_args()
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    bom = json.loads(options.environment.read_text())
    # The project itself stands in the environment too; it is the main component.
    own = bom["metadata"]["component"]
    bom["components"] = [part for part in bom.get("components", []) if part["name"] != own["name"]]
    bom["components"] += brought()
    schema = SchemaVersion.from_version(bom["specVersion"])
    wrong = JsonStrictValidator(schema).validate_str(json.dumps(bom))
    if wrong is not None:
        raise SystemExit(f"release: no valid CycloneDX: {wrong}")
    options.out.mkdir(parents=True, exist_ok=True)
    for name, text in (("sparsight.cdx.json", json.dumps(bom, indent=1)), ("licences.md", report(bom))):
        (options.out / name).write_text(text + ("" if text.endswith("\n") else "\n"))
        print(options.out / name)


if __name__ == "__main__":
    main()

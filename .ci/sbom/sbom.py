"""Lists the contents of one image of an OCI archive, as CycloneDX: sbom.py ARCHIVE ARCHITECTURE OUTPUT.

Debian's and Python's packages are those that the image's own files name. Modules of Go are those that the binary names. The crates of a binary of Rust are those that
Cargo resolves for it, in the tree that the image was made of. Each must be in the binary's own list, and any crate that a path in the binary names must be among them.

The same image gives the same list: its time is the image's, and its serial number is made of the image's digest.
"""

import email
import gzip
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import uuid
from datetime import datetime
from pathlib import Path

import auditable
from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
# The Cargo package of each binary.
RUST = {"ccm": "ccm", "provider-mock": "provider-mock"}
GO = {"provider-go", "provider-digitalocean", "provider-hetzner", "provider-aws"}
STATUS = "var/lib/dpkg/status.d/"
METADATA = re.compile(r"usr/local/lib/python3\.\d+/dist-packages/[^/]+\.dist-info/METADATA")
NAMED = re.compile(rb"/cargo/registry/src/[^/\s]+/([A-Za-z0-9_-]+?)-(\d+\.\d+\.\d+[A-Za-z0-9.+-]*)/")


class Wrong(Exception):
    """The reason why there is no list."""


class Image:
    """One image of an archive."""

    def __init__(self, archive: Path, architecture: str) -> None:
        with tarfile.open(archive) as tar:

            def blob(digest: str) -> bytes:
                member = tar.extractfile("blobs/" + digest.replace(":", "/"))
                assert member is not None
                return member.read()

            member = tar.extractfile("index.json")
            assert member is not None
            index = json.loads(blob(json.load(member)["manifests"][0]["digest"]))
            found = [one for one in index["manifests"] if one["platform"]["architecture"] == architecture]
            if not found:
                raise Wrong(f"{archive} has no image for {architecture}: make images PLATFORMS=linux/{architecture}")
            self.digest: str = found[0]["digest"]
            manifest = json.loads(blob(self.digest))
            self.config = json.loads(blob(manifest["config"]["digest"]))
            self.files: dict[str, bytes] = {}
            for layer in manifest["layers"]:
                with tarfile.open(fileobj=io.BytesIO(gzip.decompress(blob(layer["digest"])))) as files:
                    for file in files:
                        if file.isfile():
                            content = files.extractfile(file)
                            assert content is not None
                            self.files[file.name.removeprefix("./").lstrip("/")] = content.read()
        self.architecture = architecture
        labels = self.config["config"]["Labels"]
        self.title, self.version, self.revision = (labels[f"org.opencontainers.image.{key}"] for key in ("title", "version", "revision"))


class Inventory:
    """The list of an image's contents, in CycloneDX."""

    def __init__(self, image: Image) -> None:
        self.bom = Bom(serial_number=uuid.uuid5(uuid.NAMESPACE_OID, image.digest))
        self.bom.metadata.timestamp = datetime.fromisoformat(image.config["created"].replace("Z", "+00:00"))
        self.image = Component(
            type=ComponentType.CONTAINER,
            name=image.title,
            version=image.version,
            bom_ref=image.title + "@" + image.digest,
            purl=PackageURL("oci", name=image.title, version=image.digest, qualifiers={"arch": image.architecture, "tag": image.version}),
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=image.digest.removeprefix("sha256:"))],
        )
        self.bom.metadata.component = self.image
        self.known: dict[str, Component] = {}

    def add(self, purl: PackageURL, license: str | None = None, sha256: str | None = None, type: ComponentType = ComponentType.LIBRARY, name: str | None = None) -> Component:
        """Returns the component, and adds it if it is new."""
        reference = purl.to_string()
        if reference not in self.known:
            self.known[reference] = Component(
                type=type,
                name=name or purl.name,
                version=purl.version,
                bom_ref=reference,
                purl=purl,
                licenses=[LicenseFactory().make_from_string(license)] if license else [],
                hashes=[HashType(alg=HashAlgorithm.SHA_256, content=sha256)] if sha256 else [],
            )
            self.bom.components.add(self.known[reference])
        return self.known[reference]

    def depends(self, on: Component, by: Component | None = None) -> None:
        self.bom.register_dependency(by or self.image, [on])

    def text(self) -> str:
        return JsonV1Dot6(self.bom).output_as_string(indent=2) + "\n"


def run(*command: str) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def crates(image: Image, inventory: Inventory) -> None:
    """The crates that Cargo resolves for the binary."""
    # As `.ci/images` finds it.
    revision = os.environ.get("REVISION") or (run("git", "rev-parse", "HEAD").strip() if Path(".git").exists() else "unknown")
    if image.revision.removesuffix("-dirty") != revision.removesuffix("-dirty"):
        raise Wrong(f"the image {image.title} is of {image.revision}, and the tree is {revision}: make images first")
    with open("Cargo.lock", "rb") as file:
        checksums = {(one["name"], one["version"]): one.get("checksum") for one in tomllib.load(file)["package"]}

    def resolved(package: str) -> list[tuple[int, Component]]:
        target = f"{MACHINES[image.architecture]}-unknown-linux-musl"
        lines = run("cargo", "tree", "--locked", "--package", package, "--target", target, "--edges", "normal", "--prefix", "depth", "--format", "\t{p}\t{l}\t").splitlines()
        found = []
        for line in filter(None, lines):
            depth, about, license, _ = line.split("\t")
            name, version = about.split(" ")[:2]
            version = version.removeprefix("v")
            component = inventory.add(PackageURL("cargo", name=name, version=version), license.replace("/", " OR "), checksums[name, version])
            found.append((int(depth), component))
        return found

    path: list[Component] = []
    for depth, component in resolved(RUST[image.title]):
        del path[depth:]
        inventory.depends(component, path[-1] if path else None)
        path.append(component)
    binary = image.files[image.config["config"]["Entrypoint"][0].lstrip("/")]
    named = {(name.decode(), version.decode()) for name, version in NAMED.findall(binary)}
    listed = {(one.name, one.version) for one in inventory.known.values()}
    own = auditable.crates(binary)
    if own is None:
        raise Wrong(f"{image.title}: the binary has no list of its crates")
    # The binary's own list may have more crates: cargo-auditable also counts the features that other crates of the workspace ask for.
    if missing := sorted(listed - {(one["name"], one["version"]) for one in own}):
        raise Wrong(f"{image.title}: crates in the list that the binary's own list lacks: {missing}")
    if not named:
        raise Wrong(f"{image.title}: the binary names no crate, so the list cannot be compared with it")
    if missing := sorted(named - listed):
        raise Wrong(f"{image.title}: crates in the binary that the list lacks: {missing}")


def authorities(image: Image, inventory: Inventory) -> None:
    """The trusted root certificates: the content of a crate that no binary links."""
    if "etc/ssl/certs/ca-certificates.crt" not in image.files or image.title not in GO | RUST.keys():
        return
    with open("Cargo.lock", "rb") as file:
        roots = [one for one in tomllib.load(file)["package"] if one["name"] == "webpki-root-certs"]
    for one in roots:
        inventory.depends(inventory.add(PackageURL("cargo", name=one["name"], version=one["version"]), "CDLA-Permissive-2.0", one["checksum"], ComponentType.DATA))


def modules(image: Image, inventory: Inventory) -> None:
    """The modules that a Go binary names."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(image.files[image.config["config"]["Entrypoint"][0].lstrip("/")])
        file.flush()
        first, *lines = run("go", "version", "-m", file.name).splitlines()
    inventory.depends(inventory.add(PackageURL("golang", name="stdlib", version=first.rsplit(" go", 1)[1]), "BSD-3-Clause"))
    for line in lines:
        kind, *fields = line.strip().split("\t")
        if kind in ("mod", "dep"):
            namespace, _, name = fields[0].rpartition("/")
            # Modules of this repository have no separate version.
            version = fields[1] if fields[1] not in ("(devel)", "v0.0.0") else image.version
            inventory.depends(inventory.add(PackageURL("golang", namespace=namespace, name=name, version=version), name=fields[0]))


def debian(image: Image, inventory: Inventory) -> None:
    """The packages in dpkg's files."""
    packages = {path: content for path, content in image.files.items() if path.startswith(STATUS)}
    if not packages:
        return
    system = dict(line.replace('"', "").split("=", 1) for line in image.files["usr/lib/os-release"].decode().splitlines() if "=" in line)
    distro = f"{system['ID']}-{system['VERSION_ID']}"
    inventory.bom.components.add(Component(type=ComponentType.OPERATING_SYSTEM, name=system["ID"], version=system["VERSION_ID"], bom_ref=distro))
    for content in packages.values():
        fields = email.message_from_bytes(content)
        qualifiers = {"arch": fields["Architecture"], "distro": distro}
        # Debian's security notes name source packages.
        if source := fields["Source"]:
            qualifiers["upstream"] = re.sub(r" \((.*)\)", r"@\1", source)
        inventory.depends(inventory.add(PackageURL("deb", system["ID"], fields["Package"], fields["Version"], qualifiers)))


def python(image: Image, inventory: Inventory) -> None:
    """The packages in pip's files."""
    for path, content in image.files.items():
        if METADATA.fullmatch(path):
            fields = email.message_from_bytes(content)
            inventory.depends(inventory.add(PackageURL("pypi", name=fields["Name"], version=fields["Version"]), fields["License-Expression"] or fields["License"]))


def main(archive: Path, architecture: str, output: Path) -> None:
    image = Image(archive, architecture)
    inventory = Inventory(image)
    if image.title in RUST:
        crates(image, inventory)
    elif image.title in GO:
        modules(image, inventory)
    authorities(image, inventory)
    debian(image, inventory)
    python(image, inventory)
    if not inventory.known:
        raise Wrong(f"{image.title}: nothing is found in it")
    text = inventory.text()
    if errors := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        raise Wrong(f"{output} would be no CycloneDX: {errors}")
    output.write_text(text)
    kinds: dict[str, int] = {}
    for component in inventory.known.values():
        assert component.purl is not None
        kinds[component.purl.type] = kinds.get(component.purl.type, 0) + 1
    print(f"{output.name}: {', '.join(f'{count} of {kind}' for kind, count in sorted(kinds.items()))}")


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
    except Wrong as wrong:
        sys.exit(f"wrong: {wrong}")

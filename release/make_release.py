"""Build, check and sign a release: an sdist, wheels for two processors, checksums and signatures.

    python release/make_release.py --out dist --key ~/.ssh/id_ed25519

Signatures are those of ``ssh-keygen -Y sign``, so any SSH key signs. Users verify a file with its ``.sig``:

    ssh-keygen -Y verify -f allowed_signers -I sparsight -n sparsight -s FILE.sig < FILE

``allowed_signers`` is written too; publish it where people trust it more than the place of the files.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import platform_wheel
import surface

ROOT = platform_wheel.ROOT
SNAPSHOT = ROOT / "tests/architecture/public_surface.txt"
SUMS = "SHA256SUMS"
SIGNERS = "allowed_signers"
#: Name of the signer, and purpose of the signatures.
IDENTITY = "sparsight"


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for the files; must be empty")
    parser.add_argument("--key", type=Path, required=True, help="private SSH key that signs")
    parser.add_argument(
        "--rehearse", action="store_true", help="allow changed files and a version without a date"
    )
    options = parser.parse_args(arguments)
    version = version_of(ROOT / "pyproject.toml")
    wrong = problems(version, rehearse=options.rehearse)
    if wrong:
        raise SystemExit("No release:\n" + "\n".join(f"- {line}" for line in wrong))
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    if any(out.iterdir()):
        raise SystemExit(f"{out} is not empty: name another folder, or delete its files")
    files = build(out)
    sign(files, options.key)
    for file in (*files, out / SUMS):
        if not verified(file, out / SIGNERS):
            raise SystemExit(f"the signature of {file} does not fit")
        print(file)
    if not options.rehearse:
        surface.SURFACES.mkdir(exist_ok=True)
        kept = shutil.copy(SNAPSHOT, surface.SURFACES / f"{version}.txt")
        print(f"Commit {kept}, then run: git tag v{version}")
    return 0


def version_of(file: Path) -> str:
    """Return the version in a pyproject.toml."""
    (version,) = re.findall(r'^version = "(.+)"$', file.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return str(version)


def problems(version: str, *, rehearse: bool) -> list[str]:
    """Return why this tree cannot be released as a version."""
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    lines = SNAPSHOT.read_text(encoding="utf-8").splitlines()
    found = surface.check(version, lines, changelog)
    if rehearse:
        return found
    if re.search(rf"^## \[{re.escape(version)}\] - 20\d\d-\d\d-\d\d$", changelog, re.MULTILINE) is None:
        found.append(f"CHANGELOG.md has no date for {version}: write it into the heading")
    status = ["git", "status", "--porcelain"]
    if subprocess.run(status, cwd=ROOT, capture_output=True, text=True, check=True).stdout:
        found.append("files differ from the commit: git status names them")
    return found


def build(out: Path) -> list[Path]:
    """Build the sdist and both wheels."""
    command = [sys.executable, "-m", "build", "--sdist", "--outdir", str(out), str(ROOT)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    (sdist,) = out.glob("*.tar.gz")
    return [sdist, *(platform_wheel.build(out, machine) for machine in platform_wheel.MACHINES)]


def sign(files: Sequence[Path], key: Path) -> None:
    """Write checksums, a signature next to each file, and the public key next to them."""
    folder = files[0].parent
    sums = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files]
    (folder / SUMS).write_text("".join(sums))
    command = ["ssh-keygen", "-Y", "sign", "-q", "-f", str(key), "-n", IDENTITY]
    subprocess.run([*command, *map(str, files), str(folder / SUMS)], check=True)
    public = subprocess.run(
        ["ssh-keygen", "-y", "-f", str(key)], capture_output=True, text=True, check=True
    ).stdout
    (folder / SIGNERS).write_text(f'{IDENTITY} namespaces="{IDENTITY}" {public}')


def verified(file: Path, signers: Path) -> bool:
    """Return True if the signature of a file is by one of the signers."""
    signature = file.with_name(f"{file.name}.sig")
    command = ["ssh-keygen", "-Y", "verify", "-f", str(signers), "-I", IDENTITY, "-n", IDENTITY]
    with file.open("rb") as content:
        done = subprocess.run(
            [*command, "-s", str(signature)], stdin=content, capture_output=True, check=False
        )
    return done.returncode == 0


if __name__ == "__main__":
    raise SystemExit(main())

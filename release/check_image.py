"""Build the images of ``deploy/Containerfile``, and try the wheel there, without a compiler or a network.

    python release/check_image.py --work build/image

It needs Linux, ``apt install buildah mmdebstrap uidmap``, pip, zig (``pip install ziglang wheel``) and 6 GB,
or several times that without overlay mounts. As another user than root, run it by ``buildah unshare``; what
``mount`` reports then is harmless. Nothing is installed on the machine, and no registry of images is asked:
the base is Debian's smallest system, from its packages.

1. Build both images, and measure them beside torch.
2. Look for compilers. Run ``perceive doctor --install`` and both demos without a network, and time a frame
   there and on this machine in turn.
3. Run both services by the commands and health checks of their images. Kill them, start them again, and
   count the memories.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import platform_wheel

ROOT = platform_wheel.ROOT
DEBIAN = "bookworm"
BASE = "localhost/sparsight-base"
TARGETS = ("serve", "live")
COMPILERS = ("cc", "c++", "gcc", "g++", "clang", "clang++", "tcc", "nvcc", "zig", "ld", "as")
LIMIT_BYTES = 1_500_000_000
ROUNDS, WAIT_S = 3, 180
ENVIRONMENT = {"BUILDAH_ISOLATION": "chroot", "RECALL_TOKEN": "check"}
FRAME = """
import statistics, time
from perception import Detector
from perception.data.sample import sample_frames
detector, cloud, times = Detector.from_pretrained("pointpillars-kitti"), sample_frames()[-1].cloud, []
for _ in range(30):
    start = time.perf_counter()
    detector(cloud)
    times.append(time.perf_counter() - start)
print(min(times) * 1e3, statistics.median(times[5:]) * 1e3)
"""
#: Bytes of the image, and of what pip installed as torch.
SIZES = """
du -sb --exclude=/proc --exclude=/sys --exclude=/dev --exclude=/data / 2>/dev/null | cut -f 1
cd /opt/sparsight/lib/python3*/site-packages
du -sbc torch torch-* functorch torchgen nvidia triton 2>/dev/null | tail -n 1
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; the exit status is 1 if something that is checked does not hold."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, required=True, help="folder for everything; kept between runs")
    parser.add_argument("--wheel", type=Path, help="wheel to check (default: build one)")
    parser.add_argument(
        "--torch", default="torch==2.13.0", help="what pip installs first (default: %(default)s)"
    )
    options = parser.parse_args(arguments)
    reason = why_not()
    if reason is not None:
        raise SystemExit(f"check_image: {reason}")
    images = Images(options.work.resolve())
    images.build(
        options.wheel or platform_wheel.build(images.work / "dist", platform.machine()), options.torch
    )
    leave_network()
    problems = [*check_size(images), *check_demos(images), *check_services(images)]
    for problem in problems:
        print(f"FAILED: {problem}")
    return int(bool(problems))


def why_not() -> str | None:
    """Return what is missing on this machine, or None."""
    for program in ("buildah", "mmdebstrap", "ip"):
        if shutil.which(program) is None:
            return f"{program} is missing: apt install buildah mmdebstrap uidmap iproute2"
    if os.geteuid():
        return "an ordinary user runs it by: buildah unshare python release/check_image.py"
    return None


class Images:
    """The images in a work folder, and containers made from them.

    Attributes:
        work: folder of the images and of what containers write, which they see as ``/data``.
        driver: how buildah stores layers.
    """

    def __init__(self, work: Path) -> None:
        self.work = work
        self.data = work / "data"
        shutil.rmtree(self.data, ignore_errors=True)
        self.data.mkdir(parents=True)
        # The images have a user of their own.
        self.data.chmod(0o777)
        self.driver = "overlay"
        if subprocess.run(self.command("info"), capture_output=True, check=False).returncode:
            # Without overlay mounts, every layer is a whole copy.
            self.driver = "vfs"

    def command(self, *words: str) -> list[str]:
        """Return a command of buildah with the store of images in the work folder."""
        folders = ["--root", str(self.work / "images"), "--runroot", str(self.work / "run")]
        return ["buildah", *folders, "--storage-driver", self.driver, *words]

    def buildah(self, *words: str) -> str:
        """Run buildah and return what it printed."""
        done = subprocess.run(
            self.command(*words),
            cwd=ROOT,
            env=os.environ | ENVIRONMENT,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"buildah {words[0]} failed:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
        return done.stdout

    def build(self, wheel: Path, torch: str) -> None:
        """Build both images with a wheel, and make a container of each."""
        context = self.work / "context"
        shutil.rmtree(context, ignore_errors=True)
        (context / "build/wheels").mkdir(parents=True)
        shutil.copy(wheel, context / "build/wheels")
        shutil.copy(ROOT / ".dockerignore", context)
        self._make_base()
        mounts = [word for mount in pip_mounts(self.work) for word in ("--volume", f"{mount}:ro")]
        given = ["--build-arg", f"BASE={BASE}", "--build-arg", f"TORCH={torch}"]
        for target in TARGETS:
            file = ["-f", str(ROOT / "deploy/Containerfile"), "--target", target, "-t", f"sparsight-{target}"]
            self.buildah("build", "--layers", "--format", "docker", *mounts, *given, *file, str(context))
            subprocess.run(self.command("rm", target), capture_output=True, check=False)
            self.buildah("from", "--name", target, "--pull-never", f"localhost/sparsight-{target}")

    def _make_base(self) -> None:
        """Make an image of Debian's smallest system, unless the store has it."""
        if BASE in self.buildah("images", "--format", "{{.Name}}"):
            return
        folder = self.work / "base"
        folder.mkdir(exist_ok=True)
        system = ["mmdebstrap", "--quiet", "--variant=minbase", DEBIAN, str(folder / "base.tar")]
        subprocess.run(system, check=True)
        (folder / "Containerfile").write_text("FROM scratch\nADD base.tar /\n")
        self.buildah("build", "-t", BASE, str(folder))
        shutil.rmtree(folder)

    def config(self, target: str) -> Any:
        """Return the configuration of an image: ``Cmd``, ``Healthcheck`` and others."""
        text = self.buildah("inspect", "--type", "image", f"localhost/sparsight-{target}")
        return json.loads(text)["Docker"]["config"]

    def command_in(self, target: str, *words: str) -> list[str]:
        """Return the command that runs a program in a container."""
        given = ["--env", "RECALL_TOKEN=check", "--volume", f"{self.data}:/data", "--workingdir", "/data"]
        return self.command("run", "--isolation", "chroot", *given, target, "--", *words)

    def run(self, target: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a program in a container to its end; the output holds its errors too."""
        return subprocess.run(
            self.command_in(target, *words), env=os.environ | ENVIRONMENT, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip


def pip_mounts(work: Path) -> Iterator[str]:
    """Yield mounts for a build: pip's settings, and the files that they name, such as a package index."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    ).stdout
    settings = dict(re.findall(r"^(?:global|install|:env:)\.([\w.-]+)='(.*)'$", listed, re.M))
    text = "".join(f"{name.lstrip('.')} = {value}\n" for name, value in settings.items())
    paths = r"(?:(?<=file://)|(?<=\s))(/[^\s/]\S*)"
    folders = {Path(path).parent for path in re.findall(paths, text)}
    yield from (f"{folder}:/pip{folder}" for folder in folders if folders.isdisjoint(folder.parents))
    (work / "pip.conf").write_text("[global]\n" + re.sub(paths, r"/pip\1", text))
    yield f"{work / 'pip.conf'}:/etc/pip.conf"


def leave_network() -> None:
    """Move this process, and those that it starts, to a network of their own that reaches nothing else."""
    clone_newnet = 0x40000000
    if ctypes.CDLL(None, use_errno=True).unshare(clone_newnet):
        raise SystemExit(f"check_image: no new network: {os.strerror(ctypes.get_errno())}")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


def check_size(images: Images) -> Iterator[str]:
    """Print the size of the image, and yield a problem if it is too large."""
    whole, torch = (
        int(line.split()[0]) for line in images.run("live", "sh", "-c", SIZES).stdout.splitlines()
    )
    print(f"image: {whole / 1e6:.0f} MB, {(whole - torch) / 1e6:.0f} MB of them beside torch")
    if whole - torch > LIMIT_BYTES:
        yield f"the image has more than {LIMIT_BYTES / 1e6:.0f} MB beside torch"


def check_demos(images: Images) -> Iterator[str]:
    """Run the doctor and both demos; yield those that fail, and compilers that are there."""
    # Debian's `command -v` looks for its first word only, and buildah reports an exit status in the output.
    look = f"for name in {' '.join(COMPILERS)}; do command -v $name; done; true"
    found = images.run("live", "sh", "-c", look).stdout.split()
    if found:
        yield f"the image has compilers: {' '.join(found)}"
    for words in (["perceive", "doctor", "--install"], ["perceive", "demo"], ["recall", "demo"]):
        start = time.monotonic()
        done = images.run("live", *words)
        (images.work / f"{'-'.join(words)}.txt").write_text(done.stdout)
        print(f"{' '.join(words)}: exit status {done.returncode}, {time.monotonic() - start:.0f} s")
        if done.returncode and "doctor" not in words:
            yield f"{' '.join(words)}:\n{done.stdout[-2000:]}"
    print((images.work / "perceive-doctor---install.txt").read_text())
    here = [sys.executable, "-c", FRAME]
    for _ in range(ROUNDS):
        there = images.run("live", "python", "-c", FRAME).stdout.split()
        source = subprocess.run(here, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
        for name, (least, median) in (("image", there), ("this machine", source)):
            print(f"frame, {name}: {float(least):.1f} ms at least, median {float(median):.1f} ms")


class Service:
    """A service, started by the command of its image, or with another source of scans."""

    def __init__(self, images: Images, target: str, url: str, *source: str) -> None:
        self.images, self.target, self.url = images, target, url
        config = images.config(target)
        self._words = [*source, *config["Cmd"][3:]] if source else config["Cmd"]
        (self._health,) = config["Healthcheck"]["Test"][1:]
        self.start()

    def start(self) -> None:
        """Start the service, and wait until the health check of its image passes."""
        # The shell's process becomes the service: its id is written for `end`.
        command = self.images.command_in(
            self.target, "sh", "-c", f'echo $$ >/data/{self.target}.pid; exec "$@"', "-"
        )
        with (self.images.work / f"{self.target}.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, *self._words], env=os.environ | ENVIRONMENT, stdout=log, stderr=log
            )
        wait_for(lambda: self.healthy(), f"{self.target} is not healthy: see {log.name}")
        print(f"{self.target}: healthy")

    def healthy(self) -> bool:
        """Run the health check of the image."""
        if self._process.poll() is not None:
            raise SystemExit(f"{self.target} ended: see {self.images.work}/{self.target}.log")
        return self.images.run(self.target, "sh", "-c", self._health).returncode == 0

    def ask(self, path: str) -> Any:
        """Return the service's answer to a request."""
        request = urllib.request.Request(self.url + path, headers={"Authorization": "Bearer check"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def end(self, how: signal.Signals) -> None:
        """End the service by a signal."""
        os.kill(int((self.images.data / f"{self.target}.pid").read_text()), how)
        self._process.wait(60)
        print(f"{self.target}: ended by {how.name}")


@contextmanager
def scans(images: Images) -> Iterator[str]:
    """Write the demo's scans into a folder, twice a second, and give the folder as containers see it."""
    sources = sorted((images.data / "sparsight-demo/street/scans").glob("*.bin"))
    folder = images.data / "scans"
    folder.mkdir(exist_ok=True)
    ended = threading.Event()

    def write() -> None:
        for number in itertools.count():
            written = shutil.copy(sources[number % len(sources)], folder / f"{number:06d}.tmp")
            Path(written).rename(folder / f"{number:06d}.bin")
            if ended.wait(0.5):
                return

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield "/data/scans"
    finally:
        ended.set()
        writer.join()


def check_services(images: Images) -> Iterator[str]:
    """Run both services; end them in the middle of their work, and yield what they lost."""
    with scans(images) as folder:
        live = Service(images, "live", "http://127.0.0.1:8766", "perceive", "live", folder)

        def work(scans: int = 20) -> None:
            wait_for(lambda: live.ask("/healthz")["done"] >= scans, "perceive live processes no scans")

        work()
        live.end(signal.SIGTERM)
        live.start()
        serve = Service(images, "serve", "http://127.0.0.1:8713")
        counts = [serve.ask("/api/stats?check=true")]
        work()
        for service in (live, serve):
            service.end(signal.SIGKILL)
            service.start()
        counts.append(serve.ask("/api/stats?check=true"))
        work()
        live.end(signal.SIGTERM)
        counts.append(serve.ask("/api/stats?check=true"))
        serve.end(signal.SIGTERM)
    memories = [found["memories"] for found in counts]
    print(f"memories at first, after both were killed, at the end: {memories}")
    if not 0 < memories[0] <= memories[1] <= memories[2]:
        yield f"memories were lost: {memories}"
    if not all(found["check"]["ok"] for found in counts):
        yield f"the store is damaged: {counts}"


def wait_for(condition: Callable[[], bool], problem: str) -> None:
    """Wait until a condition holds."""
    until = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > until:
            raise SystemExit(f"check_image: {problem}")
        time.sleep(0.2)


if __name__ == "__main__":
    raise SystemExit(main())

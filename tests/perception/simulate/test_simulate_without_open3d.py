"""The package imports and builds scenes without Open3D, and says what to install when rays are cast."""

import subprocess
import sys

PROGRAM = """
import sys
import perception.simulate as simulate
print("open3d" in sys.modules)
sys.modules["open3d"] = None
scene = simulate.build_scene(0, simulate.SceneConfig(extent_m=20.0))
assert len(scene.static)
try:
    simulate.simulate_scan(0, scene=simulate.SceneConfig(extent_m=20.0))
except ImportError as error:
    print(error)
"""


def test_without_open3d_the_error_names_the_extra() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    imported, error = done.stdout.splitlines()
    assert imported == "False"
    assert "pip install 'sparsight[simulate]'" in error

# %% [markdown]
# # A detector for classes of your own
#
# Scans and labels of your own become a detector in four steps: describe, check, train, judge. The data here
# is made up in a few lines, so that the whole takes half a minute on a CPU: pallets and forklifts on the
# floor of a hall. [docs/own-data.md](../docs/own-data.md) does the same with ray-cast scans and the shipped
# weights to begin with.

# %%
import json
from pathlib import Path

import numpy as np
import torch

from perception import Detector
from perception.cli import main as perceive
from perception.data import open_data_set

torch.set_num_threads(2)
folder = Path("hall")
random = np.random.default_rng(0)

# %% [markdown]
# ## Scans and labels
#
# A scan is an (N, 4) array of x, y, z in metres and intensity, a sensor 1.7 m above the floor; a label says
# class, centre, sizes and yaw. Any format that is read will do, labels of five tools too.

# %%
SIZES = {"pallet": (1.2, 0.8, 1.0), "forklift": (2.4, 1.2, 2.1)}


def points_on(box: np.ndarray, count: int) -> np.ndarray:
    """Points on the top and the sides of a box, in the LiDAR frame."""
    at = random.uniform(-0.5, 0.5, (count, 3))
    side = random.integers(0, 3, count)
    at[np.arange(count), side] = np.where(side == 2, 0.5, random.choice([-0.5, 0.5], count))
    cos, sin = np.cos(box[6]), np.sin(box[6])
    turned = (at * box[3:6]) @ np.array([[cos, sin, 0], [-sin, cos, 0], [0, 0, 1]])
    return turned + box[:3]


for part in ("scans", "labels"):
    (folder / part).mkdir(parents=True, exist_ok=True)
for number in range(40):
    places = random.permutation([(x, y) for x in range(3, 18, 4) for y in range(-8, 9, 4)])[:8]
    objects, clouds = [], [random.uniform([0, -12, -1.72], [20, 12, -1.68], (2500, 3))]
    for row, (x, y) in enumerate(places):
        name = "pallet" if row % 2 else "forklift"
        size = np.array(SIZES[name]) * random.uniform(0.95, 1.05, 3)
        centre = [x + random.uniform(-0.6, 0.6), y + random.uniform(-0.6, 0.6), -1.7 + size[2] / 2]
        box = np.array([*centre, *size, random.uniform(-0.5, 0.5)])
        objects.append({"class": name, "box": box.round(4).tolist()})
        clouds.append(points_on(box, 120 if name == "forklift" else 80))
    points = np.concatenate(clouds)
    scan = np.column_stack([points, random.uniform(0, 1, len(points))]).astype(np.float32)
    np.save(folder / f"scans/{number:06d}.npy", scan)
    (folder / f"labels/{number:06d}.json").write_text(json.dumps({"objects": objects}))

# %% [markdown]
# ## Describe and check
#
# `perceive init` measures what lies there and writes `dataset.yaml`, lists of frames to train on and to
# judge by, and `train.yaml`. `perceive doctor` says what would go wrong.

# %%
assert perceive(["init", str(folder)]) == 0
assert perceive(["doctor", str(folder)]) == 0
print("classes:", open_data_set(folder).classes)

# %% [markdown]
# ## Train
#
# `train.yaml` describes a network as large as the shipped one. This is a small one for a small hall.

# %%
config = Path("small.yaml")
config.write_text(
    """
detector:
  name: hall
  pillars: {range_m: [0.0, -12.8, -3.0, 20.48, 12.8, 1.0], pillar_size_m: 0.32, channels: 16}
  backbone: {kind: sparse, channels: [16, 32, 32], blocks: [1, 1, 1]}
  neck: {channels: 32, blocks: 1, out_channels: 32}
  head: {classes: [pallet, forklift], channels: 32, top_k: 50}
  refine: {channels: [16, 16], proposals: 16, iterations: 1}
  nms: {score_threshold: 0.1}
augment: {paste: {}, rotation_rad: 0.2, object_noise_m: 0.0, object_noise_rad: 0.0, drop_points: 0.0}
steps: 180
batch_size: 4
learning_rate: 0.01
precision: float32
average_decay: 0.9
workers: 0
seed: 0
"""
)
assert perceive(["train", str(config), "--data", str(folder), "--out", "run"]) == 0

# %% [markdown]
# ## Judge, and use
#
# On frames that were not trained on. Longer training makes boxes sharper and leaves fewer false ones.

# %%
assert perceive(["eval", "--data", str(folder), "--weights", "run/weights.safetensors"]) == 0
frame = open_data_set(folder, "val")[0]
found = Detector.from_pretrained("run/weights.safetensors")(frame.cloud).filter(min_score=0.3)
print("true:", sorted(frame.labels))
print("found:", sorted(found.labels))

# %% [markdown]
# # Detection on a scan
#
# From a point cloud to boxes, a picture and a page. The scan is simulated and part of the package. Load your
# own with `load_point_cloud("scan.bin")`, or pass an (N, 4) array: x, y, z in metres (x forward, y left, z
# up) and intensity.

# %%
from pathlib import Path

import numpy as np

from perception import Detector
from perception.boxes import rotated_iou_bev
from perception.data.sample import sample_frames
from perception.visualise import draw_bev, write_html

frame = sample_frames()[-1]
print(f"{len(frame.cloud)} points, from x {frame.points[:, 0].min():.0f} to {frame.points[:, 0].max():.0f} m")

# %% [markdown]
# ## Detect
#
# The weights are part of the package. On a GPU (`device="cuda"`), a frame is one CUDA graph.

# %%
detector = Detector.from_pretrained("pointpillars-kitti")
detections = detector(frame.cloud)
for box, score, label in zip(detections.boxes, detections.scores, detections.labels, strict=True):
    print(f"{label:<10} {score:.2f}  x {box[0]:5.1f} m  y {box[1]:6.1f} m  yaw {np.degrees(box[6]):6.1f}°")

# %% [markdown]
# ## Filter
#
# Detections can be indexed like arrays and filtered by score, class and region. `to_pandas()` returns a
# table.

# %%
near_cars = detections.filter(min_score=0.5, labels=["Car"], region_m=(0, -20, 30, 20))
print(len(near_cars), "cars within 30 m; the best at", near_cars.boxes[0, :2].round(1))

# %% [markdown]
# ## Compare with the truth
#
# The simulator provides true boxes. Overlap is the IoU of rotated boxes on the ground.

# %%
overlap = np.asarray(rotated_iou_bev(detections.boxes, frame.boxes))
hit = (overlap.max(axis=1) > 0.5).sum()
print(f"{hit} of {len(detections)} boxes overlap a true box by more than half")

# %% [markdown]
# ## Draw
#
# Write a picture from above, and a self-contained 3D page.

# %%
picture = draw_bev(Path("scan.png"), frame.cloud, detections, ground_truth=frame.truth)
page = write_html(Path("scan.html"), frame.cloud, detections, ground_truth=frame.truth)
print(picture, page)

"""The commands of ``perceive``: their help, and the modules that declare them."""

from __future__ import annotations

from sparse_core.common.commands import Command

COMMANDS = {
    "demo": Command(
        "perception.cli.demo",
        "Quick start: detect and track objects in a simulated street.",
    ),
    "init": Command(
        "perception.cli.init", "Inspect a folder of scans and labels, and describe it in dataset.yaml."
    ),
    "detect": Command("perception.cli.detect.command", "Detect objects in point clouds and draw them."),
    "track": Command(
        "perception.cli.track.command",
        "Track objects through scans, or through the boxes of another detector.",
    ),
    "live": Command(
        "perception.cli.live.command",
        "Detect and track while scans arrive from a sensor, a ROS 2 topic, a growing folder or a replayed"
        " recording.",
    ),
    "eval": Command(
        "perception.cli.evaluate.command",
        "Measure the average precision of a detector or of result files, by the protocol of KITTI, of"
        " nuScenes, or of any labelled boxes.",
    ),
    "calibrate": Command(
        "perception.cli.calibrate",
        "Fit box sizes, scores and thresholds of weights to a sensor and market, from a few labelled frames.",
    ),
    "quantise": Command(
        "perception.cli.quantise",
        "Prepare weights for int8 on a CPU: measure the ranges of their features on about 20 scans.",
    ),
    "train": Command(
        "perception.cli.train.command",
        "Train a detector. Rerun the same command to resume. On several GPUs: torchrun --nproc-per-node N -m"
        " perception.cli train ...",
    ),
    "pseudo-label": Command(
        "perception.cli.pseudo_label",
        "Label the scans of a drive with confident detections that neighbouring scans confirm.",
    ),
    "simulate": Command(
        "perception.cli.simulate", "Simulate LiDAR frames with exact labels. Rerun the command to resume."
    ),
    "convert": Command(
        "perception.cli.convert",
        "Convert a data set to another layout. Rerun the command to resume.",
    ),
    "convert-weights": Command(
        "perception.cli.convert_weights",
        "Convert a PointPillars or CenterPoint checkpoint of OpenPCDet, mmdetection3d or zhulf0804.",
    ),
    "export": Command(
        "perception.cli.export",
        "Export a detector, from points to boxes, to ONNX, torch.export or AOTInductor.",
    ),
    "push": Command("perception.cli.push", "Upload weights and a model card to the Hugging Face Hub."),
    "doctor": Command(
        "perception.cli.doctor",
        "Check a data set, or the installation, and explain how to fix it. The exit status is 1 if there are"
        " errors.",
    ),
    "bench": Command(
        "perception.cli.bench",
        "Time a frame on this machine: sparse detector, dense baseline and spconv, interleaved.",
    ),
    "completion": Command(
        "sparse_core.common.completion", "Print a script that completes commands and options in a shell."
    ),
}
